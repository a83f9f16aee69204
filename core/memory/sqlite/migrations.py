"""Banks of older schemas, brought to the present one step at a time: 1 -> 2 -> 3.

A step is a function of the database, one of STEPS. Whoever adds one lets the step before it make the tables as they
were then, of a copy of tables.sql: a step leads to the schema of its number, whatever comes later.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from typing import Any

from core.errors import UserError
from core.memory.store.schema import FIELDS, SCHEMA, TRACKED, create, finish, storable

_NAMES = ", ".join(FIELDS)
_ADDED_IN_2 = {  # columns, and what they hold for a record of schema 1
    "domain": "''",
    "tags": "'[]'",
    "confidence": "NULL",
    "n_used": 0,
    "n_used_success": 0,
    "n_helpful": 0,
    "n_harmful": 0,
    "last_used": "NULL",
    "trust": 1.0,
    "parents": "'[]'",
    "provenance": "'{}'",
}


def version(db: Any) -> int:
    """The schema of a bank; 0 of an empty database. UserError for one that only a later version can read."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "records" not in tables:
        return 0
    if "meta" in tables and (row := db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()):
        if not row[0].isdecimal():
            raise UserError(f"the bank has the schema {row[0]!r:.40}, and there is none of that name.")
        if int(row[0]) > SCHEMA:
            raise UserError(f"the bank has schema {row[0]}, of a later version: this one reads up to {SCHEMA}.")
        return int(row[0])
    columns = {row[1] for row in db.execute("PRAGMA table_info(records)")}  # a damaged bank may have lost `meta`
    return 1 if "query_embedding" in columns else 3 if "facts" in tables else 2


def migrate(db: Any) -> int:
    """Bring a bank to the present schema, inside the transaction of its caller, and return which it had.

    schema.finish follows. Raises UserError where a step fails; then the caller's transaction must not be committed.
    """
    found = version(db)
    if found == 0:
        create(db)
    try:
        for step in STEPS[found - 1 :] if found else ():
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


def create_2(db: Any) -> None:
    """The tables of schema 2 that the step to 3 reads, where they are not there."""
    columns = ", ".join(name if name in ("confidence", "last_used") else f"{name} NOT NULL" for name in FIELDS[1:])
    db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.execute(f"CREATE TABLE IF NOT EXISTS records (rowid INTEGER PRIMARY KEY, id NOT NULL UNIQUE, {columns})")
    db.execute("CREATE TABLE IF NOT EXISTS vectors (rowid INTEGER PRIMARY KEY, vector BLOB NOT NULL)")
    db.execute(
        "CREATE TABLE IF NOT EXISTS links (source, relation, target, note, PRIMARY KEY (source, relation, target))"
    )
    db.execute("CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, at, tick, reason, undo)")


def replay_2(db: Any, line: dict[str, Any]) -> None:
    """Do what a line of the journal's file says that schema 2 wrote: {seq, at, tick, reason, undo, redo}.

    undo and redo are lists of steps; db has the tables of schema 2.
    """
    if line["undo"] is not None:  # else it is not a change but a part of what there is
        entry = [line[name] for name in ("seq", "at", "tick", "reason")]
        db.execute("INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?, ?)", (*entry, json.dumps(line["undo"])))
    for step in line["redo"]:
        _do_2(db, *step)


def _do_2(db: Any, kind: str, *rest: Any, records: str = "records") -> None:
    """Do one step of schema 2, of an undo or a redo, in its tables. records: the name of the table of them."""
    if kind in ("put", "restore"):
        rowid, values = rest[:2] if kind == "restore" else rest[1::-1]
        row = (rowid, *(_column(name, values[name]) for name in FIELDS))
        db.execute(f"INSERT OR REPLACE INTO {records} (rowid, {_NAMES}) VALUES ({_marks(row)})", row)
    elif kind == "update":
        for name in FIELDS:
            if name in rest[1]:
                db.execute(f"UPDATE {records} SET {name} = ? WHERE id = ?", (_column(name, rest[1][name]), rest[0]))
    elif kind == "remove":
        db.execute(f"DELETE FROM {records} WHERE id = ?", rest)
    elif kind == "link":
        db.execute("INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?)", rest)
    elif kind == "unlink":
        db.execute("DELETE FROM links WHERE (source, relation, target) = (?, ?, ?)", rest)
    elif rest[1] is not None:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", rest)
    else:
        db.execute("DELETE FROM meta WHERE key = ?", rest[:1])


def _to_2(db: Any) -> None:
    """Vectors lie apart; records know use, trust and where they come from; there are links and a journal."""
    _drop_indexes(db)
    db.execute("ALTER TABLE records RENAME TO old_records")
    create_2(db)
    values = ", ".join(str(_ADDED_IN_2.get(name, name)) for name in FIELDS)
    db.execute(f"INSERT INTO records (rowid, {_NAMES}) SELECT rowid, {values} FROM old_records")
    db.execute("INSERT INTO vectors SELECT rowid, query_embedding FROM old_records")
    db.execute("DROP TABLE old_records")


def _to_3(db: Any) -> None:
    """Ids are unique within a namespace; links and facts belong to one; the journal keeps rows and not steps.

    Until now a fact was everyone's: each namespace gets it.
    """
    _drop_indexes(db)
    old = ("meta", "records", "links", "journal")
    for table in old:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    db.execute("DROP TABLE IF EXISTS touched")
    create(db)
    db.execute("UPDATE old_records SET status = 'quarantined' WHERE status = 'candidate'")
    db.execute("UPDATE old_journal SET undo = '[]' WHERE NOT json_valid(undo)")  # a repair may have read nonsense
    db.execute(f"INSERT INTO records (rowid, {_NAMES}) SELECT rowid, {_NAMES} FROM old_records")
    db.execute("INSERT INTO meta SELECT key, value FROM old_meta WHERE key IN ('embedder', 'unembedded')")
    spaces = dict(db.execute(f"{_REMOVED} UNION ALL SELECT id, namespace FROM old_records"))
    for source, *rest in db.execute("SELECT source, relation, target, note FROM old_links").fetchall():
        db.execute("INSERT INTO links VALUES (?, ?, ?, ?, ?)", (_space(spaces, source, rest[1]), source, *rest))
    tenants = sorted({"default", *spaces.values()})
    facts = "SELECT key, value FROM old_meta WHERE key NOT IN ('schema', 'embedder', 'unembedded')"
    for key, value in db.execute(facts).fetchall():
        db.executemany("INSERT INTO facts VALUES (?, ?, ?)", [(space, key, value) for space in tenants])
    for *entry, undo in db.execute("SELECT seq, at, tick, reason, undo FROM old_journal ORDER BY seq DESC"):
        _walk_back(db, entry, json.loads(undo), spaces, tenants)
    for table in old:
        db.execute(f"DROP TABLE old_{table}")


STEPS = (_to_2, _to_3)

_REMOVED = (
    "SELECT json_extract(value, '$[2].id'), json_extract(value, '$[2].namespace') "
    "FROM old_journal, json_each(undo) WHERE json_extract(value, '$[0]') = 'restore'"
)


def _space(spaces: dict[str, str], source: str, target: str) -> str:
    """The namespace of a link; spaces: those of the records, by their ids."""
    return spaces.get(source) or spaces.get(target) or "default"


def _walk_back(db: Any, entry: list, steps: list[list], spaces: dict[str, str], tenants: list[str]) -> None:
    """Write an entry of the journal with the rows that it found: those that its steps lead back to in old_records."""
    found: dict[str, dict[tuple, tuple | None]] = {table: {} for table in TRACKED}
    for kind, *rest in steps:
        if kind == "forgotten":
            entry[3] += f"; {rest[0]} sha256:{rest[1]}"
        elif kind == "fact":
            found["facts"] |= {(space, rest[0]): None if rest[1] is None else (space, *rest) for space in tenants}
        elif kind in ("link", "unlink"):
            key = (_space(spaces, rest[0], rest[2]), *rest[:3])
            found["links"][key] = (*key, rest[3]) if kind == "link" else None
        else:
            id = (rest[1]["id"] if kind == "restore" else rest[0],)
            now = db.execute(f"SELECT rowid, {_NAMES} FROM old_records WHERE id = ?", id).fetchone()
            _do_2(db, kind, *rest, records="old_records")
            before = db.execute(f"SELECT rowid, {_NAMES} FROM old_records WHERE id = ?", id).fetchone()
            if now or before:
                found["records"][(now or before)[:3]] = before
            if kind == "restore" and rest[2] is not None:
                db.execute("INSERT OR IGNORE INTO vectors VALUES (?, ?)", (rest[0], base64.b64decode(rest[2])))
    db.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", entry)
    for table, rows in found.items():
        for key, row in rows.items():
            values = row or key
            names = ", ".join(TRACKED[table][0][: len(values)])
            query = f"INSERT INTO undo_{table} (seq, was_there, {names}) VALUES (?, ?, {_marks(values)})"
            db.execute(query, (entry[0], row is not None, *values))


def _marks(values: Any) -> str:
    return ", ".join("?" * len(values))


def _column(name: str, value: Any) -> Any:
    """A field's value in the journal of schema 2, plain JSON data, as it stands in a row."""
    if name in ("items", "tags", "parents", "provenance"):
        value = json.dumps(value, ensure_ascii=False, sort_keys=name == "provenance")
    return "quarantined" if (name, value) == ("status", "candidate") else storable(value)


def _drop_indexes(db: Any) -> None:
    """Drop indexes and triggers: they keep the names that the new ones are to have."""
    query = "SELECT type, name FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    for kind, name in db.execute(query).fetchall():
        db.execute(f"DROP {kind} {name}")
