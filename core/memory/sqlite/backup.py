"""A bank in one file: a checked copy of it that may be made while others write, and a bank made from such a copy."""

from __future__ import annotations

import sqlite3
import zipfile
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from core.errors import UserError
from core.jsonl import refused
from core.memory.sqlite import index as index_file
from core.memory.sqlite.damage import check_integrity, is_damage
from core.memory.sqlite.journal_file import JournalFile, path_of, whole
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.store import SqliteStore


def backup(bank: Path, file: Path) -> int:
    """Copy a bank, as it is after its last change, into a new file; returns the number of records.

    UserError if the bank is damaged or lacks changes of its journal, and if there is such a file.
    """
    if file.exists():
        raise UserError(f"there is a file {file} already: give the backup another name, or move that one away.")
    return _copy(bank, file)


def restore(file: Path, bank: Path, *, replace: bool = False) -> tuple[int, Path | None]:
    """Make a bank, and its journal, from a backup; returns (number of records, where a replaced bank lies now).

    replace   a bank that is there, with its journal, is set aside; False: UserError

    UserError if the backup is damaged, and if another process has the bank open.
    """
    if not file.is_file() or file.stat().st_size == 0:
        raise UserError(f"{file} is missing or empty, and no backup of a bank.")
    if zipfile.is_zipfile(file):
        raise UserError(f"{file} is a backup of a bank in PostgreSQL: restore it to an empty database there.")
    files = [bank, path_of(bank), bank.with_name(f"{bank.name}-wal")]
    there = [path for path in files if path.exists()]
    if there and not replace:
        raise UserError(f"{there[0]} is there already: give another path, or --replace, which sets the old bank aside.")
    new = bank.with_name(f".{bank.name}.restored")
    n, aside = _copy(file, new), None
    try:
        with closing(JournalFile(bank, exclusive=True)) as journal:
            if there:
                aside = bank.with_name(f"{bank.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
                for path in there:
                    path.replace(aside.with_name(path.name.replace(bank.name, aside.name, 1)))
                bank.with_name(f"{bank.name}-shm").unlink(missing_ok=True)
                index_file.remove(bank)
            new.replace(bank)
            with closing(sqlite3.connect(bank)) as db, db:
                db.execute("DELETE FROM meta WHERE key = 'backup'")
                journal.rewrite(whole(SqliteSession(db)))
                journal.committed()
    finally:
        new.unlink(missing_ok=True)
    return n, aside


def _copy(source: Path, target: Path) -> int:
    """Copy a bank's database by SQLite's online backup; it gets its name once every page is checked."""
    partial = target.with_name(f"{target.name}.partial")
    with closing(SqliteStore(source, read_only=True)) as store:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            with closing(sqlite3.connect(partial)) as copy:
                store.copy_to(copy)
                with copy:
                    copy.execute("INSERT OR REPLACE INTO meta VALUES ('backup', '1')")
                n = copy.execute("SELECT count(*) FROM records").fetchone()[0]
            if reason := check_integrity(partial, thorough=True):
                raise UserError(f"{source} is damaged ({reason}): no copy of it was made.")
            partial.replace(target)
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                raise UserError(f"{source} is damaged ({error}): no copy of it was made.") from error
            raise refused(target, OSError(0, str(error))) from error
        except OSError as error:
            raise refused(target, error) from error
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    return n
