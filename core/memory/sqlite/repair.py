"""Repair of a damaged bank: its file is renamed and the bank rebuilt from it and the journal; never opened as empty."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.moment import now
from core.memory.sqlite import index as index_file
from core.memory.sqlite import journal_file
from core.memory.sqlite.migrations import migrate
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import DIALECT, create, finish
from core.memory.store.schema import TRACKED, to_record

CHECKED = 64 * 2**20  # bytes: a smaller file is checked page by page at every opening, a larger one by `doctor`
BANK_SUFFIXES = (".sqlite", ".sqlite3", ".db")
TABLE = b"CREATE TABLE records"  # stands in a bank's first pages
Stamp = tuple[int, int, int]  # a file's inode, size and time of last modification
SALVAGED = ("meta", "vectors", "journal", "jobs", *TRACKED, *(f"undo_{table}" for table in TRACKED))


def check_integrity(path: Path, *, thorough: bool = False, read_only: bool = False) -> str | None:
    """Describe the damage of a bank's file; None if there is none, or no bank yet.

    thorough   check every page of a large file too

    Raises UserError for a file that never was a bank.
    """
    journal = journal_file.path_of(path)
    known = journal.exists() and journal.stat().st_size > 0
    if not path.exists() or path.stat().st_size == 0:
        return "the file is missing or empty, its journal is not" if known else None
    try:
        with closing(open_to_read(path, stamp(path)) if read_only else sqlite3.connect(path, timeout=60)) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if {"meta", "records"} <= tables:
                pages = thorough or path.stat().st_size <= CHECKED
                found = db.execute("PRAGMA quick_check(1)").fetchone()[0] if pages else "ok"
                return None if found == "ok" else found
    except sqlite3.OperationalError:
        return None  # no damage but a full disk or missing rights, which the next opening reports
    except sqlite3.DatabaseError as error:
        if known or error.sqlite_errorname != "SQLITE_NOTADB":
            return str(error)
        raise UserError(f"memory.path={path} is not a memory bank: {error}.") from error
    if tables and not known:
        raise UserError(f"memory.path={path} is not a memory bank: it is a database of something else.")
    return "the database has lost its tables" if known else None


def open_to_read(path: Path, before: Stamp | None) -> sqlite3.Connection:
    """Open a read-only connection that creates no files.

    before   the file's current stamp; None: a writer has it open, so SQLite's locks are used
    """
    way = "mode=ro" if before is None else "mode=ro&immutable=1"
    uri = f"{path.resolve().as_uri()}?{way}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)


def stamp(path: Path) -> Stamp | None:
    """A stamp that changes when the file does; None while it has a WAL, so that SQLite's locks protect readers."""
    if path.with_name(path.name + "-wal").exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def repair(path: Path, reason: str) -> None:
    """Rebuild a bank; the old file is kept under a name with the time. Records may need embedding afterwards.

    After a crash during the repair the damaged file is still in place and is repaired at the next opening.
    """
    new, wal = path.with_name(path.name + ".rebuild"), path.with_name(path.name + "-wal")
    aside = _aside(path)
    with closing(journal_file.JournalFile(path, exclusive=True)):
        for old in path.parent.glob(f"{new.name}*"):
            old.unlink()
        count = _rebuild(new, path, reason)
        if path.exists():
            os.link(path, aside)
        if wal.exists() and wal.stat().st_size > 0:
            wal.replace(aside.with_name(aside.name + "-wal"))
        wal.unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        new.replace(path)
        index_file.remove(path)
    logging.getLogger(__name__).warning(
        f"the bank {path} is damaged ({reason}): it is set aside as {aside.name} and rebuilt with {count} records."
    )


def set_aside_unreadable(path: Path) -> bool:
    """Rename a bank that is no longer readable as a database and has no journal; returns whether it did.

    A file that never was a bank stays: one that is named otherwise and holds nothing of a bank's tables.
    """
    if (reason := _unreadable(path)) is None or not (path.suffix in BANK_SUFFIXES or TABLE in path.read_bytes()):
        return False
    aside = _aside(path)
    with closing(journal_file.JournalFile(path, exclusive=True)):
        if _unreadable(path) is None:  # another process has just done so
            return False
        path.replace(aside)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        index_file.remove(path)
    logging.getLogger(__name__).warning(
        f"the bank {path} cannot be read ({reason}), and there is no journal to rebuild it from: it is set aside as "
        f"{aside.name}, and an empty one takes its place."
    )
    return True


def _unreadable(path: Path) -> sqlite3.DatabaseError | None:
    """SQLite's error for a file that is no database, if it has no journal; None for any other file."""
    journal = journal_file.path_of(path)
    if not path.is_file() or (journal.exists() and journal.stat().st_size > 0):
        return None
    try:
        with closing(sqlite3.connect(path, timeout=60)) as db:
            db.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        return None  # a full disk or missing rights
    except sqlite3.DatabaseError as error:
        return error
    return None


def _aside(path: Path) -> Path:
    """Where a damaged file is kept: beside it, with the time in its name."""
    return path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")


def _rebuild(new: Path, damaged: Path, reason: str) -> int:
    """Build a bank from the readable rows and the journal file; where they differ, the journal file wins."""
    with closing(sqlite3.connect(new, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=FULL")
        db.execute("BEGIN")
        _salvage(db, damaged)
        _replay(db, damaged)
        _drop_unreadable(db)
        db.execute(DIALECT.mark_unembedded)
        query = "INSERT INTO journal (at, tick, reason) SELECT ?, coalesce(max(tick), 0), ? FROM records"
        db.execute(query, (now(), f"rebuilt: {reason}"))
        finish(db)
        db.execute("COMMIT")
        return db.execute("SELECT count(*) FROM records").fetchone()[0]


def _salvage(db: Any, damaged: Path) -> None:
    """Copy the readable rows of a damaged file's tables, in its own schema."""
    for way in ("mode=ro", "mode=ro&immutable=1"):  # the second where its log cannot be read
        try:
            with closing(sqlite3.connect(f"{damaged.resolve().as_uri()}?{way}", uri=True)) as old:
                tables = dict(old.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
                for table in [table for table in SALVAGED if table in tables]:
                    db.execute(tables[table])
                    for row in _readable(old, table):
                        db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            return
        except sqlite3.DatabaseError:
            continue


def _readable(db: sqlite3.Connection, table: str) -> Iterator[tuple]:
    """The readable rows of a table: from the start up to the damage, then from the end."""
    seen = set()
    for order in ("ASC", "DESC"):
        try:
            for rowid, *row in db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {order}"):
                if rowid in seen:
                    return
                seen.add(rowid)
                yield tuple(row)
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue


def _replay(db: Any, damaged: Path) -> None:
    """Migrate to the current schema and replay the lines of the journal file."""
    migrate(db)
    create(db)
    for line in journal_file.read(damaged):
        with suppress(
            sqlite3.DatabaseError, LookupError, TypeError, ValueError
        ):  # damaged, but valid JSON all the same
            journal_file.replay(SqliteSession(db), line)


def _drop_unreadable(db: Any) -> None:
    """Delete salvaged vectors of a wrong length and records that cannot be parsed."""
    usual = "SELECT length(vector) FROM vectors GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
    db.execute(f"DELETE FROM vectors WHERE typeof(vector) <> 'blob' OR length(vector) <> ({usual})")
    spoilt = []
    for row in db.execute(DIALECT.records):
        try:
            to_record(row)
        except (ValueError, TypeError, LookupError):
            spoilt.append(row[:1])
    db.executemany("DELETE FROM records WHERE rowid = ?", spoilt)
