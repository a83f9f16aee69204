"""Search by vectors: indexes that follow the store, and the records of what they find."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.memory.filter import Filter
from core.memory.index import VectorIndex
from core.memory.store import State, Store
from core.types import MemoryRecord, Scored

Hit = tuple[int, int, float]  # (rowid, an item's place or -1, score)


class Search:
    """One index of the records' queries and, when it is asked for, one of their items. Thread-safe.

    item_vectors gives the vectors (float32 bytes) of a record's items where the store has none.
    """

    def __init__(self, store: Store, item_vectors: Callable[[MemoryRecord], list[bytes]]) -> None:
        self._store = store
        self._item_vectors = item_vectors
        self._lock = threading.Lock()  # an addition beside a search is unsafe in FAISS
        self._indexes: dict[bool, tuple[int, State, VectorIndex]] = {}

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude: set[int], *, items: bool, distinct: bool
    ) -> list[Hit]:
        """The k nearest of the records' queries, or of their items; distinct: only the best of each record."""
        with self._lock:
            return self._index(items, len(vector)).search(vector, k, where, exclude, distinct)

    def scored(self, hits: list[Hit], unit: str) -> list[Scored]:
        """Hits with their records; for unit=item, a record with nothing but the item that was found."""
        rowids = list(dict.fromkeys(rowid for rowid, _, _ in hits))
        records = self._store.get(rowids)
        found = []
        for rowid, place, score in hits:
            if rowid not in records:  # removed by another process since the index was searched
                continue
            record = records[rowid]
            if unit == "record":
                found.append(Scored(record=record, score=score))
                continue
            items = record.items if place < 0 else record.items[place : place + 1]
            found += [Scored(record=replace(record, items=(item,)), score=score) for item in items]
        return found

    def _index(self, items: bool, dim: int) -> VectorIndex:
        """An index, brought up to the store: what changed is hidden and entered anew, what was added comes behind."""
        version = self._store.version()
        seen, state, index = self._indexes.get(items, (None, (0, 0), None))
        if version == seen:
            return index
        index = index or VectorIndex(dim)
        with self._store.snapshot() as upto:
            touched = {rowid for rowid in self._store.touched(state[1], upto[1]) if rowid <= state[0]}
            index.drop(touched)
            for rowid in sorted(touched):
                self._enter(index, rowid - 1, rowid, items)
            self._enter(index, state[0], upto[0], items)
        self._indexes[items] = (version, upto, index)
        return index

    def _enter(self, index: VectorIndex, after: int, upto: int, items: bool) -> None:
        index.add(self._store.vectors(after, upto, items))
        if items:
            for rowid, *attributes, record in self._store.without_items(after, upto):
                vectors = self._item_vectors(record)
                index.add((rowid, place, *attributes, vector) for place, vector in enumerate(vectors))
