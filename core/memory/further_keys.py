"""Further keys of a record: the queries of the records that were merged into it or superseded as its duplicates.

A task like one of theirs finds the record with the score that the other one had. They follow from the bank's links, so
that an undone merge, a rollback, an import or a deletion needs nothing else. Vectors are compared exactly, in RAM.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from core.memory.filter import STATUSES, Filter
from core.memory.store.changes import IDS
from core.memory.store.contract import BankStore, Search
from core.memory.store.hits import Hit, RowHit, best_of_each, in_order
from core.memory.store.schema import placeholders, to_record
from core.types import MemoryRecord

log = logging.getLogger(__name__)

MOST_MISSING = 500  # max. dropped vectors (keep_vectors=false) that are embedded again after each opening
# In a database server another process's merge may go unnoticed for so long, which saves a round trip each time.
FRESH_S = 1.0
AT_ONCE = 50  # least number of keys whose records are looked up together

_STATE = "SELECT (SELECT max(seq) FROM undo_links), (SELECT value FROM meta WHERE key = 'forgot')"
_PAIRS = (
    "SELECT a.rowid, b.rowid FROM links l JOIN records a ON (a.namespace, a.id) = (l.namespace, l.{}) "
    "JOIN records b ON (b.namespace, b.id) = (l.namespace, l.{}) WHERE l.relation = '{}'"
)
PAIRS = (_PAIRS.format("source", "target", "duplicate_of"), _PAIRS.format("target", "source", "supersedes"))


SearchByWords = Callable[[int, Filter], list[Hit]]  # (k, where) -> the best hits for a query


@dataclass
class _Keys:
    """The further keys of one namespace, or of all, as of `state`.

    heirs   {rowid of a record: rowids of the records that hold its lessons now}, through chains of merges
    rows    {items: (rowids int64 (n,), vectors float32 (n, d))} of the keys' query vectors, or their items' vectors
    """

    version: int | None = None
    checked: float = -FRESH_S  # time.monotonic()
    state: tuple = ()
    heirs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    rows: dict[bool, tuple[Any, Any]] = field(default_factory=dict)


class FurtherKeys:
    """Finds records by their further keys. Thread-safe; shared by the views of a bank.

    embed   computes the vectors of a record that were dropped: (record, of its items) -> float32 bytes
    """

    def __init__(self, store: BankStore, search: Search, embed: Callable[[MemoryRecord, bool], list[bytes]]) -> None:
        self._store, self._search, self._embed = store, search, embed
        self._lock = threading.Lock()
        self._known: dict[str | None, _Keys] = {}
        self._vectors: dict[bool, dict[int, list[bytes]]] = {False: {}, True: {}}
        self._warned = False

    def nearest(
        self,
        hits: list[Hit],
        vector: Any,
        k: int,
        where: Filter,
        exclude_task: str | None,
        kinds: tuple[bool, ...],
    ) -> list[Hit] | None:
        """The hits, best first, with those by further keys among them; None if these add nothing.

        The arguments are those of `Search.nearest`, and its hits. A record may be there several times.
        """
        import numpy as np

        keys = self._keys(where)
        if not keys.heirs or k <= 0 or not vector.any():
            return None
        least = min((hit.score for hit in hits), default=-1.0) if len(hits) >= k * len(kinds) else -1.0
        found: list[Hit] = []
        for items in kinds:
            rowids, vectors = self._rows(keys, items, len(vector))
            scores = np.round(np.einsum("ij,j->i", vectors, vector).astype(np.float64), 6)
            order = np.argsort(-scores, kind="stable")
            order = order[scores[order] >= least]
            ranked = ((int(rowids[place]), -1, float(scores[place])) for place in order)
            found += self._first(ranked, keys, k, where, exclude_task)
        return in_order([*hits, *found]) if found else None

    def lexical(self, search: SearchByWords, k: int, where: Filter, exclude_task: str | None) -> list[Hit]:
        """The hits of a search by words, with those by the words of records whose lessons others hold now."""
        hits, keys, n = search(k, where), self._keys(where), k
        if not keys.heirs:
            return hits
        anywhere = Filter(namespace=where.namespace, everyone=where.everyone, statuses=STATUSES)
        while True:
            gone = search(n, anywhere)
            found = self._first((hit[:3] for hit in gone if hit.rowid in keys.heirs), keys, k, where, exclude_task)
            if len(gone) < n or len(best_of_each(found)) >= k:
                return best_of_each(in_order([*hits, *found]))[:k]
            n *= 4

    def look_again(self) -> None:
        """Look at the links at the next search: this process has changed some."""
        with self._lock:
            for known in self._known.values():
                known.version, known.checked = -1, -FRESH_S

    def clear(self) -> None:
        """Read everything anew: the vectors were made anew."""
        with self._lock:
            self._known, self._vectors = {}, {False: {}, True: {}}

    def _first(
        self, ranked: Iterator[RowHit], keys: _Keys, k: int, where: Filter, exclude_task: str | None
    ) -> list[Hit]:
        """The hits of the best k or more records that these keys lead to, of those that a search may return."""
        found: list[Hit] = []
        while part := list(islice(ranked, max(AT_ONCE, 2 * k))):
            allowed = self._allowed({hit[0] for hit in part}, where, exclude_task)
            to = [(heir, -1, score) for rowid, _, score in part if rowid in allowed for heir in keys.heirs[rowid]]
            found = best_of_each([*found, *self._search.those(best_of_each(to), where, exclude_task)])
            if len(found) >= k:
                break
        return found

    def _allowed(self, rowids: Iterable[int], where: Filter, exclude_task: str | None) -> set[int]:
        """Those of these keys that are not from the task that searches: what it taught leads it to nothing, either."""
        if exclude_task is None:
            return set(rowids)
        anywhere = Filter(namespace=where.namespace, everyone=where.everyone, statuses=STATUSES)
        return {hit.rowid for hit in self._search.those([(row, -1, 0.0) for row in rowids], anywhere, exclude_task)}

    def _keys(self, where: Filter) -> _Keys:
        """The further keys as of now."""
        store, space = self._store_of(where), None if where.everyone else where.namespace
        with self._lock:
            known, version, now = self._known.get(space), store.version(), time.monotonic()
            fresh = version is not None or (known is not None and now - known.checked < FRESH_S)
            if known is not None and known.version == version and fresh:
                return known
            state = store.rows(_STATE)[0]
            if known is None or known.state != state:
                known = _Keys(state=state, heirs=_closure(self._pairs(store, space)))
                self._known[space] = known
            known.version, known.checked = version, now
            return known

    def _store_of(self, where: Filter) -> BankStore:
        return self._store.of(None if where.everyone else where.namespace)

    def _pairs(self, store: BankStore, space: str | None) -> list[tuple[int, int]]:
        """(rowid of a record, rowid of the one that took its lessons over), by each link."""
        within, values = ("", ()) if space is None else (" AND l.namespace = $1", (space,))
        return sorted(tuple(pair) for query in PAIRS for pair in store.rows(query + within, values))

    def _rows(self, keys: _Keys, items: bool, dim: int) -> tuple[Any, Any]:
        """(rowids, vectors) of the further keys."""
        import numpy as np

        with self._lock:
            if items not in keys.rows:
                known = self._vectors[items]
                self._load([rowid for rowid in keys.heirs if rowid not in known], items)
                pairs = [(rowid, row) for rowid in keys.heirs for row in known.get(rowid, ())]
                vectors = np.frombuffer(b"".join(row for _, row in pairs), dtype=np.float32).reshape(-1, dim)
                keys.rows[items] = np.array([rowid for rowid, _ in pairs], dtype=np.int64), vectors
            return keys.rows[items]

    def _load(self, rowids: list[int], items: bool) -> None:
        """Read the vectors of these records; those that were dropped are computed, as far as they are not too many."""
        store, known = self._store.of(None), self._vectors[items]
        table = "item_vectors v ON v.record" if items else "vectors v ON v.rowid"
        query = f"SELECT r.rowid, v.vector FROM records r JOIN {table} = {store.dialect.vector_row}"
        for rowid, vector in _in_parts(store, query, rowids):
            known.setdefault(rowid, []).append(bytes(vector))
        missing = [rowid for rowid in rowids if rowid not in known]
        if len(missing) > MOST_MISSING and not self._warned:
            self._warned = True
            log.warning(
                f"{len(missing) - MOST_MISSING} lessons that were merged or superseded have no vectors any more "
                "(keep_vectors=false): tasks like theirs find the record that holds them by its own query alone."
            )
        known |= {rowid: [] for rowid in missing[:-MOST_MISSING]}
        for row in _in_parts(store, store.dialect.records, missing[-MOST_MISSING:]):
            known[row[0]] = self._embed(to_record(row, store.path), items)


def _in_parts(store: BankStore, query: str, rowids: Iterable[int]) -> Iterator[tuple]:
    """The rows of a query on records `r` for these rowids, of which one statement holds a part."""
    rowids = list(rowids)
    for at in range(0, len(rowids), IDS):
        some = tuple(rowids[at : at + IDS])
        yield from store.rows(f"{query} WHERE r.rowid IN ({placeholders(len(some))})", some)


def _closure(pairs: list[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    """{record: all records that its lessons have passed to}, in chains: a duplicate's keeper may have been merged."""
    direct: dict[int, list[int]] = {}
    for gone, heir in pairs:
        direct.setdefault(gone, []).append(heir)
    found = {}
    for gone in direct:
        reached, waiting = dict.fromkeys(direct[gone]), list(direct[gone])
        while waiting:
            new = [heir for heir in direct.get(waiting.pop(), ()) if heir not in reached]
            reached |= dict.fromkeys(new)
            waiting += new
        reached.pop(gone, None)
        found[gone] = tuple(reached)
    return found
