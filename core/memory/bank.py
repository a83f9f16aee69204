"""The memory bank: retrieval is a pure read; what changes records is one transaction with a journal entry."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from core.errors import InfraError, UserError, check_choice
from core.memory.contents import Contents
from core.memory.filter import Filter, normal_tag
from core.memory.history import History
from core.memory.moment import Moment, now
from core.memory.open import open_store
from core.memory.ports import SAME, Consolidates, Did, Hygiene, Policy
from core.memory.protocol import Memory
from core.memory.records import EpisodeFeedback, feedback_of, record_of
from core.memory.store.changes import Change, Items
from core.memory.store.contract import BankStore, Busy, Search, SearchSettings
from core.memory.store.hits import best_of_each, each_item_once, in_order, scored
from core.memory.store.item_key import check_key, key_of_items, note_key
from core.memory.store.items import item_texts
from core.memory.uses import after_use
from core.models.embedding import Embedder
from core.types import Lesson, MemoryRecord, Scored, Task, Trajectory, Usage, Verdict, content_id

_CHOICES = {
    "unit": ("record", "item"),
    "key": ("query", "item", "both"),
    "clock": ("stream", "wall"),
    "index": ("flat", "hnsw"),
    "uses": (None, "shown", "cited"),
}
MOST_MISSING = 500  # older records whose items a search with key=both embeds on its way: some seconds, at each start
OF_TASK = "type"  # memory.domain and memory.tags: the task's type
MAX_WORDS = 64  # of a query that the full-text search looks for
SHOWN_WAIT_S = 0.2  # how long a retrieval may wait for other writers, to count what it has shown

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MemoryBank(Contents, Memory):
    """The paper's bank (section 3.2): append-only experiences, keyed by the embedding of their query.

    path         the SQLite file, or the URL of a PostgreSQL database; None in the config: in the run directory
    store        memory/store=postgres: how that database is used; None: as usual
    embedder     makes the vectors of what is added; a bank refuses another than its own
    namespace    whose records it reads and writes, unless a search's Filter names another
    allow_self   let a task retrieve what it taught itself earlier; False is the only honest setting for a benchmark
    unit         record | item: what a search returns, a whole record or single items of it
    key          query | item | both: what a search compares with, the record's query (the paper), each of its items, or
                 whichever is nearest of the query and the items, these with the record's tags and window by window
    domain       type | TEXT: the domain of what a task teaches, its own type or this one; None: it has none
    tags         words put on what a task teaches, "type" for its type; None: there are none
    uses         shown | cited: a record is used where a lesson of it was shown, or only where the agent cites one;
                 None: shown, and a run counts only with `consolidate`
    clock        stream | wall: what ages are measured on
    index        flat | hnsw: exact search, or approximate from 20 000 records on
    read_only    open an existing bank and refuse to change it (setting=frozen)
    hygiene      what looks at a record before it is stored; None: nothing does
    consolidate  what a finished episode teaches the bank beyond its record; None: nothing
    run          a name for the run on a bank that others have filled: its ticks go on from where the bank stood then
    provenance   what is noted on each record added: {run, models}; task, trajectory (a hash), label source and time
                 are fields of the record itself
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
    clock: str = "stream"
    index: str = "flat"
    hygiene: Hygiene | None = None
    consolidate: Consolidates | None = None
    run: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    _store: BankStore = field(init=False, repr=False)
    _search: Search = field(init=False, repr=False)
    _items_by: str = field(init=False, repr=False)  # item | both: what vectors of items are made for
    _closed: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            check_choice(self, "memory", name, known)
        if not isinstance(self.tags, list | None) or not all(isinstance(tag, str) for tag in self.tags or ()):
            raise UserError(f"memory.tags={self.tags}: give a list of words.")
        self._store = open_store(self.path, read_only=self.read_only, how=self.store).of(self.namespace)
        made_by = self._store.meta("embedder")
        if made_by not in (None, self.embedder.name, self.embedder.former_name):
            self._store.close()
            raise UserError(
                f"the bank {self.path} was made by the embedder {made_by!r} and this run uses {self.embedder.name!r}: "
                "give the same embedder, or another memory.path."
            )
        self._items_by = key_of_items(self._store, self.key, read_only=self.read_only, path=self.path)
        settings = SearchSettings(
            approximate=self.index == "hnsw",
            read_only=self.read_only,
            items_by=self._items_by,
            item_vectors=self._item_vectors,
            most_missing=MOST_MISSING
            if self.key == "both"
            else None,  # with key=item there is nothing else to search by
        )
        self._embed_missing()
        self._search = self._store.search(settings)

    def of(self, namespace: str) -> Self:
        """The same open bank as another tenant has it. Close only the one that was opened."""
        other = copy(self)
        other.namespace, other._store = namespace, self._store.of(namespace)
        return other

    @property
    def history(self) -> History:
        """What was changed, what undoes it, and what is forgotten for good."""
        return History(contents=self, store=self._store, change=self.change)

    def moment(self) -> Moment:
        """The present on the bank's clock."""
        return Moment(tick=self.tick() if self.clock == "stream" else None, at=datetime.now(UTC))

    def retrieve(
        self,
        query: str,
        top_k: int | None = None,
        exclude_task: str | None = None,
        where: Filter | None = None,
        domain: str | None = None,
    ) -> list[Scored]:
        """The records most useful for a query, best first; top_k None takes the policy's. Never writes.

        domain   the task's own, which `retrieval.domain=same` means; None: it is not known, and nothing is left out
        """
        top_k = self.policy.top_k if top_k is None else top_k
        if top_k <= 0:
            return []
        if domain is not None and self.policy.domain == SAME:
            where = where or Filter()
            where = replace(where, domain=domain) if where.domain is None else where
        return self.policy.rank(self, query, top_k, exclude_task, where)

    def retrieve_and_count(self, query: str, top_k: int, where: Filter | None = None) -> tuple[list[Scored], int]:
        """What is retrieved, and how many of the top_k that would have been retrieved min_score held back."""
        if self.policy.min_score is None:
            return self.retrieve(query, top_k, where=where), 0
        unheld = copy(self.policy)
        unheld.min_score = None
        unheld = unheld.rank(self, query, top_k, None, where)
        n_held_back = len(unheld) - len(self.policy.good_enough(unheld))
        again = n_held_back or self.policy.by_places
        return (self.retrieve(query, top_k, where=where) if again else unheld), n_held_back

    def filing(self, task: Task) -> tuple[str | None, tuple[str, ...]]:
        """(domain, tags) of what a task teaches; None: `memory.domain` gives none."""
        tags = [task.type if tag == OF_TASK else tag for tag in self.tags or ()]
        domain = task.type if self.domain == OF_TASK else self.domain
        return domain, tuple(dict.fromkeys(normal_tag(tag) for tag in tags if tag.strip()))

    def prefetch(self, query: str) -> None:
        """A task with this query comes next: embed it meanwhile."""
        self.embedder.prefetch(query)

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
        unit, key   where they are to be others than the bank's
        """
        # Also for an empty bank: an embedder that breaks must do so before the attempt, not when its record is added.
        vector = self.embedder.embed([query])[0] if isinstance(query, str) else query
        where, unit, key = self._within(where), unit or self.unit, key or self.key
        exclude = None if self.allow_self else exclude_task or None
        kinds = {"query": (False,), "item": (True,), "both": (False, True)}[key]
        hits = self._search.nearest(vector, k, where, exclude, kinds=kinds, distinct=unit == "record")
        if key == "both":
            hits = in_order(hits)
            hits = best_of_each(hits) if unit == "record" else hits
        found = scored(hits, unit)
        return (each_item_once(found) if (key, unit) == ("both", "item") else found)[:k]

    def neighbours(self, id: str, k: int) -> list[Scored]:
        """The k records nearest to a record's query, itself left out. UserError for an unknown id."""
        import numpy as np

        record = self.existing(id)
        vector = np.array(record.query_embedding or self.embedder.embed([record.original_query])[0], dtype=np.float32)
        hits = self.nearest(vector, k + 1, unit="record", key="query")
        return [hit for hit in hits if hit.record.id != id][:k]

    def lexical(
        self, query: str, k: int, exclude_task: str | None = None, where: Filter | None = None, everyone: bool = False
    ) -> list[Scored]:
        """The k records whose query and items match the words of a text best, any of them: BM25 as in SQLite's FTS5.

        Higher is better. everyone: of all namespaces, as `Filter.everyone`.
        """
        where = replace(where or Filter(), everyone=True) if everyone else where
        words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))[:MAX_WORDS]
        if not words or k <= 0:
            return []
        exclude = None if self.allow_self else exclude_task
        return scored(self._search.lexical(words, k, self._within(where), exclude), "record", by_words=True)

    def add(
        self,
        record: MemoryRecord | str,
        trajectory: Trajectory | None = None,
        items: Sequence[Lesson] = (),
        *,
        verdict: Verdict | None = None,
        task_id: str = "",
        shown: Sequence[str] | None = None,
        did: Did | None = None,
    ) -> bool:
        """Append a record to the bank's namespace: add(record), or add(query, trajectory, items), which makes it.

        Adding the same again changes nothing and returns False.

        shown     ids of what its task had retrieved, for `memory.hygiene`; None where that is not known
        did       what the attempts did, for `memory.hygiene`; None where that is not known
        verdict   of a query's attempt; None: the env's own evaluation, and the record says so (label source `oracle`)
        task_id   which never retrieves it; "": every task with the same query
        """
        if isinstance(record, str):
            task = Task(id=task_id or content_id("task", record), query=record)
            verdict = verdict or Verdict(label="success" if trajectory.success else "failure", source="oracle")
            made = record_of(0, task, trajectory, verdict, tuple(items))
            record = replace(made, tick=self.tick() - self._began())  # add_many adds where the run began
        return self.add_many([record], shown=shown, did=did) == 1

    def add_from(self, record: MemoryRecord, did: Did, *, shown: Sequence[str] | None = None) -> bool:
        return self.add(record, shown=shown, did=did)

    def add_many(
        self,
        records: list[MemoryRecord],
        vectors: Any = None,
        reason: str = "add",
        *,
        keep_namespaces: bool = False,
        shown: Sequence[str] | None = None,
        did: Did | None = None,
        feedback: EpisodeFeedback | None = None,
    ) -> int:
        """Append records in one transaction; returns how many were new.

        vectors    where known: a float32 row for each record, or None for one that is set aside and has none
        feedback   counted in the same transaction if any was new: a crash parts what is stored from it no more
        """
        if not records:
            return 0
        own = {} if keep_namespaces else {"namespace": self.namespace}
        began, noted = self._began(), self.provenance
        records = [
            replace(r, tick=began + r.tick, created_at=r.created_at or now(), provenance=noted | r.provenance, **own)
            for r in records
        ]
        if self.hygiene is not None:
            more = {"did": did} if did is not None and self.hygiene.provenance else {}
            records = [self.hygiene.screen(record, self.of(record.namespace), shown, **more) for record in records]
        if vectors is None:
            vectors = self.embedder.embed([record.original_query for record in records])
        accomplices = [id for record in records for id in self._accomplices(record)]
        with self.change(reason) as change:
            for id in accomplices:
                change.update(id, status="quarantined", trust=0.0)
            rows = (
                (r, *((None, ()) if v is None else (v.tobytes(), self._stored_items(r))))
                for r, v in zip(records, vectors)
            )
            if feedback is not None:
                if added := change.put_all(rows):
                    self.count_within(change, feedback)  # which reads what was put
                return added
            added_later = change.put_last(rows)
        return added_later()

    @contextmanager
    def change(self, reason: str, wait_s: float | None = None) -> Iterator[Change]:
        """Change records: `with bank.change("why") as change`. One transaction, one journal entry, all or nothing.

        wait_s   seconds that it waits for other writers, then it is a Busy; None: as long as SQLite does (BUSY_S)
        """
        if self.read_only:
            raise UserError(f"the bank {self.path} is opened for reading only.")
        with self._store.change(reason, self.namespace, self._embed, self.embedder.name, wait_s) as change:
            yield change
            check_key(change, self.key, self.path)
        if change.erased:
            self._store.empty_log()
        if change.brought_back:
            self._embed_missing()

    def erase(self, change: Change, ids: tuple[str, ...]) -> None:
        """Delete records for good inside a change, and remember their ids alone."""
        self.history.erase(change, ids)

    def alone(self, at: str) -> AbstractContextManager[bool]:
        """Whether no other process does meanwhile what `at` names; True where that cannot be known."""
        return self._store.alone(at)

    def _accomplices(self, record: MemoryRecord) -> list[str]:
        """The stored records that are to be quarantined together with a screened one."""
        if self.hygiene is None or record.status != "quarantined":
            return []
        return self.hygiene.accomplices(record, self.of(record.namespace))

    def _began(self) -> int:
        """The tick of the run's first task, kept in the bank: the same again when the run is resumed."""
        if not self.run:
            return 0
        key = f"began:{self.run}"
        if (known := self.fact(key)) is None:
            known = str(self.tick() + 1 if len(self) else 0)
            with self.change("a run begins") as change:
                change.fact(key, known)
        return int(known)

    def vectors_of(self, record: MemoryRecord) -> tuple[bytes, Items]:
        """(its vector, its items'): what `Change.put` takes beside a record, made before the transaction begins."""
        return self._embed(record)

    def reembed(self, key: str | None = None) -> int:
        """Make the vectors of every record anew, everyone's; returns how many records. key: another `key` from now on.

        Searches compute what is not stored, a server at each start; this stores it. No journal entry: texts stay.
        UserError for a role in PostgreSQL that is bound to some tenants.
        """
        before, self.key = self.key, key or self.key
        try:
            return self._store.reembed(self._embed, partial(note_key, key=self.key))
        except BaseException:
            self.key = before
            raise

    def learn(self, episode: dict[str, Any] | None) -> None:
        """What a finished episode, a row of episodes.jsonl, teaches beyond its record; None: what a crash cut off."""
        self.learn_from(None if episode is None else feedback_of(episode))

    def learn_from(self, feedback: EpisodeFeedback | None) -> None:
        """`learn`, of what a server knows of an episode. Nothing unless `consolidate` is on.

        But how a use ended is noted that was counted when it was shown (`count_shown`).
        """
        if self.consolidate is not None:
            self.consolidate.learn(self, feedback)
        elif feedback is not None and feedback.counted:
            self._count_uses(dict.fromkeys(feedback.used, 0), feedback.label, "uses judged")

    def count_within(self, change: Change, feedback: EpisodeFeedback) -> None:
        """`learn_from` within a change, but for the rounds, which `learn(None)` runs."""
        if self.consolidate is not None:
            self.consolidate.count(self, change, feedback)
        elif feedback.counted:
            self._revise_uses(change, dict.fromkeys(feedback.used, 0), feedback.label)

    def count_shown(self, ids: Iterable[str] | Mapping[str, int]) -> bool:
        """Count that records were shown to an agent: n_used and last_used, in one transaction; unknown ids are ignored.

        For a server, which calls it after a retrieval. That must not wait: where others keep the bank busy for longer
        than SHOWN_WAIT_S, nothing is counted, a warning says so and False is returned. How the use ended is for
        `learn` to say. With `uses=cited` nothing is counted here.

        ids   of the records, each shown once; or {id: how often it was shown}
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
        """shown: {id: showings to count}; 0 where they were counted before."""
        if self.read_only or not shown:
            return
        with self.change(reason, wait_s) as change:
            self._revise_uses(change, shown, label)

    def _revise_uses(self, change: Change, shown: Mapping[str, int], label: str | None) -> None:
        if shown:  # else the clock need not be read
            rules = self.consolidate or Consolidates
            fields = after_use(self.moment(), label, confidence=rules.confidence, ticks_per_day=rules.ticks_per_day)
            change.count(shown, lambda id, record: fields(record, shown[id]))

    def spent(self) -> Usage | None:
        """What the models that `consolidate` and `hygiene` asked have cost in this run; None where neither may ask."""
        asked = [plugin.usage(self) for plugin in (self.consolidate, self.hygiene) if plugin is not None]
        spent = [usage for usage in asked if usage is not None]
        return sum(spent, Usage()) if spent else None

    def close(self) -> None:
        """Wait for what runs in the background, save the index where that is worth it, and close the file."""
        if not self._closed:
            self._closed = True
            with closing(self._store):
                if self.consolidate is not None:
                    self.consolidate.close()
                self._search.save()

    def compact(self) -> tuple[int, int]:
        """Give back the room that deleted rows, dropped vectors above all, left in the file; its bytes before, after.

        Nothing but this does: SQLite keeps that room for what is added next.
        """
        return self._store.compact()

    def size(self) -> int:
        """Bytes of the whole bank, with its journal and its indexes."""
        return self._store.size()

    @property
    def remains(self) -> str:
        """What `forget` cannot reach, as one sentence; "" where it reaches everything."""
        return self._store.remains

    def verify_indexes(self) -> Iterator[str]:
        """Make anew what follows from the records, but the index's file, which is checked whenever it is read.

        Yields a line for each part. UserError on damage.
        """
        lost = self._store.embed_missing(self._embed)
        dropped = self._store.of(None).rows(
            "SELECT count(*) FROM records WHERE rowid NOT IN (SELECT rowid FROM vectors)"
        )[0][0]
        found = f"{lost} had no vector and have one now" if lost else "each with its vector"
        yield f"{len(self)} records, {found}" + (f", but for {dropped} that are set aside" if dropped else "")
        yield from self._store.rebuild()

    def _embed_missing(self) -> None:
        """Vectors for what came back without one: by a repair, a rollback, an unmerge, a new status.

        Without a working embedder these records wait for the next opening; until then only words find them.
        """
        if not self.read_only and self._store.meta("unembedded"):
            try:
                self._store.embed_missing(self._embed)
            except (InfraError, UserError) as error:
                log.warning(f"the bank {self.path}: records that came back wait for their vectors: {error}")

    def _within(self, where: Filter | None) -> Filter:
        """A filter with its namespace filled in."""
        where = where or Filter()
        return where if where.namespace is not None else replace(where, namespace=self.namespace)

    def _embed(self, record: MemoryRecord) -> tuple[bytes, Items]:
        """(query's vector, items' vectors) of a record, as they are stored."""
        return self.embedder.embed([record.original_query])[0].tobytes(), self._stored_items(record)

    def _stored_items(self, record: MemoryRecord) -> Items:
        """The item vectors to store: none, unless the bank is searched by them."""
        return [] if self.key == "query" else self._item_vectors(record)

    def _item_vectors(self, record: MemoryRecord) -> Items:
        """(place, vector) of each text that the items are found by; `place` as in core/memory/store/hits.py."""
        texts = item_texts(record, self._items_by if self.key == "query" else self.key)
        rows = self.embedder.embed([text for _, text in texts]) if texts else ()
        return [(place, row.tobytes()) for (place, _), row in zip(texts, rows)]
