"""The bank's tables, and how a record becomes a row and back."""

from __future__ import annotations

import json
import struct
from typing import Any

from core.types import Lesson, MemoryRecord

SCHEMA_VERSION = "2"

# Vectors have a table of their own, so that everything else can be read without them. AUTOINCREMENT: a row id never
# comes back for another record, so an index may remember it. `touched` tells a reader what else has changed, with
# found=1 where a search looks at it; triggers keep it, so that it holds for every writer. `lineage` names every task
# behind a merged record.
TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
    rowid INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    status TEXT NOT NULL,
    outcome TEXT NOT NULL,
    domain TEXT NOT NULL,
    tags TEXT NOT NULL,
    task_id TEXT NOT NULL,
    original_query TEXT NOT NULL,
    items TEXT NOT NULL,
    source_trajectory_id TEXT NOT NULL,
    score REAL NOT NULL,
    label_source TEXT NOT NULL,
    created_at TEXT NOT NULL,
    tick INTEGER NOT NULL,
    confidence REAL,
    n_used INTEGER NOT NULL,
    n_used_success INTEGER NOT NULL,
    n_helpful INTEGER NOT NULL,
    n_harmful INTEGER NOT NULL,
    last_used INTEGER,
    trust REAL NOT NULL,
    parents TEXT NOT NULL,
    provenance TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS records_by_task ON records (namespace, task_id);
CREATE INDEX IF NOT EXISTS records_by_tick ON records (tick);
CREATE TABLE IF NOT EXISTS vectors (rowid INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS item_vectors (
    record INTEGER NOT NULL, place INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (record, place)
);
CREATE TABLE IF NOT EXISTS lineage (
    task_id TEXT NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (task_id, record)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lineage_by_record ON lineage (record);
CREATE TABLE IF NOT EXISTS links (
    source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT NULL, note TEXT NOT NULL,
    PRIMARY KEY (source, relation, target)
);
CREATE INDEX IF NOT EXISTS links_by_target ON links (target);
CREATE TABLE IF NOT EXISTS journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL, tick INTEGER NOT NULL, reason TEXT NOT NULL, undo TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS touched (seq INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL, found INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS lexicon USING fts5(query, items);
CREATE TRIGGER IF NOT EXISTS record_merged AFTER INSERT ON records WHEN new.parents <> '[]'
BEGIN
    INSERT OR IGNORE INTO lineage SELECT value, new.rowid FROM json_each(new.provenance, '$.tasks');
END;
CREATE TRIGGER IF NOT EXISTS record_changed AFTER UPDATE ON records
BEGIN
    INSERT INTO touched (record, found) VALUES (
        old.rowid,
        old.namespace <> new.namespace OR old.status <> new.status OR old.outcome <> new.outcome
        OR old.domain <> new.domain OR old.tags <> new.tags OR old.items <> new.items
    );
END;
CREATE TRIGGER IF NOT EXISTS record_reworded AFTER UPDATE OF items ON records
BEGIN
    DELETE FROM item_vectors WHERE record = old.rowid;
    DELETE FROM lexicon WHERE rowid = old.rowid;
END;
CREATE TRIGGER IF NOT EXISTS record_gone AFTER DELETE ON records
BEGIN
    INSERT INTO touched (record, found) VALUES (old.rowid, 1);
    DELETE FROM vectors WHERE rowid = old.rowid;
    DELETE FROM item_vectors WHERE record = old.rowid;
    DELETE FROM lexicon WHERE rowid = old.rowid;
    DELETE FROM lineage WHERE record = old.rowid;
END;
INSERT OR IGNORE INTO meta VALUES ('schema', '2');
"""

# The server's queue (core/memory/store/jobs.py). Made with its first job: a bank that only a run writes has none.
JOBS = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, state TEXT NOT NULL, payload TEXT NOT NULL, result TEXT NOT NULL,
    tries INTEGER NOT NULL, created_at TEXT NOT NULL, changed_at TEXT NOT NULL
)
"""
JOB_FIELDS = ("id", "namespace", "state", "payload", "result", "tries", "created_at", "changed_at")

# A record's fields in the order of the table's columns; the embedding lies in `vectors`.
FIELDS = tuple(
    "id namespace status outcome domain tags task_id original_query items source_trajectory_id score label_source "
    "created_at tick confidence n_used n_used_success n_helpful n_harmful last_used trust parents provenance".split()
)
FIXED = ("id", "original_query", "query_embedding", "created_at")  # no update: a new record supersedes the old one
INSERT = f"INSERT INTO records (rowid, {', '.join(FIELDS)}) VALUES (?{', ?' * len(FIELDS)}) ON CONFLICT DO NOTHING"
_COLUMNS = ", ".join("r." + name for name in FIELDS)
SELECT = f"SELECT {_COLUMNS}, v.vector FROM records r LEFT JOIN vectors v ON v.rowid = r.rowid"


def to_row(record: MemoryRecord) -> list[Any]:
    """The values of FIELDS as SQLite stores them."""
    values = vars(record)
    return [to_column(name, values[name]) for name in FIELDS]


def to_column(name: str, value: Any) -> Any:
    """One field's value as SQLite stores it: what is nested becomes JSON."""
    if name == "items":
        value = json.dumps([vars(item) for item in value], ensure_ascii=False)
    elif name in ("tags", "parents", "provenance"):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True) if value else _EMPTY[name]
    # SQLite takes no half of a surrogate pair, which a model's escapes can leave in a text.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value


_EMPTY = {"tags": "[]", "parents": "[]", "provenance": "{}"}


def to_record(row: tuple) -> MemoryRecord:
    """A row of SELECT as a record."""
    blob = row[len(FIELDS)]
    embedding = () if blob is None else struct.unpack(f"{len(blob) // 4}f", blob)
    return from_columns(dict(zip(FIELDS, row)) | {"query_embedding": embedding})


def from_columns(values: dict[str, Any]) -> MemoryRecord:
    """A record from the values of its columns; those that an older schema lacks have their defaults."""
    for name in ("tags", "parents"):
        values[name] = tuple(json.loads(text)) if (text := values.get(name, "[]")) != "[]" else ()
    values["provenance"] = json.loads(text) if (text := values.get("provenance", "{}")) != "{}" else {}
    values["items"] = tuple(Lesson(**item) for item in json.loads(values["items"]))
    return MemoryRecord(**values)


def to_dict(record: MemoryRecord, *, embedding: bool = False) -> dict[str, Any]:
    """A record as plain JSON data; from_dict gives it back, its embedding only if it was asked for."""
    found = vars(record)
    values = {name: found[name] for name in FIELDS}
    values |= {"items": [dict(vars(item)) for item in record.items]}
    values |= {"tags": list(record.tags), "parents": list(record.parents)}
    return values | {"query_embedding": list(record.query_embedding)} if embedding else values


def from_dict(values: dict[str, Any]) -> MemoryRecord:
    """The record that to_dict described. Raises KeyError, TypeError or ValueError where it describes none."""
    items = tuple(Lesson(**item) for item in values["items"])
    tuples = {name: tuple(values[name]) for name in ("tags", "parents", "query_embedding") if name in values}
    return MemoryRecord(**values | {"items": items} | tuples)


def lexical_text(items: tuple[Lesson, ...]) -> str:
    """What the full-text search reads of a record's items."""
    return "\n".join(f"{item.title}\n{item.description}\n{item.content}" for item in items)
