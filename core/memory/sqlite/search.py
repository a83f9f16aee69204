"""Search in a bank's file: vector indexes synced to it, and the records of their hits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.memory.filter import Filter
from core.memory.sqlite import index as index_file
from core.memory.sqlite.database import STATE, SqliteDatabase, State
from core.memory.sqlite.index import Entry, VectorIndex
from core.memory.store.contract import SearchSettings
from core.memory.store.hits import Hit, RowHit, best_of_each
from core.memory.store.keys import QUERY
from core.memory.store.schema import in_parts, placeholders, to_record
from core.memory.store.visible import BELIEVED, Conditions, in_lineage
from core.types import MemoryRecord

CHUNK = 20_000  # records read at once
WHOLE = 4_096  # banks up to this size (records) are cached whole
KEPT = WHOLE  # records of a larger bank kept in memory: 50 MB with vectors of 384 numbers
MOST_DELETED = 0.2  # share of deleted entries from which an index is rebuilt


@dataclass
class _SyncedIndex:
    """An index and the state it is synced to."""

    index: VectorIndex
    state: State
    version: int = -1  # data_version of the database at that state
    saved: int = 0  # entries in the cache file


class IndexSearch:
    """Search in SQLite: an index for each kind of keys that a search needs."""

    def __init__(self, database: SqliteDatabase, settings: SearchSettings) -> None:
        self._database, self._settings = database, settings
        self._lock = threading.RLock()  # an index allows no add during a search
        self._indexes: dict[str, _SyncedIndex] = {}
        self._records_lock = threading.Lock()
        self._records: dict[int, MemoryRecord] = {}
        self._records_version, self._records_upto = -1, 0

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, *, kinds: tuple[str, ...], distinct: bool
    ) -> list[Hit]:
        with self._lock:
            self._sync(kinds, len(vector))
            # Read after syncing, so that records just added for this task are excluded too.
            origins = self._from_task(where, exclude_task) if exclude_task is not None else set()
            excluded = origins | self._doubted(where)
            found: list[RowHit] = []
            for kind in kinds:
                index = self._indexes[kind].index
                found += index.search(vector, k, where, excluded, origins, distinct or kind == QUERY)
            version = self._indexes[kinds[0]].version
        return self._with_records(found, version)

    def those(self, hits: list[RowHit], where: Filter, exclude_task: str | None) -> list[Hit]:
        conditions = Conditions()
        led: dict[int, list[int]] = {}
        terms = " AND ".join(conditions.visible(where, exclude_task))
        terms += f" AND (o.rowid = r.rowid OR {conditions.not_from(exclude_task, 'o')})"
        for some in in_parts({hit[0] for hit in hits}):
            among = placeholders(len(some), after=len(conditions.values))
            query = (
                "SELECT o.rowid, r.rowid FROM records o LEFT JOIN heirs h ON h.origin = o.rowid "
                f"JOIN records r ON r.rowid = coalesce(h.record, o.rowid) WHERE {terms} AND o.rowid IN ({among}) "
                "ORDER BY r.rowid"
            )
            for origin, record in self._database.rows(query, (*conditions.values, *some)):
                led.setdefault(origin, []).append(record)
        led_hits = ((record, place, score) for rowid, place, score in hits for record in led.get(rowid, ()))
        return self._with_records(best_of_each(led_hits), self._database.version())

    def save(self) -> None:
        """Write the cache files that are out of date, of indexes large enough to be worth it."""
        with self._lock:
            for kind, synced in self._indexes.items():
                size, forgot = len(synced.index), synced.state[2] != self._state()[2]
                if (
                    not (self._settings.read_only or forgot)
                    and size >= index_file.WORTH
                    and size - synced.saved > size // 50
                ):
                    self._save(kind, synced)

    def _with_records(self, found: list[RowHit], version: int) -> list[Hit]:
        """Hits with their records; hits whose record was removed meanwhile are left out."""
        records = self._get([rowid for rowid, _, _ in found], version)
        return [Hit(*place, records[place[0]]) for place in found if place[0] in records]

    def _get(self, rowids: list[int], version: int) -> dict[int, MemoryRecord]:
        """{rowid: record}, from memory where possible: a small bank is cached whole, of a larger one the last KEPT."""
        with self._records_lock:
            if version != self._records_version:
                upto = self._state()[1]
                for rowid in self._touched(self._records_upto, upto, found=False):
                    self._records.pop(rowid, None)
                self._records_version, self._records_upto = version, upto
            found = {rowid: self._records[rowid] for rowid in rowids if rowid in self._records}
            if missing := [rowid for rowid in dict.fromkeys(rowids) if rowid not in found]:
                whole = not self._records and self._database.count() <= WHOLE
                read = self._read(None if whole else missing)
                found |= {rowid: read[rowid] for rowid in missing if rowid in read}
                self._records |= read
                while len(self._records) > KEPT:
                    del self._records[next(iter(self._records))]  # the oldest entry
            return found

    def _sync(self, kinds: tuple[str, ...], dim: int) -> None:
        """Sync the indexes of these kinds to the store, all to the same state."""
        version = self._database.version()
        known = {kind: self._indexes.get(kind) or self._open(kind, dim) for kind in kinds}
        if all(synced.version == version for synced in known.values()):
            return
        merged = {kind: synced.index.merged for kind, synced in known.items()}
        with self._database.read_transaction():  # all reads inside see the same state
            upto = self._state()
            for kind, synced in known.items():
                self._indexes.pop(kind, None)  # if this fails half-way, the next search starts with a new index
                synced.index = self._updated(upto, synced, kind, dim)
                synced.state, synced.version = upto, version
                self._indexes[kind] = synced
        for kind, synced in known.items():
            grown = synced.index.merged > merged[kind] and len(synced.index) >= index_file.WORTH
            if self._settings.approximate and grown and not self._settings.read_only:
                self._save(kind, synced)  # a graph takes long to build

    def _updated(self, upto: State, synced: _SyncedIndex, kind: str, dim: int) -> VectorIndex:
        """The index synced to `upto`: changed records are marked deleted and added again, new records are appended."""
        index, state = synced.index, synced.state
        touched = {rowid for rowid in self._touched(state[1], upto[1]) if rowid <= state[0]}
        touched |= {rowid for rowid in self._led_to(touched) if rowid <= state[0]}
        index.mark_deleted(touched)
        too_many = index.share_deleted() > MOST_DELETED and len(index) > index_file.WORTH
        if too_many or state[2] != upto[2]:  # after a forget or erase, rebuild so that the data is really gone
            index, state, touched = VectorIndex(dim, self._settings.approximate), (0, 0, upto[2]), set()
        for rowid in sorted(touched):
            index.add(self._entries(rowid - 1, rowid, kind))
        for after in range(state[0], upto[0], CHUNK):
            index.add(self._entries(after, min(after + CHUNK, upto[0]), kind))
        return index

    def _open(self, kind: str, dim: int) -> _SyncedIndex:
        """The index from its file if that fits, else an empty one."""
        facts = {"embedder": self._database.meta("embedder"), "dim": dim, "graph": self._settings.approximate}
        loaded = index_file.load(index_file.path_of(self._database.path, kind), facts | {"kind": kind})
        if loaded is not None:
            index, header = loaded
            seq, at = header["journal"]
            if self._database.rows("SELECT 1 FROM journal WHERE seq = $1 AND at = $2", (seq, at)):
                return _SyncedIndex(index, tuple(header["state"]), saved=len(index))
        return _SyncedIndex(VectorIndex(dim, self._settings.approximate), (0, 0, None))

    def _save(self, kind: str, synced: _SyncedIndex) -> None:
        [entry] = self._database.rows("SELECT seq, at FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
        facts = {"embedder": self._database.meta("embedder"), "kind": kind, "state": synced.state, "journal": entry}
        index_file.save(index_file.path_of(self._database.path, kind), synced.index, facts)
        synced.saved = len(synced.index)

    # Reads of the bank's file

    def _state(self) -> State:
        """The sync position of the last committed state."""
        return self._database.rows(STATE)[0]

    def _from_task(self, where: Filter, task_id: str) -> set[int]:
        """Rowids of the records from a task, and of those merged from one of its."""
        mine, values = ("", ()) if where.everyone else ("namespace = $2 AND ", (where.named,))
        conditions = Conditions(values=[task_id, *values])
        merged = conditions.one_of("task_id", in_lineage(task_id))
        query = f"SELECT rowid FROM records WHERE {mine}task_id = $1 UNION SELECT record FROM lineage WHERE {merged}"
        return self._rowids(query, conditions.values)

    def _doubted(self, where: Filter) -> set[int]:
        """Rowids of the records with too little confidence for a filter: the index does not know it."""
        if where.min_confidence is None:
            return set()
        query = f"SELECT rowid FROM records r WHERE ($1 OR namespace = $2) AND {BELIEVED} < $3"
        return self._rowids(query, (where.everyone, where.namespace, where.min_confidence))

    def _rowids(self, query: str, values: Sequence[Any]) -> set[int]:
        return {row[0] for row in self._database.rows(query, tuple(values))}

    def _read(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """{rowid: record} of these rowids, as far as they exist; None: of all."""
        where = "" if rowids is None else f" WHERE r.rowid IN ({placeholders(len(rowids))})"
        rows = self._database.rows(self._database.dialect.records + where, tuple(rowids or ()))
        return {row[0]: to_record(row, self._database.path) for row in rows}

    def _entries(self, after: int, upto: int, kind: str) -> list[Entry]:
        """Index entries of the keys with after < origin <= upto, oldest first; of records of any status."""
        query = (
            "SELECT r.rowid, iif(h.record IS NULL, k.place, -1), r.namespace, r.status, r.outcome, r.domain, "
            "r.folded_tags, k.origin, k.vector FROM keys k LEFT JOIN heirs h ON h.origin = k.origin "
            "JOIN records r ON r.rowid = coalesce(h.record, k.origin) "
            "WHERE k.origin > $1 AND k.origin <= $2 AND k.kind = $3 ORDER BY k.origin, k.place, r.rowid"
        )
        return self._database.rows(query, (after, upto, kind))

    def _led_to(self, rowids: set[int]) -> set[int]:
        """The origins of the keys of others that lead to these records."""
        query = "SELECT origin FROM heirs WHERE record IN ({})"
        return set().union(*(self._rowids(query.format(placeholders(len(some))), some) for some in in_parts(rowids)))

    def _touched(self, after: int, upto: int, *, found: bool = True) -> set[int]:
        """Rowids of records removed, restored or changed. found: only if in a column that the search uses."""
        return self._rowids(
            "SELECT record FROM touched WHERE seq > $1 AND seq <= $2 AND found >= $3", (after, upto, found)
        )
