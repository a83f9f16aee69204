"""Making a bank's tables in SQLite (tables.sql), and what keeps them in step (triggers.sql)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from core.memory.store.schema import TRACKED, Dialect

SCHEMA = 4  # older ones: migrations.py
DIALECT = Dialect(vector_row="r.rowid", differs="IS NOT", names_conflicts=False)


def create(db: Any) -> None:
    """Make the tables that are not there; `finish` follows when they are filled."""
    _run(db, (Path(__file__).parent / "tables.sql").read_text(encoding="utf-8"))
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
    _run(db, (Path(__file__).parent / "triggers.sql").read_text(encoding="utf-8"))
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
