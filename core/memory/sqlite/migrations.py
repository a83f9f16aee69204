"""Migration of banks with older schemas to the current one, step by step.

Each function in STEPS raises the schema by one; the first starts from OLDEST. A table that a repair has not found is
created in its present form, so a step adds only the columns that are missing.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from core.errors import UserError
from core.memory.sqlite.setup import SCHEMA, create, finish
from core.memory.store.schema import COLUMNS, checksum, column_of_tags

OLDEST = 3  # the schema of the first published banks


def schema_version(db: Any) -> int:
    """Number of a bank's schema; 0: empty database. UserError for a schema that this version cannot read."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "records" not in tables:
        return 0
    if "meta" in tables and (row := db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()):
        if not row[0].isdecimal():
            raise UserError(f"the bank has the schema {row[0]!r:.40}, and there is none of that name.")
        found = int(row[0])
    else:  # a damaged bank may have lost `meta`
        columns = {row[1] for row in db.execute("PRAGMA table_info(records)")}
        found = OLDEST + ("folded_tags" in columns) + ("sum" in columns) + ("lexicon" not in tables)
    if found > SCHEMA:
        raise UserError(f"the bank has schema {found}, of a later version: this one reads up to {SCHEMA}.")
    if found < OLDEST:
        raise UserError(f"the bank has schema {found}, of before the first release: this version reads from {OLDEST}.")
    return found


def migrate(db: Any) -> int:
    """Migrate a bank to the current schema, inside the caller's transaction; returns the schema that it had.

    Call setup.finish next. Raises UserError if a step fails; then the caller must roll back.
    """
    found = schema_version(db)
    if found == 0:
        create(db)
    try:
        for step in STEPS[found - OLDEST :] if found else ():
            step(db)
    except (sqlite3.IntegrityError, ValueError, LookupError, TypeError) as error:
        text = f"the bank cannot be brought from schema {found} to {SCHEMA}, and stays as it was: {error!r}."
        raise UserError(text) from error
    return found


def migrated_copy_if_old(db: Any) -> Any:
    """The connection itself, or one to a migrated temporary copy if its schema is older. db: only read."""
    if schema_version(db) == SCHEMA:
        return db
    copy = sqlite3.connect("", check_same_thread=False, isolation_level=None)
    with closing(db):
        db.backup(copy)
    copy.execute("BEGIN")
    migrate(copy)
    finish(copy)
    copy.execute("COMMIT")
    return copy


def _to_4(db: Any) -> None:
    """Adds folded_tags: tags normalised for comparison."""
    drop_triggers(db)
    create(db)
    for table, rule in (("records", "TEXT NOT NULL DEFAULT '[]'"), ("undo_records", "")):
        _add_column(db, table, f"folded_tags {rule}")
        for (tags,) in db.execute(f"SELECT DISTINCT tags FROM {table} WHERE tags IS NOT NULL").fetchall():
            db.execute(f"UPDATE {table} SET folded_tags = ? WHERE tags = ?", (column_of_tags(json.loads(tags)), tags))


def _to_5(db: Any) -> None:
    """Adds the checksums of records and vectors; their undo rows get one when they are restored."""
    drop_triggers(db)
    for name in ("patterns", "pattern_embeddings", "pattern_links"):  # those of before may differ
        db.execute(f"DROP VIEW IF EXISTS {name}")
    create(db)
    for table in ("records", "undo_records", "vectors", "item_vectors"):
        _add_column(db, table, "sum INTEGER")
    rows = db.execute(f"SELECT rowid, {', '.join(COLUMNS)} FROM records").fetchall()
    db.executemany("UPDATE records SET sum = ? WHERE rowid = ?", ((checksum(row[1:]), row[0]) for row in rows))
    db.create_function("crc32", 1, zlib.crc32, deterministic=True)
    for table in ("vectors", "item_vectors"):
        db.execute(f"UPDATE {table} SET sum = crc32(vector)")


def _to_6(db: Any) -> None:
    """Drops the full-text index: words are searched in memory."""
    drop_triggers(db)
    db.execute("DROP TABLE IF EXISTS lexicon")
    db.execute("DROP VIEW IF EXISTS words")
    create(db)


STEPS = (_to_4, _to_5, _to_6)


def _add_column(db: Any, table: str, column: str) -> None:
    if column.split()[0] not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
        db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


def drop_triggers(db: Any) -> None:
    """Drop all triggers, because migrations must not write undo rows. `finish` creates them again."""
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")


def completed(table: str, row: Sequence[Any], columns: Sequence[str]) -> Sequence[Any]:
    """Add folded_tags and sum to a row (was_there, *columns) of a journal file written by an older version."""
    if table != "records" or not row[0]:
        return row
    if len(row) == len(columns) - 1:
        row = [*row, column_of_tags(json.loads(row[1 + columns.index("tags")]))]
    return [*row, checksum(row[2:])] if len(row) == len(columns) else row
