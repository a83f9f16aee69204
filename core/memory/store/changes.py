"""Changes of a bank: everything inside `with bank.change(reason)` is one transaction, which can be undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from core.errors import UserError
from core.memory.filter import STATUSES
from core.memory.store.keys import PASSING, QUERY, Keys, pass_all_keys, pass_keys
from core.memory.store.schema import (
    COLUMNS,
    FIELDS,
    TRACKED,
    SqlSession,
    column_of_tags,
    in_parts,
    placeholders,
    row_of,
    storable,
    to_column,
    to_record,
)
from core.types import MemoryRecord

_WEIGHT = re.compile(r"\bcosine (-?\d\.\d+)$")
RELATIONS = ("entails", "contradicts", "refines", "revises", "duplicate_of", "supersedes")
FIXED = ("id", "namespace", "original_query", "created_at")  # no update: a new record supersedes the old one
CHANGEABLE = frozenset(FIELDS) - {*FIXED}
COUNTED = frozenset(("n_used", "n_used_success", "last_used", "confidence"))
Embed = Callable[[MemoryRecord], Keys]
Rows = dict[str, list[tuple]]  # {table: rows (was_there, *columns)}; a row that was not there has only its key

_INSERT = (
    f"INSERT INTO records ({', '.join(COLUMNS)}) VALUES ({placeholders(len(COLUMNS))}) "
    "ON CONFLICT DO NOTHING RETURNING rowid"
)

# Queries for the rows of each tracked table. MADE: rows after the latest change. FOUND_SINCE: rows before all changes
# after entry seq.
MADE = (
    "SELECT {table}.{last} IS NOT NULL, {columns} FROM (SELECT DISTINCT {key} FROM undo_{table} WHERE seq = $1) "
    "LEFT JOIN {table} USING ({key})"
)
_SINCE = "FROM undo_{table} WHERE seq > $1 AND namespace = coalesce($2, namespace)"
FOUND_SINCE = (
    "SELECT was_there, {columns} FROM "
    f"(SELECT *, row_number() OVER (PARTITION BY {{key}} ORDER BY seq, step) AS place {_SINCE}) AS f WHERE place = 1"
)


def embedded(
    rows: Iterable[tuple], embed: Embed, bank: object, known: dict[int, tuple] | None = None
) -> dict[int, tuple]:
    """Embed records: {rowid: (embedded fields, keys)} for rows as `to_record` takes them.

    bank    its path
    known   result of an earlier call: a record whose embedded fields are unchanged is not embedded again
    """
    made, known = {}, known or {}
    for row in rows:
        record = to_record(row, bank)
        about = (record.namespace, record.id, record.original_query, record.items, record.tags)
        earlier = known.get(row[0])
        made[row[0]] = earlier if earlier and earlier[0] == about else (about, embed(record))
    return made


def fewer(rows: list[tuple], most: int | None) -> list[tuple]:
    """Of records that lack keys, without those that have their query's if these are more than `most`; None: all."""
    bare = [row for row in rows if row[-1] is None]
    return rows if most is None or len(rows) - len(bare) <= most else bare


class Change:
    """A transaction in one namespace with one journal entry: everything is committed, or nothing.

    SQL triggers record the undo rows (TRACKED in schema.py). `get` sees what the change has done so far. Do nothing
    slow inside a change, above all no model call: other writers wait for its end.

    bank   its path
    """

    def __init__(self, db: SqlSession, reason: str, namespace: str, embed: Embed, bank: object) -> None:
        self.reason, self._bank = reason, bank
        self._db, self._namespace, self._embed = db, namespace, embed
        self._before = db.total_changes
        self.erased = False  # True: the journal file must be rewritten
        self.rolled_back = False  # True: records were restored, perhaps without keys, which meta notes as 'unembedded'
        self._passing: set[str] = set()  # ids of records whose keys, or those that lead to them, may now lead elsewhere

    @property
    def made(self) -> bool:
        """Whether anything was changed so far."""
        return self._db.total_changes > self._before

    def meta(self, key: str) -> str | None:
        """A value of the whole bank (table `meta`), as of now; None when it was never set."""
        found = self._db.execute("SELECT value FROM meta WHERE key = $1", (key,)).fetchone()
        return found[0] if found else None

    def get(self, id: str) -> MemoryRecord | None:
        """The record with this id, as of now; None when there is none."""
        row = self._find(id)
        return to_record(row, self._bank) if row else None

    def add(self, record: MemoryRecord) -> bool:
        """Append a record to the namespace that it names. False when its id is there already."""
        return self.put(record, self._embed(record))

    def put(self, record: MemoryRecord, keys: Keys) -> bool:
        """`add` with given keys."""
        check_status(record.status)
        row = self._db.execute(_INSERT, row_of(record)).fetchone()
        if row is None:
            return False
        self._put_keys(row[0], keys)
        return True

    def put_all(self, rows: Iterable[tuple[MemoryRecord, Keys]]) -> int:
        """`put` many records; returns how many were new."""
        return sum(self.put(*row) for row in rows)

    def update(self, id: str, **fields: Any) -> None:
        """Set fields of a record. UserError for those in FIXED (id, query ...): add a record that supersedes it."""
        if not self.revise(id, lambda record: fields):
            raise UserError(f"the bank has no record {id}.")

    def revise(self, id: str, fields_of: Callable[[MemoryRecord], dict[str, Any]]) -> bool:
        """`update` a record with values computed from its current state; False when there is none."""
        row = self._find(id)
        if row is not None:
            self._set(row, fields_of(to_record(row, self._bank)))
        return row is not None

    def update_usage(self, ids: Collection[str], fields_of: Callable[[str, MemoryRecord], dict[str, Any]]) -> None:
        """`revise` many records at once, only in the fields of COUNTED; unknown ids are ignored.

        fields_of   (id, record without its embedding) -> {field: new value}
        """
        if not ids:
            return
        # No json_each: it ends a text at a NUL byte.
        query = (
            f"{self._db.dialect.bare} FROM records WHERE namespace = $1 AND id IN ({placeholders(len(ids), after=1)})"
        )
        found = {row[1]: row for row in self._db.execute(query, (self._namespace, *ids)).fetchall()}
        changed: dict[str, list[tuple]] = {}  # {statement: its values}: each is prepared once
        for id in ids:
            if (row := found.get(storable(id))) is None:
                continue
            if columns := self._changed(row, fields_of(id, to_record(row, self._bank)), COUNTED):
                changed.setdefault(_update(columns), []).append((*columns.values(), row[0]))
        for statement, values in changed.items():
            self._db.executemany(statement, values)

    def _set(self, row: tuple, fields: dict[str, Any]) -> None:
        check_status(fields.get("status", "active"))
        if not (columns := self._changed(row, fields, CHANGEABLE)):
            return
        self._db.execute(_update(columns), (*columns.values(), row[0]))
        if "status" in columns:
            self._passing.add(row[1])
        if "items" in fields:
            updated = self.get(row[1])
            assert updated is not None  # its row has just been written
            self._put_keys(row[0], [key for key in self._embed(updated) if key[0] != QUERY])

    def remove(self, id: str) -> bool:
        """Remove a record; its links stay. Can be undone, since the journal keeps the record (unlike `erase`)."""
        self._passing.add(id)
        query = "DELETE FROM records WHERE namespace = $1 AND id = $2"
        return self._db.execute(query, (self._namespace, id)).rowcount == 1

    def link(self, source: str, relation: str, target: str, note: str = "") -> bool:
        """Link two records by their ids; False when this link exists. UserError on an unknown relation."""
        if relation not in RELATIONS:
            raise UserError(f"relation={relation}: known are {', '.join(RELATIONS)}.")
        self._pass(source, relation, target)
        row, insert = (self._namespace, source, relation, target, note), f"INSERT INTO links VALUES ({placeholders(5)})"
        return self._db.execute(f"{insert} ON CONFLICT DO NOTHING", row).rowcount == 1

    def unlink(self, source: str, relation: str, target: str) -> bool:
        """Remove a link; False when there is none."""
        self._pass(source, relation, target)
        query = "DELETE FROM links WHERE (namespace, source, relation, target) = ($1, $2, $3, $4)"
        return self._db.execute(query, (self._namespace, source, relation, target)).rowcount == 1

    def fact(self, key: str, value: str | None) -> None:
        """Store a value with the namespace, under `key`; None removes it. Rolled back like a record; `meta` is not."""
        restore_rows(self._db, {"facts": [(value is not None, self._namespace, key, value)]})

    def lasting_fact(self, key: str, value: str) -> None:
        """Store a value that no rollback takes back. Only beside `erase`, which has the journal's file rewritten."""
        self.fact(key, value)
        self._db.execute("DELETE FROM undo_facts WHERE namespace = $1 AND key = $2", (self._namespace, key))

    def erase(self, ids: Collection[str]) -> None:
        """Delete the rows of records for good: also their links, undo rows and finished jobs. Cannot be undone."""
        for some in in_parts(ids):
            self._erase(some)
        self._db.execute(
            "INSERT INTO meta SELECT 'forgot', CAST(coalesce(max(seq), 0) + 1 AS TEXT) FROM journal WHERE true "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        self.erased = True
        pass_all_keys(self._db, self._namespace)

    def _erase(self, ids: list[str]) -> None:
        # One placeholder for each id: SQLite's json_each ends a text at a NUL byte, and would match other records.
        values, these = (self._namespace, *ids), f"({placeholders(len(ids), after=1)})"
        past = f"FROM undo_records r WHERE r.namespace = $1 AND r.id IN {these}"
        linked = f"namespace = $1 AND (source IN {these} OR target IN {these})"
        about = f"namespace = $1 AND state = 'completed' AND json_extract(result, '$.memory_id') IN {these}"
        self._db.execute(f"DELETE FROM records WHERE namespace = $1 AND id IN {these}", values)
        self._db.execute(f"DELETE FROM links WHERE {linked}", values)
        self._db.execute(f"DELETE FROM keys WHERE origin IN (SELECT {self._db.dialect.key_row} {past})", values)
        # Includes the undo rows that the triggers have just recorded.
        self._db.execute(f"DELETE FROM undo_records WHERE namespace = $1 AND id IN {these}", values)
        self._db.execute(f"DELETE FROM undo_links WHERE {linked}", values)
        self._db.execute(f"DELETE FROM jobs WHERE {about}", values)

    def roll_back(self, seq: int, *, everyone: bool = False) -> int:
        """Restore all rows of the namespace as they were after entry `seq`; returns how many changes are undone.

        everyone   restore the rows of all namespaces
        """
        values = (seq, None if everyone else self._namespace)
        undone = {row for rows in select(self._db, f"SELECT DISTINCT seq {_SINCE}", values).values() for row in rows}
        restore_rows(self._db, select(self._db, FOUND_SINCE, values))
        if undone:
            self._db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")
            self.rolled_back = True
            pass_all_keys(self._db, values[1])
        return len(undone)

    def settle(self) -> None:
        """Let the keys lead where they must after this change. Called before its commit."""
        pass_keys(self._db, self._namespace, self._passing)

    def _pass(self, source: str, relation: str, target: str) -> None:
        if relation in PASSING:
            self._passing.add(source if PASSING[relation][0] == "source" else target)

    def _find(self, id: str) -> tuple | None:
        query = f"{self._db.dialect.records} WHERE r.namespace = $1 AND r.id = $2"
        return self._db.execute(query, (self._namespace, id)).fetchone()

    def _put_keys(self, rowid: int, keys: Keys) -> None:
        self._db.executemany(self._db.dialect.put_key, [(rowid, *key) for key in keys])

    def _changed(self, row: tuple, fields: dict[str, Any], changeable: frozenset[str]) -> dict[str, Any]:
        """{column: new value} for an update; {} if the row has these. UserError for a field not in `changeable`."""
        for name in fields:
            if name not in changeable:
                raise UserError(f"{name} of a record cannot be changed.")
        columns, old = {name: to_column(name, value) for name, value in fields.items()}, dict(zip(COLUMNS, row[1:]))
        if columns.items() <= old.items():
            return {}
        return columns | ({"folded_tags": column_of_tags(fields["tags"])} if "tags" in fields else {})


def _update(columns: Collection[str]) -> str:
    values = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 1))
    return f"UPDATE records SET {values} WHERE rowid = ${len(columns) + 1}"


def weight_of(note: str) -> float | None:
    """The weight in a link's note, which is the similarity of the two records; None if the note has none."""
    found = _WEIGHT.search(note)
    return float(found[1]) if found else None


def check_status(status: str) -> None:
    if status not in STATUSES:
        raise UserError(f"status={status}: known are {', '.join(STATUSES)}.")


def select(db: SqlSession, query: str, values: tuple) -> Rows:
    """Run a query, such as MADE, on each tracked table."""
    found = {}
    for table, (columns, n_key) in TRACKED.items():
        names = {"columns": ", ".join(columns), "key": ", ".join(columns[:n_key]), "last": columns[-1]}
        if rows := db.execute(query.format(table=table, **names), values).fetchall():
            found[table] = [row if row[0] else row[: n_key + 1] for row in rows]
    return found


def restore_rows(db: SqlSession, found: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Restore rows that were changed or deleted, and delete those that were not there."""
    for table, rows in found.items():
        columns, n_key = TRACKED[table]
        key, names = ", ".join(columns[:n_key]), ", ".join(columns)
        new = ", ".join(f"excluded.{name}" for name in columns)
        keys = db.dialect.keys
        target = f"({keys[table]}) " if keys else ""  # without it: on a conflict with any key
        old = ", ".join(f"{table}.{name}" for name in columns)
        gone = f"DELETE FROM {table} WHERE ({key}) = ({placeholders(n_key)})"
        db.executemany(gone, [row[1 : n_key + 1] for row in rows if not row[0]])
        write = (
            f"INSERT INTO {table} ({names}) VALUES ({placeholders(len(columns))}) "
            f"ON CONFLICT {target}DO UPDATE SET ({names}) = ({new}) WHERE ({old}) {db.dialect.differs} ({new})"
        )
        db.executemany(write, [row[1:] for row in rows if row[0]])
