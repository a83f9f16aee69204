"""Locks between processes, on files. The kernel releases one when its holder ends, however it ends, so none is left.

Not filelock's FileLock: it opens and closes its file each time (57 µs instead of 2 µs), and where a file system has no
locks it makes do with the existence of a file, which outlives a killed holder. It is imported where a lock is taken, so
that `scripts.doctor` can look at a checkout without packages.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from weakref import WeakSet

from core.errors import StopRun

_LACKING = {"IOERR_SHM": "shared memory maps", "FSYNC": "fsync"}  # of a file system, by SQLite's names of errors
POLL_S = 0.001  # seconds between two tries; a writer of a bank holds its lock for a few milliseconds


class FileLock:
    """An exclusive lock on a file, which stays in place. It excludes every other holder, in this process too.

    A forked child does not hold it. StopRun if the file cannot be opened, or lies on a file system without locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _refused(path, error.strerror) from error
        _open.add(self)

    def take(self, wait_s: float | None = 0.0, poll_s: float = POLL_S) -> bool:
        """Whether it was taken within `wait_s` seconds; None: no limit. Tried every `poll_s` seconds."""
        from filelock import lock_descriptor

        until = None if wait_s is None else time.monotonic() + wait_s
        try:
            while not lock_descriptor(self._file, blocking=False):
                if until is not None and time.monotonic() >= until:
                    return False
                time.sleep(poll_s)
        except OSError as error:
            raise _refused(self.path, error.strerror) from error
        return True

    def release(self) -> None:
        """Let others take it; it can be taken again."""
        from filelock import unlock_descriptor

        unlock_descriptor(self._file)

    def close(self) -> None:
        """Release it for good. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class SharedLock:
    """A lock that many hold together, or one alone, until it is closed.

    It is a lock of SQLite's on an empty file, so it works wherever a bank does, and may be closed by another thread.

    alone   hold it alone: BlockingIOError if anybody holds it. Otherwise wait until nobody holds it alone
    """

    def __init__(self, path: Path, *, alone: bool) -> None:
        from filelock import ReadWriteLock, Timeout

        check_locks(path.parent)
        try:
            self._lock = ReadWriteLock(path, is_singleton=False)
            if alone:
                self._lock.acquire_write(blocking=False)
            else:
                self._lock.acquire_read()
        except Timeout as error:
            raise BlockingIOError(f"{path} is held by another") from error
        except sqlite3.Error as error:
            raise _refused(path, str(error)) from error

    def close(self) -> None:
        """Release it. Idempotent."""
        self._lock.close()


@lru_cache(maxsize=64)
def check_locks(folder: Path) -> None:
    """Raise StopRun if a folder's file system has no locks (ENOLCK), which SQLite takes for others' and waits for."""
    try:
        import fcntl
    except ImportError:  # as on Windows
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:  # of its own: to close a file ends this process's locks on it
            fcntl.lockf(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise _refused(folder, error.strerror) from error


def try_lock(path: Path) -> FileLock | None:
    """Take an exclusive lock; None if it is held already. It is held until it is closed."""
    lock = FileLock(path)
    if lock.take():
        return lock
    lock.close()
    return None


def why(error: Exception) -> str:
    """What an error of SQLite says, or what the file system lacks, which SQLite calls a disk I/O error."""
    name = getattr(error, "sqlite_errorname", "")
    lacks = next((what for part, what in _LACKING.items() if part in name), "")
    return f"its file system has no {lacks}: put it on another one" if lacks else str(error)


def _refused(path: Path, reason: str | None) -> StopRun:
    if not path.exists() and not os.access(path.parent, os.W_OK):
        return StopRun(f"the folder {path.parent} cannot be written, where {path.name} would be made: {reason}.")
    return StopRun(
        f"{path} cannot be locked: {reason}; if its file system has no locks, as some of networks and containers, "
        "put it on another one."
    )


def _close_in_child() -> None:
    """A forked child would hold the locks of a killed parent."""
    for lock in list(_open):
        lock.close()


_open: WeakSet[FileLock] = WeakSet()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_close_in_child)
