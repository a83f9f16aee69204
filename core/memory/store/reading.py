"""A bank's file that is only read, while others may or may not be writing to it; nothing is made beside it.

While a writer has the file open, SQLite's own locks keep a reader's view whole. Without one there is no log to share,
and locks would have to be made: so the file is read without any, and a writer that comes later does not know of the
reader. A small file is therefore copied into memory, and of a large one each read asks whether the file has changed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from core.errors import StopRun, UserError
from core.memory.store.migrations import in_present_schema
from core.memory.store.repair import Stamp, check_integrity, open_to_read, stamp

COPIED = 64 * 2**20  # bytes of a file up to which it is copied
TRIES = 20  # openings of a file that changes meanwhile


class ReadOnlyFile:
    """The connection `db` to a bank's file, in the present schema.

    UserError where there is no bank or a damaged one, StopRun where it changes while it is read.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UserError(f"memory.path={path} does not exist, and a frozen bank is only read.")
        self.path = path
        for _ in range(TRIES):
            before = stamp(path)
            try:
                self.db, self._stamp = _opened(path, before)
            except (sqlite3.DatabaseError, UserError):
                if before == stamp(path):
                    raise
                continue  # it may have been read half before and half after a change
            if before == stamp(path):
                self.db.execute("PRAGMA query_only=ON")
                return
            self.db.close()
        raise self._changed()

    def check(self) -> None:
        """StopRun where what was just read may be of two states of the file."""
        if self._stamp is not None and stamp(self.path) != self._stamp:
            raise self._changed()

    def _changed(self) -> StopRun:
        return StopRun(f"the bank {self.path} was changed while it was read: start this again.")


def _opened(path: Path, before: Stamp | None) -> tuple[sqlite3.Connection, Stamp | None]:
    """(a connection, what the file must stay so that it holds; None: nothing)."""
    if reason := check_integrity(path, read_only=True):
        raise UserError(f"memory.path={path} needs repair ({reason}): run `python -m core.memory doctor {path}`.")
    opened = open_to_read(path, before)
    found = in_present_schema(opened)
    if before is None or found is not opened:  # SQLite's locks hold, or it is a copy already
        return found, None
    if path.stat().st_size > COPIED:
        return found, before
    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    with closing(found):
        found.backup(copy)
    return copy, None
