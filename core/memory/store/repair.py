"""A damaged bank is set aside and rebuilt from its journal and from what is left of it; never opened as empty."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.store import journal_file, writes
from core.memory.store.changes import dumps
from core.memory.store.schema import (
    FIELDS,
    JOB_FIELDS,
    JOBS,
    SCHEMA_VERSION,
    TABLES,
    from_columns,
    from_dict,
    to_dict,
)

CHECKED = 64 * 2**20  # bytes: a smaller file is checked page by page at every opening, a larger one by `doctor`
UNEMBEDDED = "unembedded"  # the fact that some records wait for their vectors


def damage(path: Path, *, thorough: bool = False) -> str | None:
    """What is wrong with a bank's file; None when nothing is, or when there is no bank yet.

    Raises UserError for a file that never was a bank.
    """
    journal = journal_file.path_of(path)
    known = journal.exists() and journal.stat().st_size > 0
    if not path.exists() or path.stat().st_size == 0:
        return "the file is missing or empty, its journal is not" if known else None
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\x00":
            if known:
                return "the file is not a database any more"
            raise UserError(f"memory.path={path} is not a memory bank: file is not a database.")
    try:
        return _look(path, thorough or path.stat().st_size <= CHECKED, known)
    except sqlite3.OperationalError:
        return None  # no damage but a full disk or missing rights: whoever opens it says so
    except sqlite3.DatabaseError as error:
        return str(error)


def _look(path: Path, pages: bool, known: bool) -> str | None:
    db = sqlite3.connect(path, timeout=60)
    try:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return "the database is empty, its journal is not" if known else None
        if "meta" not in tables or "records" not in tables:
            if known:
                return "the database has lost its tables"
            raise UserError(f"memory.path={path} is not a memory bank: it is a database of something else.")
        if db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == ("1",):
            return "schema 1"
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0] if pages else "ok"
        return None if found == "ok" else found
    finally:
        db.close()


def repair(path: Path, reason: str) -> None:
    """Rebuild a bank and set the old file aside under a name with the time. Records may then want their vectors.

    A crash meanwhile leaves the damaged file in place, to be repaired at the next opening.
    """
    lock = journal_file.keep_others_out(path)
    try:
        new = path.with_name(path.name + ".rebuild")
        for old in (new, path.with_name(new.name + "-wal"), path.with_name(new.name + "-shm")):
            old.unlink(missing_ok=True)
        state = _replay(path)
        n_journal = len(state["records"])
        _salvage(path, state)
        _build(new, state, reason)
        aside = path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
        if path.exists():
            os.link(path, aside)
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size > 0:
            wal.replace(aside.with_name(aside.name + "-wal"))
        wal.unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        new.replace(path)
        for name in (".index", ".items.index"):
            path.with_name(path.name + name).unlink(missing_ok=True)
    finally:
        os.close(lock)
    logging.getLogger(__name__).warning(
        f"the bank {path} is damaged ({reason}): it is set aside as {aside.name} and rebuilt with "
        f"{len(state['records'])} records, {n_journal} of them from its journal."
    )


def _replay(path: Path) -> dict[str, Any]:
    """{records: id -> (rowid, values), links, facts, entries, gone} after every line of the journal."""
    records: dict[str, tuple[int, dict]] = {}
    links: dict[tuple, str] = {}
    facts: dict[str, str | None] = {}
    gone: set[str] = set()
    entries = {}
    for line in journal_file.read(path):
        if line["undo"] is not None:
            entries[line["seq"]] = (line["seq"], line["at"], line["tick"], line["reason"], dumps(line["undo"]))
        for kind, *rest in line["redo"]:
            if kind == "put":
                records[rest[0]["id"]] = (rest[1], rest[0])
                gone.discard(rest[0]["id"])
            elif kind == "update" and rest[0] in records:
                records[rest[0]][1].update(rest[1])
            elif kind == "remove":
                records.pop(rest[0], None)
                gone.add(rest[0])
            elif kind == "link":
                links[tuple(rest[:3])] = rest[3]
            elif kind == "unlink":
                links.pop(tuple(rest[:3]), None)
            elif kind == "fact":
                facts[rest[0]] = rest[1]
    found = {"records": records, "links": links, "facts": facts, "entries": entries, "gone": gone}
    return found | {"vectors": {}, "jobs": []}


def _salvage(path: Path, state: dict[str, Any]) -> None:
    """Add what the damaged file still gives and the journal does not have: vectors, and records of a lost journal."""
    if not path.exists():
        return
    for way in ("mode=ro", "immutable=1"):  # the second where its log cannot be read
        try:
            db = sqlite3.connect(f"{path.resolve().as_uri()}?{way}", uri=True)
            columns = [row[1] for row in db.execute("PRAGMA table_info(records)")]
        except sqlite3.DatabaseError:
            continue
        names = ["rowid", *(name for name in (*FIELDS, "query_embedding") if name in columns)]
        for row in _readable(db, "records", names):
            values = dict(zip(names, row))
            rowid, vector = values.pop("rowid"), values.pop("query_embedding", None)
            try:
                record = from_columns(values)
            except (ValueError, TypeError, KeyError):
                continue
            if record.id not in state["gone"]:
                state["records"].setdefault(record.id, (rowid, to_dict(record)))
                state["vectors"][rowid] = vector
        for row in _readable(db, "vectors", ["rowid", "vector"]):
            state["vectors"][row[0]] = row[1]
        for source, relation, target, note in _readable(db, "links", ["source", "relation", "target", "note"]):
            state["links"].setdefault((source, relation, target), note)
        for row in _readable(db, "journal", ["seq", "at", "tick", "reason", "undo"]):
            state["entries"].setdefault(row[0], row)
        for key, value in _readable(db, "meta", ["key", "value"]):
            state["facts"].setdefault(key, value)
        state["jobs"] += _readable(db, "jobs", list(JOB_FIELDS))
        db.close()
        return


def _readable(db: sqlite3.Connection, table: str, names: list[str]) -> Iterator[tuple]:
    """The rows of a table that can be read: from the front up to the damage, then from the back."""
    seen = set()
    for order in ("ASC", "DESC"):
        try:
            for rowid, *row in db.execute(f"SELECT rowid, {', '.join(names)} FROM {table} ORDER BY rowid {order}"):
                if rowid in seen:
                    return
                seen.add(rowid)
                yield tuple(row)
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue


def _build(path: Path, state: dict[str, Any], reason: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(f"BEGIN; {TABLES}")
    lengths = [len(v) for v in state["vectors"].values() if isinstance(v, bytes)]
    length = max(set(lengths), key=lengths.count, default=0)
    missing = 0
    for rowid, values in sorted(state["records"].values(), key=lambda pair: pair[0]):
        vector = state["vectors"].get(rowid)
        whole = isinstance(vector, bytes) and len(vector) == length
        missing += not whole
        writes.insert(db, from_dict(values), vector if whole else None, [], rowid)
    facts = state["facts"] | {"schema": SCHEMA_VERSION} | ({UNEMBEDDED: "1"} if missing else {})
    for key, value in facts.items():
        writes.set_fact(db, key, value)
    db.executemany("INSERT INTO links VALUES (?, ?, ?, ?)", [(*link, note) for link, note in state["links"].items()])
    entries = [state["entries"][seq] for seq in sorted(state["entries"])]
    db.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", entries)
    if state["jobs"]:
        db.execute(JOBS)
        db.executemany(f"INSERT OR IGNORE INTO jobs VALUES (?{', ?' * (len(JOB_FIELDS) - 1)})", state["jobs"])
    writes.enter(db, f"rebuilt: {reason}", "[]")
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
