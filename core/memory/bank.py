"""The memory bank: retrieval is a pure read; each change is one transaction with one journal entry."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from core.errors import InfraError, UserError, check_choice
from core.memory.contents import Contents
from core.memory.corrections import supersede
from core.memory.filter import Filter, normal_tag
from core.memory.history import History
from core.memory.hygiene.scrub import scrub_records
from core.memory.lexical import WordSearch
from core.memory.moment import Moment, now
from core.memory.open import open_store
from core.memory.ports import OTHER, SAME, SEEN, Consolidates, Hygiene, OpenChange, Policy
from core.memory.protocol import Memory, Steps
from core.memory.ranking import ranked
from core.memory.records import EpisodeFeedback, feedback_of, n_records, record_of
from core.memory.store.changes import Change
from core.memory.store.contract import BankStore, Busy, Search, SearchSettings
from core.memory.store.hits import best_of_each, each_item_once, in_order, scored
from core.memory.store.keys import ITEM, JOINED, KINDS, QUERY, WHOLE, Keys, texts_of
from core.memory.store.schema import SqlSession
from core.memory.uses import after_use
from core.models.embedding import Embedder
from core.types import Lesson, MemoryRecord, Scored, Task, Trajectory, Usage, Verdict, content_id

_CHOICES = {
    "unit": ("record", "item"),
    "key": KINDS,
    "clock": ("stream", "wall"),
    "index": ("flat", "hnsw"),
    "uses": (None, "shown", "cited"),
    "redact": (None, "secrets", "personal"),
}
MOST_MISSING = 500  # if more records than these lack their joined texts' keys, none are made at opening: it takes long
_KINDS = "kinds"  # entry of the table meta: the kinds of keys that each record has
OF_TASK = "type"  # as memory.domain, or one of memory.tags, it stands for the task's type
LOOKED_AT = 20  # max. records of one `add_many` whose language is checked
SHOWN_WAIT_S = 0.2  # seconds that a retrieval may wait for other writers, to count the records shown

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MemoryBank(Contents, Memory):
    """The paper's bank (section 3.2): append-only experiences, keyed by the embedding of their query.

    path         the SQLite file, or the URL of a PostgreSQL database; None in the config: in the run directory
    store        PostgreSQL search settings (memory/store=postgres); None: defaults
    embedder     embeds queries and items; UserError if the bank was made with another one
    namespace    the tenant whose records are read and written; a search reads another's if its Filter names one
    allow_self   let a task retrieve records learned from it; must be False for a valid benchmark
    unit         record | item: a search returns whole records or single items
    key          query | item | joined: a search compares the query with the record's query (the paper), with each of
                 its items, or with each item's text joined to the record's query and tags. Once a bank was opened with
                 item or joined, every later writer stores those keys, too
    domain       type | TEXT: domain of the records that a task adds: the task's type, or this text; None: no domain
    tags         tags of the records that a task adds; "type" stands for the task's type; None: no tags
    uses         shown | cited: a record counts as used if a lesson of it was shown, or only if the agent cites one;
                 None: as with shown, but a run counts no uses unless `consolidate` is set
    clock        stream | wall: the clock for ages
    index        flat | hnsw: exact search, or approximate from 20 000 records on
    read_only    open an existing bank and refuse to change it (setting=frozen)
    redact       secrets | personal: what is taken out of the texts of new records: credentials, with personal also
                 e-mail addresses, telephone numbers and the like; None: secrets (in the config: see core/build.py)
    hygiene      write filter for new records; None: no filter
    consolidate  updates the stored records after each episode; None: they are not updated
    query_instruction  stands before a query when it is embedded for a search; the records' queries are embedded without
                 it; None: nothing
    run          name of this run in a bank that other runs have filled: its ticks go on after the bank's last one, and
                 the first is stored under this name; "": ticks begin at 0
    provenance   {run, models}, stored with each record added; task, trajectory (a hash), label source and time are
                 fields of the record itself
    group        further namespaces, of a team, whose lessons are retrieved, too; they are only read
    counts       what happened since the bank was opened, shared by its views: "retrieved by words" is the number of
                 retrievals by words, because the embedder does not read the query's language
    """

    path: str
    embedder: Embedder
    policy: Policy
    namespace: str = "default"
    read_only: bool = False
    store: Any = None
    allow_self: bool = False
    unit: str = "record"
    key: str = "query"
    domain: str | None = None
    tags: list[str] | None = None
    uses: str | None = None
    query_instruction: str | None = None
    clock: str = "stream"
    index: str = "flat"
    redact: str | None = None
    hygiene: Hygiene | None = None
    consolidate: Consolidates | None = None
    run: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    group: tuple[str, ...] = field(default=(), init=False)
    counts: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _store: BankStore = field(init=False, repr=False)
    _search: Search = field(init=False, repr=False)
    _words: WordSearch = field(init=False, repr=False)
    _kinds: tuple[str, ...] = field(default=(QUERY,), init=False, repr=False)  # the kinds of keys that a record has
    _lacks_keys: bool = field(default=False, init=False, repr=False)  # some may have no joined text's key
    _closed: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            check_choice(self, "memory", name, known)
        if not isinstance(self.tags, list | None) or not all(isinstance(tag, str) for tag in self.tags or ()):
            raise UserError(f"memory.tags={self.tags}: give a list of words.")
        self._store = open_store(self.path, read_only=self.read_only, how=self.store).of(self.namespace)
        made_by = self._store.meta("embedder")
        if made_by not in (None, self.embedder.name):
            self._store.close()
            raise UserError(
                f"the bank {self.path} was made by the embedder {made_by!r} and this run uses {self.embedder.name!r}: "
                "give the same embedder, or another memory.path."
            )
        self._look_for_keys()
        self._search = self._store.search(SearchSettings(approximate=self.index == "hnsw", read_only=self.read_only))
        self._words = WordSearch(self._store, self._search)

    def of(self, namespace: str) -> Self:
        """A view of the same open bank for another namespace; only the original may be closed."""
        other = copy(self)
        other.namespace, other._store, other.group = namespace, self._store.of(namespace), ()
        return other

    def mates(self) -> list[Self]:
        """A view for each namespace of `group`."""
        return [self.of(name) for name in self.group]

    @property
    def history(self) -> History:
        """The journal, rollback, snapshots and permanent deletion."""
        return History(contents=self, store=self._store, change=self.change)

    def moment(self) -> Moment:
        """The current time on the bank's clock."""
        return Moment(tick=self.tick() if self.clock == "stream" else None, at=datetime.now(UTC))

    def retrieve(
        self,
        query: str,
        top_k: int | None = None,
        exclude_task: str | None = None,
        where: Filter | None = None,
        domain: str | tuple[str, ...] | None = None,
    ) -> list[Scored]:
        """The records that the policy chooses for a query, best first, with those of `group`. Never writes.

        top_k    None: the policy's
        domain   domain of the task, for `retrieval.domain=same` and `other`, or those seen, for `seen`; None: not
                 known, records of all domains are searched
        """
        top_k = self.policy.top_k if top_k is None else top_k
        if top_k <= 0:
            return []
        if self.group:
            return self._together(
                [one.retrieve(query, top_k, exclude_task, where, domain) for one in self._with_mates()], top_k
            )
        if domain is not None and self.policy.domain == OTHER:
            domain = tuple(each for each in self.domains() if each != domain)
        if domain is not None and self.policy.domain in (SAME, SEEN, OTHER):
            where = where or Filter()
            where = replace(where, domain=domain) if where.domain is None else where
        return ranked(self, self.policy, query, top_k, exclude_task, where)

    def _asked(self, query: str) -> str:
        """What is embedded to search for a query."""
        return f"Instruct: {self.query_instruction}\nQuery: {query}" if self.query_instruction else query

    def _with_mates(self) -> list[Self]:
        return [self.of(self.namespace), *self.mates()]

    def _together(self, found: list[list[Scored]], top_k: int) -> list[Scored]:
        """Of what was found in each namespace the best, and of lessons that are the same the best one."""
        best: dict[Any, Scored] = {}
        for hit in sorted((hit for hits in found for hit in hits), key=lambda hit: -hit.score):
            best.setdefault(hit.record.items, hit)
        least = self.policy.of_best * next((hit.score for hit in best.values()), 0.0)
        return [hit for hit in best.values() if max(hit.score, 0.0) >= least][:top_k]

    def say_unread(self) -> None:
        """Warn once that the embedder does not read a language that it is used for."""
        self.counts["said"] += 1
        if self.counts["said"] == 1:
            option = "retrieval.other_languages_by_words"
            by_words = f"are retrieved by words ({option}), no threshold applies to them"
            by_cosine = f"have cosines that say little ({option}=true: they are retrieved by words)"
            log.warning(
                f"the embedder {self.embedder.name} understands only English: texts in other languages "
                f"{by_words if self.policy.other_languages_by_words else by_cosine}, and nothing is merged by meaning. "
                "One that reads them: embedder=openai, or embedder=huggingface with a multilingual "
                "embedder.inner.model, e.g. intfloat/multilingual-e5-small (docs/memory.md)."
            )

    def retrieve_and_count(self, query: str, top_k: int, where: Filter | None = None) -> tuple[list[Scored], int]:
        """(the records retrieved, how many of the top_k best ones were left out because of min_score)."""
        if self.group:
            found = [one.retrieve_and_count(query, top_k, where) for one in self._with_mates()]
            kept = self._together([hits for hits, _ in found], top_k)
            return kept, min(sum(n for _, n in found), top_k - len(kept))
        policy = self.policy
        by_words = policy.other_languages_by_words and policy.by_meaning and not self.embedder.reads(query)
        if policy.min_score is None or by_words:
            return self.retrieve(query, top_k, where=where), 0
        policy = copy(policy)
        policy.min_score = None
        without_threshold = ranked(self, policy, query, top_k, None, where)
        n_removed = len(without_threshold) - len(self.policy.good_enough(without_threshold))
        must_rerank = n_removed or self.policy.rank_based
        return (self.retrieve(query, top_k, where=where) if must_rerank else without_threshold), n_removed

    def filing(self, task: Task) -> tuple[str | None, tuple[str, ...]]:
        """(domain, tags) of the records that a task adds. Domain None: `memory.domain` sets none."""
        tags = [task.type if tag == OF_TASK else tag for tag in self.tags or ()]
        domain = task.type if self.domain == OF_TASK else self.domain
        return domain, tuple(dict.fromkeys(normal_tag(tag) for tag in tags if tag.strip()))

    def nearest(
        self,
        query: Any,
        k: int,
        exclude_task: str | None = None,
        where: Filter | None = None,
        unit: str | None = None,
        key: str | None = None,
    ) -> list[Scored]:
        """The k records with the highest cosine to a query, of those that pass `where`, none from exclude_task.

        query       a text, or its unit vector, float32 (d,)
        where       None: all active records of the bank's namespace
        unit, key   instead of the bank's; None: the bank's
        """
        vector = query
        # The query is embedded even if the bank is empty, so that a broken embedder fails before the attempt. The form
        # of the instruction is the one that embedders of instructions are trained on.
        if isinstance(query, str):
            vector = self.embedder.embed([self._asked(query)])[0]
        where, unit, key = self._within(where), unit or self.unit, key or self.key
        exclude = None if self.allow_self else exclude_task or None
        if key not in self._kinds:
            raise UserError(f"the bank {self.path} has no keys of kind {key}: open it with memory.key={key}.")
        kinds = (QUERY, key) if key == JOINED and self._lacks_keys else (key,)
        wanted = k
        while True:
            hits = self._search.nearest(vector, wanted, where, exclude, kinds=kinds, distinct=unit == "record")
            if unit == "record":
                return scored(best_of_each(in_order(hits)), unit)[:k]
            found = each_item_once(scored(in_order(hits), unit))  # an item may be found by several keys
            if len(found) >= k or len(hits) < wanted:
                return found[:k]
            wanted *= 4

    def neighbours(self, id: str, k: int) -> list[Scored]:
        """The k records whose queries are nearest to that of the record `id`, itself left out. UserError if unknown."""
        import numpy as np

        record = self.existing(id)
        vector = np.array(record.query_embedding or self.embedder.embed([record.original_query])[0], dtype=np.float32)
        hits = self.nearest(vector, k + 1, unit="record", key="query")
        return [hit for hit in hits if hit.record.id != id][:k]

    def lexical(
        self, query: str, k: int, exclude_task: str | None = None, where: Filter | None = None, **how: bool
    ) -> list[Scored]:
        """The k records whose query and items best match any words of a text: BM25 (core/memory/lexical.py).

        how   parts: also compare parts of words, which inflected forms share
              share: BM25 as a share of the most that the query's words could give
        """
        if k <= 0:
            return []
        where, exclude = self._within(where), None if self.allow_self else exclude_task or None
        return scored(self._words.best(query, k, where, exclude, **how), "record", by_words=True)

    def add(
        self,
        record: MemoryRecord | str,
        trajectory: Trajectory | None = None,
        items: Sequence[Lesson] = (),
        *,
        verdict: Verdict | None = None,
        task_id: str = "",
        shown: Sequence[str] | None = None,
        did: Steps | None = None,
    ) -> bool:
        """Append a record to the bank's namespace: add(record), or add(query, trajectory, items), which makes it.

        Adding the same record again changes nothing and returns False.

        shown     ids of the records that the task's prompt showed, for `memory.hygiene`; None: not known
        did       steps of the attempts, for `memory.hygiene`; None: not known
        verdict   with a query: label of its attempt; None: label from trajectory.success (label source `oracle`)
        task_id   with a query: the task that must not retrieve the record; "": an id derived from the query
        """
        if isinstance(record, str):
            if trajectory is None:
                raise UserError("add(query, trajectory, items) makes a record of an attempt: give its trajectory.")
            task = Task(id=task_id or content_id("task", record), query=record)
            verdict = verdict or Verdict(label="success" if trajectory.success else "failure", source="oracle")
            made = record_of(0, task, trajectory, verdict, tuple(items))
            record = replace(made, tick=self.tick() - self._first_tick())  # as add_many expects it
        return self.add_many([record], shown=shown, did=did) == 1

    def add_from(self, record: MemoryRecord, did: Steps, *, shown: Sequence[str] | None = None) -> bool:
        return self.add(record, shown=shown, did=did)

    def add_many(
        self,
        records: list[MemoryRecord],
        vectors: Any = None,
        reason: str = "add",
        *,
        keep_namespaces: bool = False,
        shown: Sequence[str] | None = None,
        did: Steps | None = None,
        feedback: EpisodeFeedback | None = None,
        supersedes: Sequence[str] | None = None,
    ) -> int:
        """Append records in one transaction; returns how many were new.

        vectors           a float32 row for each record's query; None: they are computed here
        keep_namespaces   True: each record goes to the namespace that it names; False: to the bank's
        shown, did        as in `add`
        feedback          counted in the same transaction if any record was new, so a crash cannot store one without
                          the other
        supersedes        ids whose place the records take in the same transaction, as they do of older ones with their
                          task and titles; None: of none
        """
        if not records:
            return 0
        if not all(self.embedder.reads(record.original_query) for record in records[:LOOKED_AT]):
            self.say_unread()
        own = {} if keep_namespaces else {"namespace": self.namespace}
        began, noted = self._first_tick(), self.provenance
        records = [
            replace(r, tick=began + r.tick, created_at=r.created_at or now(), provenance=noted | r.provenance, **own)
            for r in records
        ]
        if self.hygiene is not None:
            more = {"did": did} if did is not None and self.hygiene.reads_attempts else {}
            records = [self.hygiene.screen(record, self.of(record.namespace), shown, **more) for record in records]
        records, changed = scrub_records(records, personal=self.redact == "personal")
        if vectors is None:
            vectors = self.embedder.embed([record.original_query for record in records])
        elif changed:
            queries = [r.original_query for r in records]
            vectors = [self.embedder.embed([q])[0] if q in changed else v for q, v in zip(queries, vectors)]
        rows = [(r, self._keys(r, v)) for r, v in zip(records, vectors)]  # embeds: not while others wait for the lock
        with self.change(reason) as change:
            if feedback is not None or supersedes is not None:
                if added := change.put_all(rows):
                    for record, _ in rows if supersedes is not None else ():
                        supersede(self, change, record, supersedes or ())
                    if feedback is not None:
                        self.count_within(change, feedback)  # reads the records just added
                return added
            n_added = change.put_last(rows)  # a function for after the commit: PostgreSQL may insert only then
        return n_added()

    @contextmanager
    def change(self, reason: str, wait_s: float | None = None) -> Iterator[Change]:
        """Change records: `with bank.change("why") as change`. One transaction, one journal entry, all or nothing.

        wait_s   seconds to wait for other writers, then Busy is raised; None: BUSY_S seconds
        """
        if self.read_only:
            raise UserError(f"the bank {self.path} is opened for reading only.")
        with self._store.change(reason, self.namespace, self.keys_of, self.embedder.name, wait_s) as change:
            yield change
        if change.erased:
            self._store.empty_log()
        if change.rolled_back:
            self._embed_missing()

    def erase(self, change: OpenChange, ids: tuple[str, ...]) -> None:
        """Delete records for good inside a change; only their ids are kept (`History.erase`)."""
        self.history.erase(change, ids)

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        """Take a named lock without waiting; True if this process holds it. In PostgreSQL nothing is locked: True."""
        return self._store.try_lock(name)

    def _first_tick(self) -> int:
        """The tick of the run's first task. It is stored in the bank, so that a resumed run gets the same."""
        if not self.run:
            return 0
        key = f"began:{self.run}"
        if (known := self.fact(key)) is None:
            known = str(self.tick() + 1 if self.statuses() else 0)
            with self.change("a run begins") as change:
                change.fact(key, known)
        return int(known)

    def keys_of(self, record: MemoryRecord) -> Keys:
        """The keys of a record for `Change.put`; call it before the transaction begins."""
        return self._keys(record, self.embedder.embed([record.original_query])[0])

    def reembed(self, key: str | None = None) -> int:
        """Make the keys of all records anew, in all namespaces; returns the number of records.

        No journal entry, because texts do not change. UserError for a role in PostgreSQL that is bound to some tenants.

        key   the bank's `key` from now on: records keep no keys that it does not need; None: as before
        """
        if key not in (None, *KINDS):
            raise UserError(f"key={key}: choose {', '.join(KINDS)}.")
        before = self.key, self._kinds
        if key:
            self.key = key
            self._kinds = tuple(dict.fromkeys((QUERY, *self._wanted)))
        try:
            n = self._store.reembed(self.keys_of, self._note_kinds)
        except BaseException:
            self.key, self._kinds = before
            raise
        self._lacks_keys = False
        return n

    def learn(self, episode: dict[str, Any] | None) -> None:
        """Take in the feedback of an episode, a row of episodes.jsonl; None: finish work that a crash interrupted."""
        for tried in (episode or {}).get("validated", ()):
            self._settle(tried)
        self.learn_from(None if episode is None else feedback_of(episode))

    def _settle(self, tried: dict[str, Any]) -> None:
        """Give a candidate (memory.validate) the status that its trial found, once, with what was found.

        One that the write filter has quarantined itself stays so.
        """
        record = self.get(tried["id"])
        if record is None or "validated" in record.provenance:
            return
        found = {name: tried[name] for name in ("tasks", "won_with", "won_without")}
        suspect = "quarantine" in record.provenance
        status = record.status if suspect else tried["status"]
        with self.change(f"validate: {tried['won_with'] - tried['won_without']:+d} of {len(tried['tasks'])}") as change:
            change.update(record.id, status=status, provenance=record.provenance | {"validated": found})

    def learn_from(self, feedback: EpisodeFeedback | None) -> None:
        """As `learn`, from the feedback itself.

        Without `consolidate` this only adds the outcome to uses that `count_shown` has counted.
        """
        if self.consolidate is not None:
            self.consolidate.learn(self, feedback)
        elif feedback is not None and feedback.counted:
            self._count_uses(dict.fromkeys(feedback.used, 0), feedback.label, "uses judged")

    def count_within(self, change: Change, feedback: EpisodeFeedback) -> None:
        """`learn_from` inside an open change, without consolidation rounds; learn(None) runs those."""
        if self.consolidate is not None:
            self.consolidate.count(self, change, feedback)
        elif feedback.counted:
            self._revise_uses(change, dict.fromkeys(feedback.used, 0), feedback.label)

    def count_shown(self, ids: Iterable[str] | Mapping[str, int]) -> bool:
        """Count that records were shown to an agent: n_used and last_used, in one transaction; unknown ids are ignored.

        For a server, after a retrieval. It must not wait long: if other writers keep the bank busy for SHOWN_WAIT_S,
        nothing is counted, a warning is logged and False is returned. The outcome of the use is added later, by
        `learn_from`. With `uses=cited` nothing is counted here.

        ids   ids of the records, each shown once; or {id: how often it was shown}
        """
        if self.uses == "cited":
            return True
        try:
            self._count_uses(ids if isinstance(ids, Mapping) else dict.fromkeys(ids, 1), None, "shown", SHOWN_WAIT_S)
        except Busy as error:
            log.warning(f"what was retrieved is not counted: {error}")
            return False
        return True

    def _count_uses(
        self, shown: Mapping[str, int], label: str | None, reason: str, wait_s: float | None = None
    ) -> None:
        """Update the usage of records. shown: {id: showings to count}; 0: they were counted before."""
        if self.read_only or not shown:
            return
        with self.change(reason, wait_s) as change:
            self._revise_uses(change, shown, label)

    def _revise_uses(self, change: Change, shown: Mapping[str, int], label: str | None) -> None:
        if shown:  # else the clock need not be read
            rules = self.consolidate or Consolidates  # the class holds the defaults
            fields = after_use(self.moment(), label, confidence=rules.confidence, ticks_per_day=rules.ticks_per_day)
            change.update_usage(shown, lambda id, record: fields(record, shown[id]))

    def spent(self) -> Usage | None:
        """Cost of the model calls by `consolidate` and `hygiene` in this run; None if neither calls a model."""
        asked = [plugin.usage(self) for plugin in (self.consolidate, self.hygiene) if plugin is not None]
        spent = [usage for usage in asked if usage is not None]
        return sum(spent, Usage()) if spent else None

    def close(self) -> None:
        """Wait for background work, save the index if it is worth it, and close the database."""
        if not self._closed:
            self._closed = True
            with closing(self._store):
                if self.consolidate is not None:
                    self.consolidate.close()
                self._search.save()

    def compact(self) -> tuple[int, int]:
        """Free the space of deleted rows; returns the size in bytes before and after.

        Nothing else shrinks the file: SQLite keeps the space for new records.
        """
        return self._store.compact()

    def size(self) -> int:
        """Size of the whole bank in bytes, with its journal and its indexes."""
        return self._store.size()

    @property
    def remains(self) -> str:
        """Sentence on what `forget` cannot delete; "": it deletes everything."""
        return self._store.remains

    def verify_indexes(self) -> Iterator[str]:
        """Compare the bank's copies, and rebuild derived data (keys, journal file); yields lines.

        The index's file is checked whenever it is read. UserError on damage.
        """
        lost, _ = self._store.embed_missing(self.keys_of, self._kinds)
        yield f"{n_records(len(self))}, " + (
            f"{lost} lacked vectors and have them now" if lost else "each with its vectors"
        )
        yield from self._store.rebuild()

    def _look_for_keys(self) -> None:
        """Note which kinds of keys the bank's records have from now on, and make those that are missing."""
        known = (self._store.meta(_KINDS) or QUERY).split(",")
        self._kinds = tuple(dict.fromkeys((*known, *self._wanted)))
        if set(self._wanted) <= set(known):
            self._embed_missing()
        elif not self.read_only:
            if self._store.sees_all:  # a role that sees some tenants alone must not note it for the whole bank
                with self._store.of(None).unjournaled() as db:
                    self._note_kinds(db)
                    db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")
            self._embed_missing(always=True)
        elif len(self):
            self._say_keys_missing(len(self))

    def _note_kinds(self, db: SqlSession) -> None:
        note = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        db.execute(f"INSERT INTO meta VALUES ($1, $2) {note}", (_KINDS, ",".join(self._kinds)))

    def _embed_missing(self, *, always: bool = False) -> None:
        """Make the keys that records lack: after a repair or a rollback, and of a kind that is new in the bank.

        If the embedder fails, they stay without until the next opening; until then only a search by words finds them.
        """
        if not (always or self._store.meta("unembedded")):
            return
        self._lacks_keys = True
        if self.read_only:
            return
        try:
            most = None if ITEM in self._wanted else MOST_MISSING  # key=item has nothing else to search by
            _, left = self._store.embed_missing(self.keys_of, self._kinds, most)
        except (InfraError, UserError) as error:
            log.warning(f"the bank {self.path}: records that lack keys wait for their vectors: {error}")
        else:
            self._lacks_keys = left > 0
            if JOINED in self._wanted and left > MOST_MISSING:
                self._say_keys_missing(left)

    @property
    def _wanted(self) -> tuple[str, ...]:
        """The kinds of keys that searches compare."""
        return (self.key, self.policy.key or self.key)

    def _say_keys_missing(self, n: int) -> None:
        key = ITEM if ITEM in self._wanted else JOINED
        command = f"`reasoningbank bank reembed {self.path} --key {key}`"
        option = "retrieval.key" if self.policy.key == key else "memory.key"
        text = f"the lessons of {n_records(n)} in the bank {self.path} have no vectors for {option}={key}"
        if key == ITEM:
            self._store.close()
            raise UserError(f"{text}: run {command}, or give {option}=query.")
        self._lacks_keys = True
        log.warning(f"{text}: they are found by their query alone until you run {command}.")

    def _within(self, where: Filter | None) -> Filter:
        """The filter with the bank's namespace filled in, if it names none."""
        where = where or Filter()
        return where if where.namespace is not None else replace(where, namespace=self.namespace)

    def _keys(self, record: MemoryRecord, vector: Any) -> Keys:
        """The keys of a record, with the vector of its query."""
        texts = [(kind, *text) for kind in self._kinds if kind != QUERY for text in texts_of(record, kind)]
        rows = self.embedder.embed([text for *_, text in texts]) if texts else ()
        keys = [(kind, place, row.tobytes()) for (kind, place, _), row in zip(texts, rows)]
        return [(QUERY, WHOLE, vector.tobytes()), *keys]
