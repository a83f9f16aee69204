"""The memory bank: each change is one transaction with one journal entry. How it is read: retrieval.py, contents.py."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import UserError, check_choice
from core.memory.corrections import supersede
from core.memory.filter import normal_tag
from core.memory.history import History
from core.memory.hygiene.scrub import scrub_records
from core.memory.lexical import WordSearch
from core.memory.moment import now
from core.memory.open import open_store
from core.memory.ports import Consolidates, Hygiene, OpenChange, Policy
from core.memory.protocol import Memory, Steps
from core.memory.records import EpisodeFeedback, feedback_of, record_of
from core.memory.retrieval import Retrieval
from core.memory.store.changes import Change
from core.memory.store.contract import Busy, SearchSettings
from core.memory.store.keys import KINDS
from core.memory.uses import after_use
from core.models.embedding import Embedder
from core.types import Lesson, MemoryRecord, Task, Trajectory, Usage, Verdict, content_id

_CHOICES = {
    "unit": ("record", "item"),
    "key": KINDS,
    "clock": ("stream", "wall"),
    "index": ("flat", "hnsw"),
    "uses": (None, "shown", "cited"),
    "redact": (None, "secrets", "personal"),
}
OF_TASK = "type"  # as memory.domain, or one of memory.tags, it stands for the task's type
LOOKED_AT = 20  # max. records of one `add_many` whose language is checked
SHOWN_WAIT_S = 0.2  # seconds that a retrieval may wait for other writers, to count the records shown

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MemoryBank(Retrieval, Memory):
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
    counts       what happened since the bank was opened, shared by its views (`of`): "retrieved by words" is the number
                 of retrievals by words, because the embedder does not read the query's language
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

    @property
    def history(self) -> History:
        """The journal, rollback, snapshots and permanent deletion."""
        return History(contents=self, store=self._store, change=self.change)

    def filed_under(self, task: Task) -> tuple[str | None, tuple[str, ...]]:
        """(domain, tags) of the records that a task adds. Domain None: `memory.domain` sets none."""
        tags = [task.type if tag == OF_TASK else tag for tag in self.tags or ()]
        domain = task.type if self.domain == OF_TASK else self.domain
        return domain, tuple(dict.fromkeys(normal_tag(tag) for tag in tags if tag.strip()))

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
            record = replace(made, tick=self.tick() - self._first_tick())  # add_many adds the first tick again
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
        supersedes        ids of records that these replace in the same transaction; if given, even as [], they also
                          replace older ones with the same task and titles
        """
        if not records:
            return 0
        if not all(self.embedder.reads(record.original_query) for record in records[:LOOKED_AT]):
            self.say_unread()
        own = {} if keep_namespaces else {"namespace": self.namespace}
        first, about = self._first_tick(), self.provenance
        records = [
            replace(r, tick=first + r.tick, created_at=r.created_at or now(), provenance=about | r.provenance, **own)
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
            if added := change.put_all(rows):
                if supersedes is not None:
                    for record, _ in rows:
                        supersede(self, change, record, supersedes)
                if feedback is not None:
                    self.count_within(change, feedback)  # reads the records just added
        return added

    @contextmanager
    def change(self, reason: str, wait_s: float | None = None) -> Iterator[Change]:
        """Change records: `with bank.change("why") as change`. One transaction, one journal entry, all or nothing.

        wait_s   seconds to wait for other writers, then Busy is raised; None: BUSY_S seconds
        """
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

    def learn(self, episode: dict[str, Any] | None) -> None:
        """Take in the feedback of an episode, a row of episodes.jsonl; None: finish work that a crash interrupted."""
        for trial in (episode or {}).get("validated", ()):
            self._end_trial(trial)
        self.learn_from(None if episode is None else feedback_of(episode))

    def _end_trial(self, trial: dict[str, Any]) -> None:
        """Give a candidate (memory.validate) the status that its trial found, once, with what was found.

        A candidate that the write filter has quarantined stays quarantined.
        """
        record = self.get(trial["id"])
        if record is None or "validated" in record.provenance:
            return
        found = {name: trial[name] for name in ("tasks", "won_with", "won_without")}
        status = record.status if "quarantine" in record.provenance else trial["status"]
        with self.change(f"validate: {trial['won_with'] - trial['won_without']:+d} of {len(trial['tasks'])}") as change:
            change.update(record.id, status=status, provenance=record.provenance | {"validated": found})

    def learn_from(self, feedback: EpisodeFeedback | None) -> None:
        """As `learn`, from the feedback itself.

        Without `consolidate` this only adds the outcome to uses that `count_shown` has counted.
        """
        if self.consolidate is not None:
            self.consolidate.learn(self, feedback)
        elif feedback is not None and feedback.counted and feedback.used and not self.read_only:
            with self.change("uses judged") as change:
                self.count_within(change, feedback)

    def count_within(self, change: Change, feedback: EpisodeFeedback) -> None:
        """`learn_from` inside an open change, without consolidation rounds; learn(None) runs those."""
        if self.consolidate is not None:
            self.consolidate.count(self, change, feedback)
        elif feedback.counted and feedback.used:
            self._count_uses(change, dict.fromkeys(feedback.used, 0), feedback.label)

    def count_shown(self, ids: Iterable[str] | Mapping[str, int]) -> bool:
        """Count that records were shown to an agent: n_used and last_used, in one transaction; unknown ids are ignored.

        For a server, after a retrieval. It must not wait long: if other writers keep the bank busy for SHOWN_WAIT_S,
        nothing is counted, a warning is logged and False is returned. The outcome of the use is added later, by
        `learn_from`. With `uses=cited` nothing is counted here.

        ids   ids of the records, each shown once; or {id: how often it was shown}
        """
        shown = ids if isinstance(ids, Mapping) else dict.fromkeys(ids, 1)
        if self.uses == "cited" or self.read_only or not shown:
            return True
        try:
            with self.change("shown", SHOWN_WAIT_S) as change:
                self._count_uses(change, shown, None)
        except Busy as error:
            log.warning(f"what was retrieved is not counted: {error}")
            return False
        return True

    def _count_uses(self, change: Change, shown: Mapping[str, int], label: str | None) -> None:
        """Update the usage of records. shown: {id: showings to count}; 0: they were counted before."""
        rules = self.consolidate or Consolidates  # the class holds the defaults
        fields = after_use(self.moment(), label, confidence=rules.confidence, ticks_per_day=rules.ticks_per_day)
        change.update_usage(shown, lambda id, record: fields(record, shown[id]))

    def spent(self) -> Usage | None:
        """Cost of the model calls by `consolidate` and `hygiene` in this run; None if neither calls a model."""
        asked = [plugin.usage(self) for plugin in (self.consolidate, self.hygiene) if plugin is not None]
        spent = [usage for usage in asked if usage is not None]
        return sum(spent, Usage()) if spent else None

    def close(self) -> None:
        """Wait for background work, save a large index, and close the database."""
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
