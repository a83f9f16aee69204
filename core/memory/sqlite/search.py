"""Search by vectors: indexes that follow the store, and the records of what they find."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.memory.filter import Filter
from core.memory.sqlite import index as index_file
from core.memory.sqlite.index import VectorIndex
from core.memory.sqlite.store import State, Store
from core.memory.store.changes import Items
from core.memory.store.hits import Hit, with_records
from core.types import MemoryRecord, Scored

log = logging.getLogger(__name__)

CHUNK = 20_000  # records read at once
WHOLE = 4_096  # records of a bank that is read at once
KEPT = 16_384  # records kept in memory: 200 MB with vectors of 384 numbers
ROTTEN = 0.2  # share of hidden entries from which an index is made anew


@dataclass
class _Followed:
    """An index and how far it follows the store."""

    index: VectorIndex
    state: State
    version: int = -1
    saved: int = 0  # entries that the cache file holds


class Search:
    """One index of the records' queries and, when it is asked for, one of their items. Thread-safe.

    item_vectors gives (place, vector as float32 bytes) of a record's items where the store has none; of more records at
    once than most_missing it is not asked, and these are not found by their items. None: of however many.
    items_by: the memory.key that they are made for.
    """

    def __init__(
        self,
        store: Store,
        graph: bool,
        item_vectors: Callable[[MemoryRecord], Items],
        read_only: bool,
        most_missing: int | None = None,
        *,
        items_by: str = "item",
    ) -> None:
        self._items_by = items_by
        self._store, self._graph, self._read_only = store, graph, read_only
        self._item_vectors, self._most_missing = item_vectors, most_missing
        self._lock = threading.RLock()  # an addition beside a search is unsafe in FAISS
        self._indexes: dict[bool, _Followed] = {}
        self._records_lock = threading.Lock()
        self._records: dict[int, MemoryRecord] = {}
        self._records_version, self._records_upto = -1, 0

    def nearest(
        self,
        vector: Any,
        k: int,
        where: Filter,
        exclude_task: str | None,
        *,
        kinds: tuple[bool, ...],
        distinct: bool,
    ) -> tuple[list[Hit], int]:
        """The k nearest of each kind, as of one state of the store, and the version of the store that they are from.

        kinds      False: of the records' queries; True: of their items
        distinct   of a record's items only the best
        """
        with self._lock:
            self._follow(kinds, len(vector))
            # Read no sooner: what another process has just added of this very task is left out, too.
            exclude = self._store.rowids_below(where)
            if exclude_task is not None:
                exclude |= self._store.rowids_of_task(where, exclude_task)
            hits = []
            for items in kinds:
                hits += self._indexes[items].index.search(vector, k, where, exclude, distinct and items)
            return hits, self._indexes[kinds[0]].version

    def scored(self, hits: list[Hit], unit: str, version: int | None = None, *, by_words: bool = False) -> list[Scored]:
        """Hits with their records; for unit=item, a record with nothing but the item that was found.

        by_words   the scores are no cosines
        """
        records = self._get([rowid for rowid, _, _ in hits], self._store.version() if version is None else version)
        return with_records(hits, records, unit, by_words=by_words)

    def save(self) -> None:
        """Write the cache files that are worth it and not up to date."""
        with self._lock:
            for items, followed in self._indexes.items():
                size, forgot = len(followed.index), followed.state[2] != self._store.state()[2]
                if not (self._read_only or forgot) and size >= index_file.WORTH and size - followed.saved > size // 50:
                    self._save(items, followed)

    def _get(self, rowids: list[int], version: int) -> dict[int, MemoryRecord]:
        """Records by rowid: those of a small bank are all kept in memory, of a larger one those last read."""
        with self._records_lock:
            if version != self._records_version:
                upto = self._store.state()[1]
                for rowid in self._store.touched(self._records_upto, upto, found=False):
                    self._records.pop(rowid, None)
                self._records_version, self._records_upto = version, upto
            found = {rowid: self._records[rowid] for rowid in rowids if rowid in self._records}
            if missing := [rowid for rowid in dict.fromkeys(rowids) if rowid not in found]:
                whole = not self._records and self._store.count() <= WHOLE
                read = self._store.get(None if whole else missing)
                found |= {rowid: read[rowid] for rowid in missing if rowid in read}
                self._records |= read
                while len(self._records) > KEPT:
                    del self._records[next(iter(self._records))]  # the one that was read first
            return found

    def _follow(self, kinds: tuple[bool, ...], dim: int) -> None:
        """Bring indexes up to the store, all to one state of it."""
        version = self._store.version()
        known = {items: self._indexes.get(items) or self._open(items, dim) for items in kinds}
        if all(followed.version == version for followed in known.values()):
            return
        merged = {items: followed.index.merged for items, followed in known.items()}
        with self._store.snapshot() as upto:
            for items, followed in known.items():
                self._indexes.pop(items, None)  # should it break half-way, the next search begins with a new one
                followed.index = self._at(upto, followed, items, dim)
                followed.state, followed.version = upto, version
                self._indexes[items] = followed
        for items, followed in known.items():
            grown = followed.index.merged > merged[items] and len(followed.index) >= index_file.WORTH
            if self._graph and grown and not self._read_only:
                self._save(items, followed)  # a graph takes long to make

    def _at(self, upto: State, followed: _Followed, items: bool, dim: int) -> VectorIndex:
        """An index at a state: what changed is hidden and entered anew, what was added comes behind."""
        index, state = followed.index, followed.state
        touched = {rowid for rowid in self._store.touched(state[1], upto[1]) if rowid <= state[0]}
        index.drop(touched)
        rotten = index.dead() > ROTTEN and len(index) > index_file.WORTH
        if rotten or state[2] != upto[2]:  # the second: what was forgotten must not even lie hidden in it
            index, state, touched = VectorIndex(dim, self._graph), (0, 0, upto[2]), set()
        for rowid in sorted(touched):
            self._enter(index, rowid - 1, rowid, items)
        for after in range(state[0], upto[0], CHUNK):
            self._enter(index, after, min(after + CHUNK, upto[0]), items)
        return index

    def _enter(self, index: VectorIndex, after: int, upto: int, items: bool) -> None:
        index.add(self._store.vectors(after, upto, items))
        if items:
            missing = self._store.without_items(after, upto)
            if self._most_missing is not None and len(missing) > self._most_missing:
                command = f"python -m core.memory reembed {self._store.path}"
                log.warning(f"{len(missing)} records are found by their query alone until you run: {command}")
                return
            for rowid, attributes, record in missing:
                vectors = self._item_vectors(record)
                index.add([(rowid, place, *attributes, vector) for place, vector in vectors])

    def _open(self, items: bool, dim: int) -> _Followed:
        """The index from its file, where that fits, else an empty one."""
        facts = {"embedder": self._store.meta("embedder"), "dim": dim, "graph": self._graph}
        facts["items"] = items and self._items_by
        loaded = index_file.load(index_file.path_of(self._store.path, items), facts)
        if loaded is not None:
            index, header = loaded
            seq, at = header["journal"]
            if self._store.rows("SELECT 1 FROM journal WHERE seq = ? AND at = ?", (seq, at)):
                return _Followed(index, tuple(header["state"]), saved=len(index))
        return _Followed(VectorIndex(dim, self._graph), (0, 0, None))

    def _save(self, items: bool, followed: _Followed) -> None:
        [entry] = self._store.rows("SELECT seq, at FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
        facts = {"embedder": self._store.meta("embedder"), "items": items and self._items_by}
        facts |= {"state": followed.state, "journal": entry}
        index_file.save(index_file.path_of(self._store.path, items), followed.index, facts)
        followed.saved = len(followed.index)
