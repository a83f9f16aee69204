"""Search in a bank's file: indexes of vectors that follow it, BM25 by FTS5, and the records of what they find."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from core.memory.filter import PRIOR, Filter, by_history, visible
from core.memory.sqlite import index as index_file
from core.memory.sqlite.database import SqliteDatabase
from core.memory.sqlite.index import Entry, VectorIndex
from core.memory.store.contract import SearchSettings
from core.memory.store.hits import Hit, Place
from core.memory.store.schema import SET_ASIDE, column_of_tags, places, to_record
from core.types import MemoryRecord

log = logging.getLogger(__name__)

CHUNK = 20_000  # records read at once
WHOLE = 4_096  # records of a bank that is read at once
KEPT = 16_384  # records kept in memory: 200 MB with vectors of 384 numbers
ROTTEN = 0.2  # share of hidden entries from which an index is made anew
# How far a record is believed in.
BELIEVED = f"coalesce(r.confidence, iif(r.outcome = 'success', {PRIOR['success']}, {PRIOR['failure']}))"
State = tuple[int, int, str | None]  # (highest rowid, last entry of `touched`, journal entry of the last forgetting)


@dataclass(kw_only=True)
class _Conditions:
    """Says what `visible` asks of a record `r` in SQLite's SQL, and keeps the values for it."""

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
        return places(len(values), after=len(self.values) - len(values))


@dataclass
class _Followed:
    """An index and how far it follows the store."""

    index: VectorIndex
    state: State
    version: int = -1
    saved: int = 0  # entries that the cache file holds


@dataclass(frozen=True, kw_only=True)
class _Hidden:
    """Says what `by_history` asks as the row ids of the few records of which it is not true; no index knows of that."""

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
    """A task's id as it may stand in `lineage`, which json_each fills: that ends a text at a NUL byte."""
    return task_id, task_id.partition("\0")[0]


class IndexSearch:
    """One index of the records' queries and, when it is asked for, one of their items."""

    def __init__(self, database: SqliteDatabase, settings: SearchSettings) -> None:
        self._database, self._settings = database, settings
        self._lock = threading.RLock()  # an addition beside a search is unsafe in FAISS
        self._indexes: dict[bool, _Followed] = {}
        self._records_lock = threading.Lock()
        self._records: dict[int, MemoryRecord] = {}
        self._records_version, self._records_upto = -1, 0

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, *, kinds: tuple[bool, ...], distinct: bool
    ) -> list[Hit]:
        with self._lock:
            self._follow(kinds, len(vector))
            # Read no sooner: what another process has just added of this very task is left out, too.
            hidden = set().union(*by_history(where, exclude_task, _Hidden(database=self._database, where=where)))
            found: list[Place] = []
            for items in kinds:
                found += self._indexes[items].index.search(vector, k, where, hidden, distinct and items)
            version = self._indexes[kinds[0]].version
        return self._with_records(found, version)

    def lexical(self, words: list[str], k: int, where: Filter, exclude_task: str | None) -> list[Hit]:
        expression = " OR ".join(f'"{word}"' for word in words)  # quoted: nothing in a text is an operator
        say = _Conditions(values=[expression])
        query = (
            "SELECT r.rowid, round(-bm25(lexicon), 9) AS score FROM lexicon JOIN records r ON r.rowid = lexicon.rowid "
            f"WHERE lexicon MATCH $1 AND {' AND '.join(visible(where, exclude_task, say))} "
            f"ORDER BY score DESC, r.rowid LIMIT {int(k)}"
        )
        found = [(rowid, -1, score) for rowid, score in self._database.rows(query, tuple(say.values))]
        return self._with_records(found, self._database.version())

    def save(self) -> None:
        """Write the cache files that are worth it and not up to date."""
        with self._lock:
            for items, followed in self._indexes.items():
                size, forgot = len(followed.index), followed.state[2] != self._state()[2]
                if (
                    not (self._settings.read_only or forgot)
                    and size >= index_file.WORTH
                    and size - followed.saved > size // 50
                ):
                    self._save(items, followed)

    def _with_records(self, found: list[Place], version: int) -> list[Hit]:
        """Places with their records; those whose record was removed since are left out."""
        records = self._get([rowid for rowid, _, _ in found], version)
        return [Hit(*place, records[place[0]]) for place in found if place[0] in records]

    def _get(self, rowids: list[int], version: int) -> dict[int, MemoryRecord]:
        """Records by rowid: those of a small bank are all kept in memory, of a larger one those last read."""
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
                    del self._records[next(iter(self._records))]  # the one that was read first
            return found

    def _follow(self, kinds: tuple[bool, ...], dim: int) -> None:
        """Bring indexes up to the store, all to one state of it."""
        version = self._database.version()
        known = {items: self._indexes.get(items) or self._open(items, dim) for items in kinds}
        if all(followed.version == version for followed in known.values()):
            return
        merged = {items: followed.index.merged for items, followed in known.items()}
        with self._snapshot() as upto:
            for items, followed in known.items():
                self._indexes.pop(items, None)  # should it break half-way, the next search begins with a new one
                followed.index = self._at(upto, followed, items, dim)
                followed.state, followed.version = upto, version
                self._indexes[items] = followed
        for items, followed in known.items():
            grown = followed.index.merged > merged[items] and len(followed.index) >= index_file.WORTH
            if self._settings.approximate and grown and not self._settings.read_only:
                self._save(items, followed)  # a graph takes long to make

    def _at(self, upto: State, followed: _Followed, items: bool, dim: int) -> VectorIndex:
        """An index at a state: what changed is hidden and entered anew, what was added comes behind."""
        index, state = followed.index, followed.state
        touched = {rowid for rowid in self._touched(state[1], upto[1]) if rowid <= state[0]}
        index.drop(touched)
        rotten = index.dead() > ROTTEN and len(index) > index_file.WORTH
        if rotten or state[2] != upto[2]:  # the second: what was forgotten must not even lie hidden in it
            index, state, touched = VectorIndex(dim, self._settings.approximate), (0, 0, upto[2]), set()
        for rowid in sorted(touched):
            self._enter(index, rowid - 1, rowid, items)
        for after in range(state[0], upto[0], CHUNK):
            self._enter(index, after, min(after + CHUNK, upto[0]), items)
        return index

    def _enter(self, index: VectorIndex, after: int, upto: int, items: bool) -> None:
        index.add(self._vectors(after, upto, items))
        if items:
            missing = self._without_items(after, upto)
            if self._settings.most_missing is not None and len(missing) > self._settings.most_missing:
                command = f"python -m core.memory reembed {self._database.path}"
                log.warning(f"{len(missing)} records are found by their query alone until you run: {command}")
                return
            for rowid, record in missing:
                tags = column_of_tags(record.tags)
                attributes = record.namespace, record.status, record.outcome, record.domain, tags
                vectors = self._settings.item_vectors(record)
                index.add([(rowid, place, *attributes, vector) for place, vector in vectors])

    def _open(self, items: bool, dim: int) -> _Followed:
        """The index from its file, where that fits, else an empty one."""
        facts = {"embedder": self._database.meta("embedder"), "dim": dim, "graph": self._settings.approximate}
        facts["items"] = items and self._settings.items_by
        loaded = index_file.load(index_file.path_of(self._database.path, items), facts)
        if loaded is not None:
            index, header = loaded
            seq, at = header["journal"]
            if self._database.rows("SELECT 1 FROM journal WHERE seq = $1 AND at = $2", (seq, at)):
                return _Followed(index, tuple(header["state"]), saved=len(index))
        return _Followed(VectorIndex(dim, self._settings.approximate), (0, 0, None))

    def _save(self, items: bool, followed: _Followed) -> None:
        [entry] = self._database.rows("SELECT seq, at FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
        facts = {"embedder": self._database.meta("embedder"), "items": items and self._settings.items_by}
        facts |= {"state": followed.state, "journal": entry}
        index_file.save(index_file.path_of(self._database.path, items), followed.index, facts)
        followed.saved = len(followed.index)

    # What is read of the file

    @contextmanager
    def _snapshot(self) -> Iterator[State]:
        """All reads in here see one state of the bank, which is given."""
        with self._database.snapshot():
            yield self._state()

    def _state(self) -> State:
        """How far records and changes to them go."""
        query = "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0)"
        return self._database.rows(f"{query}, (SELECT value FROM meta WHERE key = 'forgot')")[0]

    def _read(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """The whole records of some rowids, None for all; those that are gone are left out."""
        where = "" if rowids is None else f" WHERE r.rowid IN ({places(len(rowids))})"
        rows = self._database.rows(self._database.dialect.records + where, tuple(rowids or ()))
        return {row[0]: to_record(row) for row in rows}

    def _vectors(self, after: int, upto: int, items: bool = False) -> list[Entry]:
        """What an index knows of records with after < rowid <= upto, whatever their status, oldest first."""
        place, table = ("v.place", "item_vectors v ON v.record") if items else ("-1", "vectors v ON v.rowid")
        query = (
            f"SELECT r.rowid, {place}, r.namespace, r.status, r.outcome, r.domain, r.folded_tags, v.vector "
            f"FROM records r JOIN {table} = r.rowid WHERE r.rowid > $1 AND r.rowid <= $2 ORDER BY r.rowid, 2"
        )
        return self._database.rows(query, (after, upto))

    def _without_items(self, after: int, upto: int) -> list[tuple[int, MemoryRecord]]:
        """(rowid, record) of those that have no vectors of their items.

        But none that was set aside and has no vector at all.
        """
        query = (
            f"{self._database.dialect.records} WHERE r.rowid > $1 AND r.rowid <= $2 "
            f"AND NOT (v.vector IS NULL AND r.status IN {SET_ASIDE}) "
            "AND NOT EXISTS (SELECT 1 FROM item_vectors i WHERE i.record = r.rowid) ORDER BY r.rowid"
        )
        return [(row[0], to_record(row)) for row in self._database.rows(query, (after, upto))]

    def _touched(self, after: int, upto: int, *, found: bool = True) -> set[int]:
        """The rowids of records that were removed, put back, or changed: in what a search looks at, or in anything."""
        query = "SELECT record FROM touched WHERE seq > $1 AND seq <= $2 AND found >= $3"
        return {row[0] for row in self._database.rows(query, (after, upto, found))}
