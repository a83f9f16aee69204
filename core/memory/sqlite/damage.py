"""Whether a bank's file is damaged, as SQLite's own check says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from core.errors import UserError
from core.file_lock import check_locks
from core.memory.sqlite import journal_file
from core.memory.store.schema import Damaged

CHECKED = 4 * 2**20  # bytes: a smaller file is checked page by page at every opening, a larger one by `doctor`
_READ = (sqlite3.DatabaseError, UnicodeDecodeError)
Stamp = tuple[int, int, int]  # a file's inode, size and time of last modification


def is_damage(error: Exception) -> bool:
    """Whether an error of a read means a damaged file, and no full disk, missing right or waiting writer."""
    if isinstance(error, sqlite3.OperationalError):
        # No code: a text is not UTF-8. SQLITE_ERROR: the schema or a JSON text is not what our statements expect.
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR
    return isinstance(error, UnicodeDecodeError | Damaged) or type(error) is sqlite3.DatabaseError


def check_integrity(path: Path, *, thorough: bool = False, read_only: bool = False) -> str | None:
    """Describe the damage of a bank's file; None if there is none, or no bank yet.

    thorough   check every page and index of a large file too

    Raises UserError for a file that never was a bank, and where nothing is left of one.
    """
    journal = journal_file.path_of(path)
    if journal.is_dir():
        raise UserError(f"{journal} is a folder, and the journal of the bank {path} belongs there: move it away.")
    known = journal.exists() and journal.stat().st_size > 0
    if not path.exists() or path.stat().st_size == 0:
        if journal.exists() and not known:
            raise UserError(
                f"the bank {path} and its journal are both empty, and nothing is left to rebuild it from: put back "
                f"copies of both, or remove {journal.name} to begin with an empty bank."
            )
        return "the file is missing or empty, its journal is not" if known else None
    tables: set[str] = set()
    try:
        if not read_only or stamp(path) is None:
            check_locks(path.parent)
        with closing(open_to_read(path, stamp(path)) if read_only else sqlite3.connect(path, timeout=60)) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if {"meta", "records"} <= tables:
                if not thorough and path.stat().st_size > CHECKED:
                    return None
                found = db.execute(f"PRAGMA {'integrity' if thorough else 'quick'}_check(1)").fetchone()[0]
                return None if found == "ok" else " ".join(found.split())
    except _READ as error:
        if not is_damage(error):
            return None  # a full disk or missing rights, which the next opening reports
        if known or getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB":
            return printed(error)
        raise UserError(f"memory.path={path} is not a memory bank: {error}.") from error
    if tables and not known:
        raise UserError(f"memory.path={path} is not a memory bank: it is a database of something else.")
    return "the database has lost its tables" if known else None


def printed(error: Exception) -> str:
    """What an error of a read says about the damage."""
    return "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def open_to_read(path: Path, before: Stamp | None) -> sqlite3.Connection:
    """Open a read-only connection that creates no files.

    before   the file's current stamp; None: a writer has it open, so SQLite's locks are used
    """
    way = "mode=ro" if before is None else "mode=ro&immutable=1"
    uri = f"{path.resolve().as_uri()}?{way}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)


def stamp(path: Path) -> Stamp | None:
    """A stamp that changes when the file does; None while it has a WAL, so that SQLite's locks protect readers."""
    if path.with_name(path.name + "-wal").exists() or not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
