"""Creates a bank's tables in SQLite (tables.sql) and the triggers that maintain derived tables (triggers.sql)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from core.memory.store.schema import TRACKED, Dialect

SCHEMA = 8  # migrations.py brings older ones to it
DIALECT = Dialect(
    key_row="rowid",
    put_key="INSERT INTO keys (origin, kind, place, vector) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    differs="IS NOT",
    keys={},
    touch="INSERT INTO touched (record, found) VALUES ($1, 1)",
)


def create(db: Any) -> None:
    """Create the tables that are missing; call `finish` when they are filled."""
    _run(db, (Path(__file__).parent / "tables.sql").read_text(encoding="utf-8"))
    for table, (columns, _) in TRACKED.items():
        _run(
            db,
            f"CREATE TABLE IF NOT EXISTS undo_{table} (step INTEGER PRIMARY KEY, seq, was_there, {', '.join(columns)});"
            f"CREATE INDEX IF NOT EXISTS undo_{table}_by_seq ON undo_{table} (seq);",
        )


def finish(db: Any) -> None:
    """Fill the derived tables, and create the triggers that maintain them and record the undo rows."""
    _run(
        db,
        f"""
        INSERT OR IGNORE INTO lineage
            SELECT t.value, r.rowid FROM records r, json_each(r.provenance, '$.tasks') t WHERE r.parents <> '[]';
        DELETE FROM sqlite_sequence WHERE name = 'records'; -- row ids of removed records are never reused
        INSERT INTO sqlite_sequence SELECT 'records', coalesce(max(rowid), 0) FROM
            (SELECT rowid FROM records UNION ALL SELECT rowid FROM undo_records);
        INSERT OR REPLACE INTO meta VALUES ('schema', '{SCHEMA}');
        """,
    )
    _run(db, (Path(__file__).parent / "triggers.sql").read_text(encoding="utf-8"))
    for table, (columns, n_key) in TRACKED.items():
        _keep_undo(db, table, columns, n_key)


def _keep_undo(db: Any, table: str, columns: tuple[str, ...], n_key: int) -> None:
    """Create a table's undo triggers.

    As in sqlite.org/undoredo.html, but stores old rows rather than SQL statements. So stored text is never executed,
    numbers stay exact, and `forget` finds undo rows by their key.
    """
    for event, row in (("INSERT", "new"), ("UPDATE", "old"), ("DELETE", "old")):
        names = columns if row == "old" else columns[:n_key]  # for a new row, the key is enough
        values = ", ".join(f"{row}.{name}" for name in names)
        db.execute(
            f"CREATE TRIGGER IF NOT EXISTS undo_{event}_{table} AFTER {event} ON {table} BEGIN "
            f"INSERT INTO undo_{table} (seq, was_there, {', '.join(names)}) "
            f"SELECT coalesce(max(seq), 0) + 1, {int(row == 'old')}, {values} FROM journal; END"
        )


def _run(db: Any, script: str) -> None:
    """Execute a script inside the open transaction, which sqlite3's executescript would commit."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
