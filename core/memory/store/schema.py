"""The bank's tables (tables.sql), what keeps them in step, and how a record becomes a row and back."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

from core.types import Lesson, MemoryRecord

SCHEMA = 3  # older ones: migrations.py

# A record's fields in the order of the table's columns; the embedding lies in `vectors`.
FIELDS = tuple(
    "id namespace status outcome domain tags task_id original_query items source_trajectory_id score label_source "
    "created_at tick confidence n_used n_used_success n_helpful n_harmful last_used trust parents provenance".split()
)
INSERT = (
    f"INSERT INTO records ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))}) "
    "ON CONFLICT DO NOTHING RETURNING rowid"
)
BARE = f"SELECT rowid, {', '.join(FIELDS)}, NULL"  # a row like those of RECORDS, its vector left out
RECORDS = (
    f"SELECT r.rowid, {', '.join('r.' + name for name in FIELDS)}, v.vector "
    "FROM records r LEFT JOIN vectors v ON v.rowid = r.rowid"
)
SET_ASIDE = ("archived", "superseded")  # no search looks for these: a bank may drop their vectors until they come back
LACKS_VECTOR = (
    f"v.vector IS NULL AND (r.status NOT IN {SET_ASIDE} OR NOT EXISTS (SELECT 1 FROM meta WHERE key = 'drops_vectors'))"
)
MARK_UNEMBEDDED = (  # for whoever has an embedder: some records want a vector and have none
    "INSERT INTO meta SELECT 'unembedded', '1' FROM records r LEFT JOIN vectors v ON v.rowid = r.rowid "
    f"WHERE {LACKS_VECTOR} LIMIT 1 ON CONFLICT DO NOTHING"
)

# What a change can be undone in: each table with its columns, and how many of these, the first, are its key.
TRACKED = {
    "records": (("rowid", *FIELDS), 3),
    "links": (("namespace", "source", "relation", "target", "note"), 4),
    "facts": (("namespace", "key", "value"), 2),
}


def create(db: Any) -> None:
    """Make the tables that are not there; `finish` follows when they are filled."""
    _run(db, (Path(__file__).parents[1] / "sqlite" / "tables.sql").read_text(encoding="utf-8"))
    for table, (columns, _) in TRACKED.items():
        _run(
            db,
            f"CREATE TABLE IF NOT EXISTS undo_{table} (step INTEGER PRIMARY KEY, seq, was_there, {', '.join(columns)});"
            f"CREATE INDEX IF NOT EXISTS undo_{table}_by_seq ON undo_{table} (seq);",
        )


def finish(db: Any) -> None:
    """Make what follows from the rows, and the triggers that keep it so from now on."""
    fill_lexicon(db)
    _run(
        db,
        f"""
        INSERT OR IGNORE INTO lineage
            SELECT t.value, r.rowid FROM records r, json_each(r.provenance, '$.tasks') t WHERE r.parents <> '[]';
        DELETE FROM sqlite_sequence WHERE name = 'records'; -- a removed record keeps its row id
        INSERT INTO sqlite_sequence SELECT 'records', coalesce(max(rowid), 0) FROM
            (SELECT rowid FROM records UNION ALL SELECT rowid FROM undo_records);
        INSERT OR REPLACE INTO meta VALUES ('schema', '{SCHEMA}');
        """,
    )
    _run(db, (Path(__file__).parents[1] / "sqlite" / "triggers.sql").read_text(encoding="utf-8"))
    for table, (columns, n_key) in TRACKED.items():
        _keep_undo(db, table, columns, n_key)


def fill_lexicon(db: Any) -> None:
    """Enter the records that the full-text index lacks."""
    query = "INSERT INTO lexicon (rowid, query, items) SELECT rowid, query, items FROM words"
    db.execute(f"{query} WHERE rowid NOT IN (SELECT rowid FROM lexicon)")


def _keep_undo(db: Any, table: str, columns: tuple[str, ...], n_key: int) -> None:
    """SQLite's recipe for undo (sqlite.org/undoredo.html), but what is kept is the row as it was, not a statement.

    So nothing that was stored is ever run, numbers keep their last bit, and `forget` finds by key what it must erase.
    """
    for event, row in (("INSERT", "new"), ("UPDATE", "old"), ("DELETE", "old")):
        names = columns if row == "old" else columns[:n_key]  # of a row that was not there its key is enough
        values = ", ".join(f"{row}.{name}" for name in names)
        db.execute(
            f"CREATE TRIGGER IF NOT EXISTS undo_{event}_{table} AFTER {event} ON {table} BEGIN "
            f"INSERT INTO undo_{table} (seq, was_there, {', '.join(names)}) "
            f"SELECT coalesce(max(seq), 0) + 1, {int(row == 'old')}, {values} FROM journal; END"
        )


def _run(db: Any, script: str) -> None:
    """Execute statements inside the transaction that is open, which sqlite3's executescript would commit."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def to_column(name: str, value: Any) -> Any:
    """One field's value as SQLite stores it: what is nested becomes JSON."""
    if name == "items":
        value = json.dumps([vars(item) for item in value], ensure_ascii=False)
    elif name in _EMPTY:
        value = json.dumps(value, ensure_ascii=False, sort_keys=True) if value else _EMPTY[name]
    return storable(value)


_EMPTY = {"tags": "[]", "parents": "[]", "provenance": "{}"}


def storable(value: Any) -> Any:
    """A value without halves of surrogate pairs, which a model's escapes leave in a text and SQLite does not take."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value


def to_record(row: tuple) -> MemoryRecord:
    """A row of RECORDS as a record."""
    values, blob = dict(zip(FIELDS, row[1:])), row[-1]
    values["query_embedding"] = () if blob is None else struct.unpack(f"{len(blob) // 4}f", blob)
    for name in ("tags", "parents"):
        values[name] = tuple(json.loads(text)) if (text := values[name]) != "[]" else ()
    values["provenance"] = json.loads(text) if (text := values["provenance"]) != "{}" else {}
    values["items"] = tuple(Lesson(**item) for item in json.loads(values["items"]))
    return MemoryRecord(**values)


def to_dict(record: MemoryRecord) -> dict[str, Any]:
    """A record as plain JSON data, without its embedding."""
    values = {name: getattr(record, name) for name in FIELDS}
    values |= {"items": [dict(vars(item)) for item in record.items]}
    return values | {"tags": list(record.tags), "parents": list(record.parents)}


def from_dict(values: dict[str, Any]) -> MemoryRecord:
    """The record that to_dict described. Raises KeyError, TypeError or ValueError where it describes none."""
    items = tuple(Lesson(**item) for item in values["items"])
    tuples = {name: tuple(values[name]) for name in ("tags", "parents", "query_embedding") if name in values}
    return MemoryRecord(**values | {"items": items} | tuples)
