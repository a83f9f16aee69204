"""A bank's file: how it is opened, read and written. One writer at a time over all processes; readers never wait."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from core.errors import StopRun, UserError
from core.memory.sqlite.journal_file import JournalFile, whole
from core.memory.sqlite.migrations import in_present_schema, migrate, version
from core.memory.sqlite.repair import Stamp, check_integrity, open_to_read, repair, stamp
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import DIALECT, SCHEMA, finish
from core.memory.store.contract import Busy

BUSY_S = 60  # how long a writer waits for others
COPIED = 64 * 2**20  # bytes of a file up to which it is copied
TRIES = 20  # openings of a file that changes meanwhile


class ReadOnlyFile:
    """The connection `db` to a bank's file that is only read, in the present schema; nothing is made beside it.

    While a writer has the file open, SQLite's own locks keep a reader's view whole. Without one there is no log to
    share, and locks would have to be made: so the file is read without any, and a writer that comes later does not know
    of the reader. A small file is therefore copied into memory, and of a large one each read asks whether it has
    changed.

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


class SqliteDatabase:
    """One SQLite file in WAL mode. Thread-safe. Opened read-only, it never writes, not even its tables.

    Reads have a connection of their own, so that they see the last committed state while another thread writes; only
    the thread that has a change open reads what it has done so far.
    Raises UserError when the file is no bank or damaged, and StopRun when the disk refuses a write.
    """

    dialect = DIALECT

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._write_lock, self._read_lock = threading.Lock(), threading.RLock()
        self._writer: int | None = None  # the thread that has a transaction open
        self._db: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._journal: JournalFile | None = None
        self._only_read: ReadOnlyFile | None = None
        try:
            with self._explaining():
                if read_only:
                    self._only_read = ReadOnlyFile(self.path)
                    self._db = self._reader = self._only_read.db
                else:
                    self._open_to_write()
        finally:
            if self._reader is None:
                self.close()

    def _open_to_write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if reason := check_integrity(self.path):
            repair(self.path, reason)
        self._journal = JournalFile(self.path)
        self._db = self._connect()
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten
        if version(self._db) != SCHEMA:
            with self.unjournaled() as db:
                if (older := migrate(db.db)) != SCHEMA:
                    finish(db.db)
                    if older:
                        self._journal.rewrite(whole(db))
        reader = self._connect()
        reader.execute("PRAGMA query_only=ON")
        self._reader = reader

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """What goes wrong with the file, said in one sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StopRun(f"the bank {self.path} cannot be opened or cannot be written: {error}.") from error
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # a mistake of ours
                raise
            doctor = f"python -m core.memory doctor {self.path}"
            raise UserError(f"the bank {self.path} is damaged ({error}): close it and run `{doctor}`.") from error

    @contextmanager
    def unjournaled(self, wait_s: float | None = None) -> Iterator[SqliteSession]:
        """A transaction without a journal entry, for what is no memory: all that is executed in here, or nothing.

        A second one inside the first is a RuntimeError.

        wait_s   seconds that it waits for other writers; after them it is a Busy and nothing is done. Nor does it wait
                 for the disk: a failure of the power may take what was done, and leaves the bank whole
        """
        if self._writer == threading.get_ident():
            raise RuntimeError("a change is open already: changes cannot be nested")
        with self._explaining(), self._begun(wait_s):
            self._writer = threading.get_ident()
            try:
                yield SqliteSession(self._db)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has rolled back already
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._writer = None

    @contextmanager
    def _begun(self, wait_s: float | None) -> Iterator[None]:
        """The turn of this thread and of this process to write, with a transaction open."""
        busy = Busy(f"others are writing to the bank {self.path}")
        if not self._write_lock.acquire(timeout=-1 if wait_s is None else wait_s):
            raise busy
        with ExitStack() as stack:
            stack.callback(self._write_lock.release)
            if wait_s is not None:
                stack.callback(self._db.execute, "PRAGMA synchronous=FULL")
            try:
                stack.enter_context(self._journal.turn(wait_s))
                self._begin(wait_s)
            except BlockingIOError:
                raise busy from None
            yield

    def _begin(self, wait_s: float | None) -> None:
        if wait_s is None:
            self._db.execute("BEGIN IMMEDIATE")
            return
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname.startswith("SQLITE_BUSY"):
                raise BlockingIOError from error
            raise
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")

    def close(self) -> None:
        """Close the file; afterwards no WAL is left behind."""
        with self._write_lock, self._read_lock:
            for part in {self._reader, self._db, self._journal} - {None}:
                part.close()
            self._journal = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection that this thread reads with."""
        if self._writer == threading.get_ident():
            yield self._db
        else:
            with self._read_lock:
                yield self._reader

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query. Raises UserError where the file is damaged."""
        with self._explaining(), self.reading() as db:
            try:
                return SqliteSession(db).execute(query, values).fetchall()
            finally:
                if self._only_read is not None:
                    self._only_read.check()

    def version(self) -> int:
        """Changes whenever another connection, this store's own writer among them, has committed; cheap."""
        with self._read_lock:
            return self._reader.execute("PRAGMA data_version").fetchone()[0]

    def meta(self, key: str) -> str | None:
        """A fact about the file (schema, embedder); None when it was never set."""
        found = self.rows("SELECT value FROM meta WHERE key = $1", (key,))
        return found[0][0] if found else None

    def dim(self) -> int | None:
        """Numbers in a vector; None while there is none."""
        found = self.rows("SELECT length(vector) / 4 FROM vectors LIMIT 1")
        return found[0][0] if found else None

    def count(self) -> int:
        """How many records there are."""
        return self.rows("SELECT count(*) FROM records")[0][0]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads in here see one state of the bank."""
        with self._read_lock:
            self._reader.execute("BEGIN")
            try:
                yield
            finally:
                self._reader.execute("COMMIT")
