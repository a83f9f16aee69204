"""What is done to a bank: inside `with bank.change(reason)`, in one transaction that can be undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from core.errors import UserError
from core.memory.filter import STATUSES
from core.memory.store.schema import (
    BARE,
    COLUMNS,
    FIELDS,
    SET_ASIDE,
    TRACKED,
    SqlSession,
    column_of_tags,
    places,
    row_of,
    storable,
    to_column,
    to_record,
)
from core.types import MemoryRecord

_WEIGHT = re.compile(r"\bcosine (-?\d\.\d+)$")
RELATIONS = ("entails", "contradicts", "refines", "duplicate_of", "supersedes")
FIXED = ("id", "namespace", "original_query", "created_at")  # no update: a new record supersedes the old one
CHANGEABLE = frozenset(FIELDS) - {*FIXED}
COUNTED = frozenset(("n_used", "n_used_success", "last_used", "confidence"))
IDS = 500  # in one statement
Items = Collection[tuple[int, bytes]]  # (place, vector) of each text that the items are found by
Embed = Callable[[MemoryRecord], tuple[bytes, Items]]  # (query's vector, items' vectors) as float32 bytes
Rows = dict[str, list[tuple]]  # {table: rows of (was there, *columns)}; of one that was not there its key alone

_INSERT = (
    f"INSERT INTO records ({', '.join(COLUMNS)}) VALUES ({places(len(COLUMNS))}) ON CONFLICT DO NOTHING RETURNING rowid"
)

# Rows of each tracked table: as a change found them; as they are now, while it is the last; as all since an entry did.
FOUND = "SELECT was_there, {columns} FROM undo_{table} WHERE seq = $1 ORDER BY step"
MADE = (
    "SELECT {table}.{last} IS NOT NULL, {columns} FROM (SELECT DISTINCT {key} FROM undo_{table} WHERE seq = $1) "
    "LEFT JOIN {table} USING ({key})"
)
_SINCE = "FROM undo_{table} WHERE seq > $1 AND namespace = coalesce($2, namespace)"
FOUND_SINCE = (
    "SELECT was_there, {columns} FROM "
    f"(SELECT *, row_number() OVER (PARTITION BY {{key}} ORDER BY seq, step) AS place {_SINCE}) AS f WHERE place = 1"
)


def embedded(rows: Iterable[tuple], embed: Embed, known: dict[int, tuple] | None = None) -> dict[int, tuple]:
    """{rowid: (what is embedded of a record, its namespace first; its vector; its items')} for rows of `to_record`.

    known   what an earlier call gave: a record whose texts are still the same is not embedded again
    """
    made, known = {}, known or {}
    for row in rows:
        record = to_record(row)
        about = (record.namespace, record.id, record.original_query, record.items, record.tags)
        earlier = known.get(row[0])
        made[row[0]] = earlier if earlier and earlier[0] == about else (about, *embed(record))
    return made


class Change:
    """Everything done here, in one namespace, is committed together with one journal entry, or not at all.

    Triggers keep what undoes it (schema.py). What a change reads with `get` includes what it has done so far. Do
    nothing slow in here, no model call above all: other writers wait for the end.
    """

    def __init__(self, db: SqlSession, reason: str, namespace: str, embed: Embed) -> None:
        self.reason = reason
        self._db, self._namespace, self._embed = db, namespace, embed
        self._before = db.total_changes
        self.stores_items = False  # vectors of lessons
        self.erased = False  # the journal's file must be written anew
        self.brought_back = False  # records came back that may have no vector: some are then marked as unembedded

    @property
    def made(self) -> bool:
        """Whether anything was changed so far."""
        return self._db.total_changes > self._before

    def meta(self, key: str) -> str | None:
        """A fact about the bank as it stands now; None when it was never set."""
        found = self._db.execute("SELECT value FROM meta WHERE key = $1", (key,)).fetchone()
        return found[0] if found else None

    def get(self, id: str) -> MemoryRecord | None:
        """The record of an id as it stands now; None when there is none."""
        row = self._find(id)
        return to_record(row) if row else None

    def add(self, record: MemoryRecord) -> bool:
        """Append a record, in the namespace that it names. False when its id is there already."""
        return self.put(record, *self._embed(record))

    def put(self, record: MemoryRecord, vector: bytes | None, items: Items = ()) -> bool:
        """`add` with the vectors at hand; None for one that is set aside and has none."""
        check_status(record.status)
        row = self._db.execute(_INSERT, row_of(record)).fetchone()
        if row is None:
            return False
        if vector is not None:
            self._db.execute("INSERT INTO vectors VALUES ($1, $2)", (row[0], vector))
        self._put_items(row[0], items)
        return True

    def put_all(self, rows: Iterable[tuple[MemoryRecord, bytes | None, Items]]) -> int:
        """`put` many; returns how many were new."""
        return sum(self.put(*row) for row in rows)

    def put_last(self, rows: Iterable[tuple[MemoryRecord, bytes | None, Items]]) -> Callable[[], int]:
        """`put_all` as the last thing of the change; how many were new is to be asked after it."""
        added = self.put_all(rows)
        return lambda: added

    def update(self, id: str, **fields: Any) -> None:
        """Set fields of a record. Its id and query are fixed: add a record that supersedes it. UserError otherwise."""
        if not self.revise(id, lambda record: fields):
            raise UserError(f"the bank has no record {id}.")

    def revise(self, id: str, fields_of: Callable[[MemoryRecord], dict[str, Any]]) -> bool:
        """`update` a record with what follows from it as it stands; False when there is none."""
        row = self._find(id)
        if row is not None:
            self._set(row, fields_of(to_record(row)))
        return row is not None

    def count(self, ids: Collection[str], fields_of: Callable[[str, MemoryRecord], dict[str, Any]]) -> None:
        """`revise` many at once, in fields of COUNTED alone; unknown ids are passed over.

        fields_of   is given an id and its record, this without its embedding
        """
        if not ids:
            return
        # No json_each: it ends a text at a NUL byte.
        query = f"{BARE} FROM records WHERE namespace = $1 AND id IN ({places(len(ids), after=1)})"
        found = {row[1]: row for row in self._db.execute(query, (self._namespace, *ids)).fetchall()}
        changed: dict[str, list[tuple]] = {}  # {statement: its values}: each is prepared once
        for id in ids:
            if (row := found.get(storable(id))) is None:
                continue
            if columns := _changed(row, fields_of(id, to_record(row)), COUNTED):
                changed.setdefault(_update(columns), []).append((*columns.values(), row[0]))
        for statement, values in changed.items():
            self._db.executemany(statement, values)

    def _set(self, row: tuple, fields: dict[str, Any]) -> None:
        check_status(fields.get("status", "active"))
        if not (columns := _changed(row, fields, CHANGEABLE)):
            return
        self._db.execute(_update(columns), (*columns.values(), row[0]))
        if fields.get("status", "archived") not in SET_ASIDE and row[-1] is None:
            self._db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")
            self.brought_back = True
        if "items" in fields:
            self._put_items(row[0], self._embed(self.get(row[1]))[1])

    def drop_vectors(self, id: str) -> None:
        """Delete the vectors of a record that is set aside. It is embedded anew when it comes back, however it does."""
        if (row := self._find(id)) and row[1 + FIELDS.index("status")] in SET_ASIDE:
            self._db.execute("INSERT INTO meta VALUES ('drops_vectors', '1') ON CONFLICT DO NOTHING")
            mine = f"(SELECT {self._db.dialect.vector_row} FROM records r WHERE r.rowid = $1)"
            self._db.execute(f"DELETE FROM vectors WHERE rowid IN {mine}", row[:1])
            self._db.execute(f"DELETE FROM item_vectors WHERE record IN {mine}", row[:1])

    def remove(self, id: str) -> bool:
        """Take a record out; its links stay. The journal keeps it whole, so that this can be undone: see `forget`."""
        query = "DELETE FROM records WHERE namespace = $1 AND id = $2"
        return self._db.execute(query, (self._namespace, id)).rowcount == 1

    def link(self, source: str, relation: str, target: str, note: str = "") -> bool:
        """Connect two records by their ids; False when they are so already. UserError on an unknown relation."""
        if relation not in RELATIONS:
            raise UserError(f"relation={relation}: known are {', '.join(RELATIONS)}.")
        row, insert = (self._namespace, source, relation, target, note), f"INSERT INTO links VALUES ({places(5)})"
        return self._db.execute(f"{insert} ON CONFLICT DO NOTHING", row).rowcount == 1

    def unlink(self, source: str, relation: str, target: str) -> bool:
        """Remove a link; False when there is none."""
        query = "DELETE FROM links WHERE (namespace, source, relation, target) = ($1, $2, $3, $4)"
        return self._db.execute(query, (self._namespace, source, relation, target)).rowcount == 1

    def fact(self, key: str, value: str | None) -> None:
        """Set a fact about the namespace (None removes it), in the same transaction as what it is about."""
        put_back(self._db, {"facts": [(value is not None, self._namespace, key, value)]})

    def erase(self, ids: Collection[str]) -> None:
        """Take records out for good, with their links and with all that the journal and the queue hold of them."""
        ids = list(ids)
        for start in range(0, len(ids), IDS):
            self._erase(ids[start : start + IDS])
        self._db.execute(
            "INSERT INTO meta SELECT 'forgot', CAST(coalesce(max(seq), 0) + 1 AS TEXT) FROM journal WHERE true "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        self._erase_words()
        self.erased = True

    def _erase(self, ids: list[str]) -> None:
        # A mark for each, as SQLite's json_each ends a text at a NUL byte: it would name other records.
        values, these = (self._namespace, *ids), f"({places(len(ids), after=1)})"
        past = f"FROM undo_records r WHERE r.namespace = $1 AND r.id IN {these}"
        linked = f"namespace = $1 AND (source IN {these} OR target IN {these})"
        about = f"namespace = $1 AND state = 'completed' AND json_extract(result, '$.memory_id') IN {these}"
        self._db.execute(f"DELETE FROM records WHERE namespace = $1 AND id IN {these}", values)
        self._db.execute(f"DELETE FROM links WHERE {linked}", values)
        self._db.execute(f"DELETE FROM vectors WHERE rowid IN (SELECT {self._db.dialect.vector_row} {past})", values)
        # With what the triggers have just kept.
        self._db.execute(f"DELETE FROM undo_records WHERE namespace = $1 AND id IN {these}", values)
        self._db.execute(f"DELETE FROM undo_links WHERE {linked}", values)
        self._db.execute(f"DELETE FROM jobs WHERE {about}", values)

    def _erase_words(self) -> None:
        """Take out of the full-text index what it still holds of deleted rows."""
        self._db.execute("INSERT INTO lexicon(lexicon) VALUES ('optimize')")

    def roll_back(self, seq: int, *, everyone: bool = False) -> int:
        """Make every row of the namespace, or all, what it was after a journal entry; how many changes that undoes."""
        values = (seq, None if everyone else self._namespace)
        undone = {row for rows in select(self._db, f"SELECT DISTINCT seq {_SINCE}", values).values() for row in rows}
        put_back(self._db, select(self._db, FOUND_SINCE, values))
        self._db.execute(self._db.dialect.mark_unembedded)
        self.brought_back = True
        return len(undone)

    def _find(self, id: str) -> tuple | None:
        query = f"{self._db.dialect.records} WHERE r.namespace = $1 AND r.id = $2"
        return self._db.execute(query, (self._namespace, id)).fetchone()

    def _put_items(self, rowid: int, vectors: Items) -> None:
        self.stores_items |= bool(vectors)
        self._db.executemany("INSERT INTO item_vectors VALUES ($1, $2, $3)", [(rowid, *vector) for vector in vectors])


def _changed(row: tuple, fields: dict[str, Any], changeable: frozenset[str]) -> dict[str, Any]:
    """The columns of a row with new values; none where they are so already. UserError for a field that is fixed."""
    for name in fields:
        if name not in changeable:
            raise UserError(f"{name} of a record cannot be changed.")
    columns = {name: to_column(name, value) for name, value in fields.items()}
    if columns.items() <= dict(zip(FIELDS, row[1:])).items():
        return {}
    return columns | ({"folded_tags": column_of_tags(fields["tags"])} if "tags" in fields else {})


def _update(columns: Collection[str]) -> str:
    values = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 1))
    return f"UPDATE records SET {values} WHERE rowid = ${len(columns) + 1}"


def weight_of(note: str) -> float | None:
    """The weight of a link, by its note: the similarity of the two records; None where it is not known."""
    found = _WEIGHT.search(note)
    return float(found[1]) if found else None


def check_status(status: str) -> None:
    if status not in STATUSES:
        raise UserError(f"status={status}: known are {', '.join(STATUSES)}.")


def select(db: SqlSession, query: str, values: tuple) -> Rows:
    """What a query about each tracked table, like FOUND, finds of them."""
    found = {}
    for table, (columns, n_key) in TRACKED.items():
        names = {"columns": ", ".join(columns), "key": ", ".join(columns[:n_key]), "last": columns[-1]}
        if rows := db.execute(query.format(table=table, **names), values).fetchall():
            found[table] = [row if row[0] else row[: n_key + 1] for row in rows]
    return found


def put_back(db: SqlSession, found: Rows) -> None:
    """Make rows what they were: remove what was not there, write what was and is otherwise."""
    for table, rows in found.items():
        columns, n_key = TRACKED[table]
        key, names = ", ".join(columns[:n_key]), ", ".join(columns)
        new = ", ".join(f"excluded.{name}" for name in columns)
        target = f"({key}) " if db.dialect.names_conflicts else ""  # without one, for whichever there is
        old = ", ".join(f"{table}.{name}" for name in columns)
        gone = f"DELETE FROM {table} WHERE ({key}) = ({places(n_key)})"
        db.executemany(gone, [row[1 : n_key + 1] for row in rows if not row[0]])
        write = (
            f"INSERT INTO {table} ({names}) VALUES ({places(len(columns))}) "
            f"ON CONFLICT {target}DO UPDATE SET ({names}) = ({new}) WHERE ({old}) {db.dialect.differs} ({new})"
        )
        db.executemany(write, [row[1:] for row in rows if row[0]])
