"""Banks of older schemas, brought to the present one step at a time.

A step is a function of the database, one of STEPS: the first leads from OLDEST to the schema after it. Whoever adds one
lets the step before it make the tables as they were then, of a copy of tables.sql: a step leads to the schema of its
number, whatever comes later.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from core.errors import UserError
from core.memory.sqlite.setup import SCHEMA, create, finish
from core.memory.store.schema import column_of_tags

OLDEST = 3  # the schema of the first published banks


def version(db: Any) -> int:
    """The schema of a bank; 0 of an empty database. UserError for one that this version cannot read."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "records" not in tables:
        return 0
    if "meta" in tables and (row := db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()):
        if not row[0].isdecimal():
            raise UserError(f"the bank has the schema {row[0]!r:.40}, and there is none of that name.")
        found = int(row[0])
    else:  # a damaged bank may have lost `meta`
        columns = {row[1] for row in db.execute("PRAGMA table_info(records)")}
        found = SCHEMA if "folded_tags" in columns else OLDEST
    if found > SCHEMA:
        raise UserError(f"the bank has schema {found}, of a later version: this one reads up to {SCHEMA}.")
    if found < OLDEST:
        raise UserError(f"the bank has schema {found}, of before the first release: this version reads from {OLDEST}.")
    return found


def migrate(db: Any) -> int:
    """Bring a bank to the present schema, inside the transaction of its caller, and return which it had.

    setup.finish follows. Raises UserError where a step fails; then the caller's transaction must not be committed.
    """
    found = version(db)
    if found == 0:
        create(db)
    try:
        for step in STEPS[found - OLDEST :] if found else ():
            step(db)
    except (sqlite3.IntegrityError, ValueError, LookupError, TypeError) as error:
        text = f"the bank cannot be brought from schema {found} to {SCHEMA}, and stays as it was: {error!r}."
        raise UserError(text) from error
    return found


def in_present_schema(db: Any) -> Any:
    """A connection that is only read, or where its schema is older one to a copy, in a temporary file of SQLite's."""
    if version(db) == SCHEMA:
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
    """The tags of a record are stored as they are compared, too, beside as they were given."""
    _drop_triggers(db)
    create(db)  # what a repair may not have found
    for table, rule in (("records", "TEXT NOT NULL DEFAULT '[]'"), ("undo_records", "")):
        if "folded_tags" not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            db.execute(f"ALTER TABLE {table} ADD COLUMN folded_tags {rule}")
        for (tags,) in db.execute(f"SELECT DISTINCT tags FROM {table} WHERE tags IS NOT NULL").fetchall():
            db.execute(f"UPDATE {table} SET folded_tags = ? WHERE tags = ?", (column_of_tags(json.loads(tags)), tags))


STEPS = (_to_4,)


def _drop_triggers(db: Any) -> None:
    """What a step changes is no change of the bank's. `finish` makes them anew."""
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")


def completed(table: str, row: Sequence[Any], columns: Sequence[str]) -> Sequence[Any]:
    """A row (was there, *columns) of the journal's file with what an older version did not write."""
    if table != "records" or not row[0] or len(row) != len(columns):
        return row
    return [*row, column_of_tags(json.loads(row[1 + columns.index("tags")]))]
