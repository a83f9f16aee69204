"""Repair of a damaged bank: its file is set aside and a new one filled from the journal; never opened as empty."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from core.errors import UserError
from core.memory.records import n_records
from core.memory.sqlite import index as index_file
from core.memory.sqlite import journal_file
from core.memory.sqlite.recovery import aside_of, fill, keep_aside
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import create, finish

BANK_SUFFIXES = (".sqlite", ".sqlite3", ".db")
TABLE = b"CREATE TABLE records"  # stands in a bank's first pages


def repair(path: Path, reason: str) -> None:
    """Make a bank anew from its journal; the old file is kept under a name with the time. Keys are embedded afterwards.

    After a crash during the repair the damaged file is still in place and is repaired at the next opening. UserError if
    there is no journal.
    """
    new, wal = path.with_name(path.name + ".rebuild"), path.with_name(path.name + "-wal")
    aside, journal = aside_of(path), journal_file.path_of(path)
    with closing(journal_file.JournalFile(path, exclusive=True)) as file:
        if not journal.exists() or journal.stat().st_size == 0:
            raise UserError(
                f"the bank {path} is damaged ({reason}), and there is no journal beside it to make it anew from: put "
                "back a copy of both files, or restore a backup."
            )
        for old in path.parent.glob(f"{new.name}*"):
            old.unlink()
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            lost, count = _filled(db, path, reason)
            if lost:
                kept = keep_aside(journal)
                file.rewrite(journal_file.whole(SqliteSession(db)))
        if path.exists():
            os.link(path, aside)
        if wal.exists() and wal.stat().st_size > 0:
            wal.replace(aside.with_name(aside.name + "-wal"))
        wal.unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        new.replace(path)
        file.committed()
        index_file.remove(path)
    text = f"the bank {path} is damaged ({reason}): it is {f'set aside as {aside.name} and ' if aside.exists() else ''}"
    text += f"rebuilt with {n_records(count)} from its journal"
    text += (
        f"; {lost} of its changes could not be read there and are lost, the journal is kept as {kept}" if lost else ""
    )
    logging.getLogger(__name__).warning(f"{text}.")


def _filled(db: sqlite3.Connection, damaged: Path, reason: str) -> tuple[int, int]:
    """Fill a new bank from the journal file; returns (changes lost, records)."""
    db.execute("PRAGMA synchronous=FULL")
    db.execute("BEGIN")
    create(db)
    finish(db)
    lost = fill(SqliteSession(db), journal_file.read(journal_file.path_of(damaged)), 0)
    queue = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # which is no part of the journal
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(f"{damaged.resolve().as_uri()}?mode=ro", uri=True)) as old,
    ):
        db.executemany(queue, old.execute("SELECT * FROM jobs WHERE json_valid(payload) AND json_valid(result)"))
    db.execute("INSERT INTO meta VALUES ('rebuilt', ?)", (reason,))
    db.execute("COMMIT")
    return lost, db.execute("SELECT count(*) FROM records").fetchone()[0]


def set_aside_unreadable(path: Path) -> bool:
    """Rename a bank that is no longer readable as a database and has no journal; returns whether it did.

    A file that never was a bank stays: one that is named otherwise and holds nothing of a bank's tables.
    """
    if (reason := _unreadable(path)) is None or not (path.suffix in BANK_SUFFIXES or TABLE in path.read_bytes()):
        return False
    aside = aside_of(path)
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
