"""Repair of a damaged bank: its file is renamed and the bank rebuilt from it and the journal; never opened as empty."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.moment import now
from core.memory.records import n_records
from core.memory.sqlite import index as index_file
from core.memory.sqlite import journal_file
from core.memory.sqlite.damage import damage_of
from core.memory.sqlite.migrations import drop_triggers, migrate
from core.memory.sqlite.recovery import aside_of, empty_tracked, keep_aside
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import DIALECT, create, finish
from core.memory.store.changes import Rows, restore_rows
from core.memory.store.keys import pass_keys
from core.memory.store.schema import TRACKED, is_intact

BANK_SUFFIXES = (".sqlite", ".sqlite3", ".db")
TABLE = b"CREATE TABLE records"  # stands in a bank's first pages
SALVAGED = ("meta", "keys", "vectors", "journal", "jobs", *TRACKED, *(f"undo_{table}" for table in TRACKED))


def repair(path: Path, reason: str) -> None:
    """Rebuild a bank; the old file is kept under a name with the time. Records may need embedding afterwards.

    After a crash during the repair the damaged file is still in place and is repaired at the next opening. UserError if
    nothing can be read.
    """
    new, wal = path.with_name(path.name + ".rebuild"), path.with_name(path.name + "-wal")
    aside, journal = aside_of(path), journal_file.path_of(path)
    with closing(journal_file.JournalFile(path, exclusive=True)) as file:
        for old in path.parent.glob(f"{new.name}*"):
            old.unlink()
        found = journal_file.scan(path)
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            try:
                lost = _rebuild(db, path, reason, found)
            except (sqlite3.DatabaseError, UserError) as error:
                raise UserError(
                    f"the bank {path} is damaged ({reason}) and cannot be rebuilt, even from its journal: {error}. "
                    "Put back a copy of both files."
                ) from error
            count = db.execute("SELECT count(*) FROM records").fetchone()[0]
            n_changes, last = db.execute("SELECT count(*), max(seq) FROM journal").fetchone()
            if found.damaged:
                keep_aside(journal)
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
    kept = f"set aside as {aside.name} and " if aside.exists() else ""
    text = f"the bank {path} is damaged ({reason}): it is {kept}rebuilt with {n_records(count)}"
    if found.damaged:
        text += f"; {journal.name} was damaged in {len(found.damaged)} lines, too: of the {last - 1} changes that "
        text += f"one of them names {last - n_changes} are lost, and later ones if there were any"
    text += "; there was no journal to rebuild it from" if not found.seq else ""
    text += "; these could be read in neither and are lost: " + ", ".join(lost) if lost else ""
    logging.getLogger(__name__).warning(f"{text}.")


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


def _rebuild(db: sqlite3.Connection, damaged: Path, reason: str, found: journal_file.Scan) -> list[str]:
    """Fill a new bank from the readable rows and the journal file; where they differ, the journal file wins.

    Returns what of the records could be read in neither.
    """
    db.execute("PRAGMA synchronous=FULL")
    db.execute("BEGIN")
    _salvage(db, damaged)
    session = SqliteSession(db)
    migrate(db)
    drop_triggers(db)
    create(db)
    have = db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0]
    if found.seq >= have and found.seq and not found.damaged:
        empty_tracked(session)  # the journal has all of it
    salvaged = _intact_rows(db)
    _replay(session, damaged)
    if found.damaged:  # a line may be missing that is newer than those that were replayed
        restore_rows(session, salvaged)
        _replay(session, damaged, after=have)
    lost = _drop_unreadable(db)
    db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")
    query = "INSERT INTO journal (at, tick, reason) SELECT ?, coalesce(max(tick), 0), ? FROM records"
    db.execute(query, (now(), f"rebuilt: {reason}"))
    finish(db)
    pass_keys(session, None)
    db.execute("COMMIT")
    return lost


def _replay(db: SqliteSession, damaged: Path, after: int = -1) -> None:
    """Replay the changes of the journal file after a change."""
    for line in journal_file.read(damaged):
        if line["seq"] > after:
            with suppress(sqlite3.DatabaseError, LookupError, TypeError, ValueError):  # no sense, though valid JSON
                journal_file.replay(db, line)


def _intact_rows(db: Any) -> Rows:
    """The rows that were salvaged of the tables that the journal has, too; of the records those that are intact."""
    found = {}
    for table, (columns, _) in DIALECT.tracked.items():
        rows = [(1, *row) for row in db.execute(f"SELECT {', '.join(columns)} FROM {table}")]
        found[table] = [row for row in rows if table != "records" or is_intact(row[2:])]
    return found


def _salvage(db: Any, damaged: Path) -> None:
    """Copy the readable rows of a damaged file's tables, in its own schema."""
    for way in ("mode=ro", "mode=ro&immutable=1"):  # the second where its log cannot be read
        try:
            with closing(sqlite3.connect(f"{damaged.resolve().as_uri()}?{way}", uri=True)) as old:
                tables = dict(old.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue
        for table in [table for table in SALVAGED if table in tables]:
            with (
                suppress(sqlite3.DatabaseError),
                closing(sqlite3.connect(f"{damaged.resolve().as_uri()}?{way}", uri=True)) as old,
            ):
                db.execute(tables[table])
                for row in _readable(old, table):
                    with suppress(sqlite3.IntegrityError):  # NULL where there was none
                        db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        return


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


def _drop_unreadable(db: Any) -> list[str]:
    """Delete damaged keys, and records that are not what was stored; returns the name of each of these."""
    usual = "SELECT length(vector) FROM keys GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
    db.execute(f"DELETE FROM keys WHERE typeof(vector) <> 'blob' OR length(vector) <> ({usual})")
    why = json.dumps({"error": "the attempt was damaged in the bank's file: send it again"})
    spoilt = "NOT json_valid(payload) OR NOT json_valid(result)"
    db.execute(f"UPDATE jobs SET state = 'failed', payload = '{{}}', result = ? WHERE {spoilt}", (why,))
    lost = [(row[0], str(row[1])) for row in db.execute(DIALECT.records) if damage_of(row)]
    db.executemany("DELETE FROM records WHERE rowid = ?", [row[:1] for row in lost])
    return [f"{id:.40} (row {rowid})" for rowid, id in lost]
