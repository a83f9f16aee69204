"""Migration of banks with older schemas to the current one, step by step.

STEPS has the schemas that changed what is stored and the functions that make them, in order; the first starts from
OLDEST.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from core.errors import UserError
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import SCHEMA, create, finish
from core.memory.store.keys import ITEM, QUERY, pass_all_keys

OLDEST = 4  # the schema of version 0.1.0


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
        found = SCHEMA if "keys" in tables else OLDEST
    if found > SCHEMA:
        raise UserError(f"the bank has schema {found}, of a later version: this one reads up to {SCHEMA}.")
    if found < OLDEST:
        raise UserError(f"the bank has schema {found}, of before version 0.1.0: this version reads from {OLDEST}.")
    return found


def migrate(db: Any) -> int:
    """Migrate a bank to the current schema, inside the caller's transaction; returns the schema that it had.

    Call setup.finish next. Raises UserError if a step fails; then the caller must roll back.
    """
    found = schema_version(db)
    if found == 0:
        create(db)
    try:
        for number, step in STEPS:
            if 0 < found < number:
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


def _to_7(db: Any) -> None:
    """From 4: keys lie in one table, and there is no full-text index."""
    drop_triggers(db)
    for name in ("patterns", "pattern_embeddings", "pattern_links", "words"):
        db.execute(f"DROP VIEW IF EXISTS {name}")
    db.execute("DROP TABLE IF EXISTS lexicon")
    create(db)
    for table in ("records", "undo_records"):  # checksums, of a bank between 0.1.0 and the next version
        if "sum" in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            db.execute(f"ALTER TABLE {table} DROP COLUMN sum")
    db.execute("INSERT OR IGNORE INTO keys SELECT rowid, 'query', -1, vector FROM vectors")
    made_for = db.execute("SELECT value FROM meta WHERE key = 'items_by'").fetchone()
    if made_for == (ITEM,):  # other keys of lessons are made anew when they are wanted
        db.execute("INSERT OR IGNORE INTO keys SELECT record, ?, place, vector FROM item_vectors", (ITEM,))
        db.execute("INSERT INTO meta VALUES ('kinds', ?)", (f"{QUERY},{ITEM}",))
    db.execute("INSERT OR IGNORE INTO meta VALUES ('unembedded', '1')")  # those set aside may have lost their vectors
    db.execute("DELETE FROM meta WHERE key IN ('items_by', 'drops_vectors')")
    for table in ("vectors", "item_vectors"):
        db.execute(f"DROP TABLE IF EXISTS {table}")


def _to_8(db: Any) -> None:
    """From 7: keys lead to all heirs of their record, which have a table of their own."""
    drop_triggers(db)
    if "record" in {row[1] for row in db.execute("PRAGMA table_info(keys)")}:  # else the step before has just made keys
        db.execute("DROP INDEX keys_passed")
        db.execute("ALTER TABLE keys DROP COLUMN record")
    db.execute("DROP INDEX IF EXISTS links_by_target")
    create(db)
    pass_all_keys(SqliteSession(db), None)
    db.execute("INSERT INTO touched (record, found) SELECT DISTINCT origin, 1 FROM heirs")  # for a stored index


STEPS = ((7, _to_7), (8, _to_8))


def drop_triggers(db: Any) -> None:
    """Drop all triggers, because migrations must not write undo rows. `finish` creates them again."""
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
