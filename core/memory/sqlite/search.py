"""Search in a bank's file: FAISS indexes synced to it, and the records of their hits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from core.memory.filter import PRIOR, Filter, by_source_and_confidence, visible
from core.memory.sqlite import index as index_file
from core.memory.sqlite.database import STATE, SqliteDatabase, State
from core.memory.sqlite.index import Entry, VectorIndex
from core.memory.store.changes import IDS
from core.memory.store.contract import SearchSettings
from core.memory.store.hits import Hit, RowHit
from core.memory.store.schema import NOT_SEARCHED, Damaged, column_of_tags, is_whole, placeholders, to_record
from core.types import MemoryRecord

log = logging.getLogger(__name__)

CHUNK = 20_000  # records read at once
WHOLE = 4_096  # banks up to this size (records) are cached whole
KEPT = WHOLE  # records of a larger bank kept in memory: 50 MB with vectors of 384 numbers
MOST_DELETED = 0.2  # share of deleted entries from which an index is rebuilt
_LACKS_ITEMS = (  # of records r with their vectors v
    f"r.rowid > $1 AND r.rowid <= $2 AND NOT (v.vector IS NULL AND r.status IN {NOT_SEARCHED}) "
    "AND NOT EXISTS (SELECT 1 FROM item_vectors i WHERE i.record = r.rowid)"
)
# A record's confidence, or the prior of its outcome.
BELIEVED = f"coalesce(r.confidence, iif(r.outcome = 'success', {PRIOR['success']}, {PRIOR['failure']}))"


@dataclass(kw_only=True)
class _Conditions:
    """Translates the conditions of `visible` on a record `r` to SQLite's SQL, and collects their values."""

    values: list[Any] = field(default_factory=list)

    def one_of(self, column: str, values: tuple[str, ...]) -> str:
        return f"r.{column} IN ({self._places(*values)})"

    def has_tag(self, tag: str) -> str:
        return f"EXISTS (SELECT 1 FROM json_each(r.folded_tags) t WHERE t.value = {self._places(tag)})"

    def believed(self, least: float) -> str:
        return f"{BELIEVED} >= {self._places(least)}"

    def not_from(self, task_id: str) -> str:
        own, merged = self._places(task_id), self._places(*_as_in_lineage(task_id))
        behind = f"SELECT 1 FROM lineage l WHERE l.task_id IN ({merged}) AND l.record = r.rowid"
        return f"r.task_id IS NOT {own} AND NOT EXISTS ({behind})"

    def _places(self, *values: Any) -> str:
        self.values += values
        return placeholders(len(values), after=len(self.values) - len(values))


@dataclass
class _SyncedIndex:
    """An index and the state it is synced to."""

    index: VectorIndex
    state: State
    version: int = -1  # data_version of the database at that state
    saved: int = 0  # entries in the cache file


@dataclass(frozen=True, kw_only=True)
class _Excluded:
    """Translates `by_source_and_confidence`: returns rowids to exclude, as the index stores no confidence or task."""

    database: SqliteDatabase
    where: Filter

    def believed(self, least: float) -> set[int]:
        query = f"SELECT rowid FROM records r WHERE ($1 OR namespace = $2) AND {BELIEVED} < $3"
        return self._rowids(query, self.where.everyone, self.where.namespace, least)

    def not_from(self, task_id: str) -> set[int]:
        mine = "" if self.where.everyone else "namespace = $4 AND "
        query = f"SELECT rowid FROM records WHERE {mine}task_id = $1 UNION SELECT record FROM lineage"
        query += " WHERE task_id IN ($2, $3)"
        return self._rowids(query, task_id, *_as_in_lineage(task_id), self.where.namespace)

    def _rowids(self, query: str, *values: Any) -> set[int]:
        return {row[0] for row in self.database.rows(query, values)}


def _as_in_lineage(task_id: str) -> tuple[str, str]:
    """The forms in which a task's id may be stored in `lineage`: json_each, which fills it, ends a text at a NUL."""
    return task_id, task_id.partition("\0")[0]


class IndexSearch:
    """Search in SQLite: one index of the query vectors and, once a search needs it, one of the item vectors."""

    def __init__(self, database: SqliteDatabase, settings: SearchSettings) -> None:
        self._database, self._settings = database, settings
        self._lock = threading.RLock()  # FAISS does not allow an add during a search
        self._indexes: dict[bool, _SyncedIndex] = {}
        self._records_lock = threading.Lock()
        self._records: dict[int, MemoryRecord] = {}
        self._records_version, self._records_upto = -1, 0

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, *, kinds: tuple[bool, ...], distinct: bool
    ) -> list[Hit]:
        with self._lock:
            self._sync(kinds, len(vector))
            # Read after syncing, so that records just added for this task are excluded too.
            excluded = set().union(
                *by_source_and_confidence(where, exclude_task, _Excluded(database=self._database, where=where))
            )
            found: list[RowHit] = []
            for items in kinds:
                found += self._indexes[items].index.search(vector, k, where, excluded, distinct and items)
            version = self._indexes[kinds[0]].version
        return self._with_records(found, version)

    def those(self, hits: list[RowHit], where: Filter, exclude_task: str | None) -> list[Hit]:
        backend, allowed, rowids = _Conditions(), set(), list({hit[0] for hit in hits})
        terms = " AND ".join(visible(where, exclude_task, backend))
        for start in range(0, len(rowids), IDS):
            some = tuple(rowids[start : start + IDS])
            among = placeholders(len(some), after=len(backend.values))
            query = f"SELECT r.rowid FROM records r WHERE {terms} AND r.rowid IN ({among})"
            allowed |= {row[0] for row in self._database.rows(query, (*backend.values, *some))}
        return self._with_records([hit for hit in hits if hit[0] in allowed], self._database.version())

    def save(self) -> None:
        """Write the cache files that are out of date, of indexes large enough to be worth it."""
        with self._lock:
            for items, synced in self._indexes.items():
                size, forgot = len(synced.index), synced.state[2] != self._state()[2]
                if (
                    not (self._settings.read_only or forgot)
                    and size >= index_file.WORTH
                    and size - synced.saved > size // 50
                ):
                    self._save(items, synced)

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

    def _sync(self, kinds: tuple[bool, ...], dim: int) -> None:
        """Sync the indexes of these kinds to the store, all to the same state."""
        version = self._database.version()
        known = {items: self._indexes.get(items) or self._open(items, dim) for items in kinds}
        if all(synced.version == version for synced in known.values()):
            return
        merged = {items: synced.index.merged for items, synced in known.items()}
        with self._read_transaction() as upto:
            for items, synced in known.items():
                self._indexes.pop(items, None)  # if this fails half-way, the next search starts with a new index
                synced.index = self._updated(upto, synced, items, dim)
                synced.state, synced.version = upto, version
                self._indexes[items] = synced
        for items, synced in known.items():
            grown = synced.index.merged > merged[items] and len(synced.index) >= index_file.WORTH
            if self._settings.approximate and grown and not self._settings.read_only:
                self._save(items, synced)  # a graph takes long to build

    def _updated(self, upto: State, synced: _SyncedIndex, items: bool, dim: int) -> VectorIndex:
        """The index synced to `upto`: changed records are marked deleted and added again, new records are appended."""
        index, state = synced.index, synced.state
        touched = {rowid for rowid in self._touched(state[1], upto[1]) if rowid <= state[0]}
        index.mark_deleted(touched)
        too_many = index.share_deleted() > MOST_DELETED and len(index) > index_file.WORTH
        if too_many or state[2] != upto[2]:  # after a forget or erase, rebuild so that the data is really gone
            index, state, touched = VectorIndex(dim, self._settings.approximate), (0, 0, upto[2]), set()
        for rowid in sorted(touched):
            self._add_vectors(index, rowid - 1, rowid, items)
        for after in range(state[0], upto[0], CHUNK):
            self._add_vectors(index, after, min(after + CHUNK, upto[0]), items)
        return index

    def _add_vectors(self, index: VectorIndex, after: int, upto: int, items: bool) -> None:
        index.add(self._vectors(after, upto, items))
        if items:
            most = self._settings.most_missing
            if most is not None and (n := self._n_without_items(after, upto)) > most:
                command = f"python -m core.memory reembed {self._database.path}"
                log.warning(f"{n} records are found by their query alone until you run: {command}")
                return
            for rowid, record in self._without_items(after, upto):
                tags = column_of_tags(record.tags)
                attributes = record.namespace, record.status, record.outcome, record.domain, tags
                vectors = self._settings.item_vectors(record)
                index.add([(rowid, place, *attributes, vector) for place, vector in vectors])

    def _open(self, items: bool, dim: int) -> _SyncedIndex:
        """The index from its file if that fits, else an empty one."""
        facts = {"embedder": self._database.meta("embedder"), "dim": dim, "graph": self._settings.approximate}
        facts["items"] = items and self._settings.item_vector_key
        loaded = index_file.load(index_file.path_of(self._database.path, items), facts)
        if loaded is not None:
            index, header = loaded
            seq, at = header["journal"]
            if self._database.rows("SELECT 1 FROM journal WHERE seq = $1 AND at = $2", (seq, at)):
                return _SyncedIndex(index, tuple(header["state"]), saved=len(index))
        return _SyncedIndex(VectorIndex(dim, self._settings.approximate), (0, 0, None))

    def _save(self, items: bool, synced: _SyncedIndex) -> None:
        [entry] = self._database.rows("SELECT seq, at FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
        facts = {"embedder": self._database.meta("embedder"), "items": items and self._settings.item_vector_key}
        facts |= {"state": synced.state, "journal": entry}
        index_file.save(index_file.path_of(self._database.path, items), synced.index, facts)
        synced.saved = len(synced.index)

    # Reads of the bank's file

    @contextmanager
    def _read_transaction(self) -> Iterator[State]:
        """All reads inside see the same state of the bank; yields its sync position."""
        with self._database.read_transaction():
            yield self._state()

    def _state(self) -> State:
        """The sync position of the last committed state."""
        return self._database.rows(STATE)[0]

    def _read(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """{rowid: record} of these rowids, as far as they exist; None: of all."""
        where = "" if rowids is None else f" WHERE r.rowid IN ({placeholders(len(rowids))})"
        rows = self._database.rows(self._database.dialect.records + where, tuple(rowids or ()))
        return {row[0]: to_record(row, self._database.path) for row in rows}

    def _vectors(self, after: int, upto: int, items: bool = False) -> list[Entry]:
        """Index entries of the records with after < rowid <= upto, of any status, oldest first."""
        place, table = ("v.place", "item_vectors v ON v.record") if items else ("-1", "vectors v ON v.rowid")
        query = (
            f"SELECT r.rowid, {place}, r.namespace, r.status, r.outcome, r.domain, r.folded_tags, v.vector, v.sum "
            f"FROM records r JOIN {table} = r.rowid WHERE r.rowid > $1 AND r.rowid <= $2 ORDER BY r.rowid, 2"
        )
        entries = []
        for *entry, sum in self._database.rows(query, (after, upto)):
            if not is_whole(entry[-1], sum):
                raise Damaged(self._database.path, f"a vector of row {entry[0]} does not fit its checksum")
            entries.append(entry)
        return entries

    def _n_without_items(self, after: int, upto: int) -> int:
        """How many `_without_items` there are; none of them is read."""
        query = f"SELECT count(*) FROM records r LEFT JOIN vectors v ON v.rowid = r.rowid WHERE {_LACKS_ITEMS}"
        return self._database.rows(query, (after, upto))[0][0]

    def _without_items(self, after: int, upto: int) -> list[tuple[int, MemoryRecord]]:
        """(rowid, record) of the records with after < rowid <= upto that have no item vectors.

        Excludes archived or superseded records without vectors.
        """
        query = f"{self._database.dialect.records} WHERE {_LACKS_ITEMS} ORDER BY r.rowid"
        return [(row[0], to_record(row, self._database.path)) for row in self._database.rows(query, (after, upto))]

    def _touched(self, after: int, upto: int, *, found: bool = True) -> set[int]:
        """Rowids of records removed, restored or changed. found: only if in a column that the search uses."""
        query = "SELECT record FROM touched WHERE seq > $1 AND seq <= $2 AND found >= $3"
        return {row[0] for row in self._database.rows(query, (after, upto, found))}
