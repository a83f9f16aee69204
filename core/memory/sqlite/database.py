"""Opening, reading and writing a bank's file. One writer at a time over all processes; readers never wait."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path

from core.errors import StopRun, UserError
from core.file_lock import why
from core.memory.sqlite.damage import Stamp, check_integrity, is_damage, open_to_read, printed, stamp
from core.memory.sqlite.journal_file import JournalFile, last, last_of, lock_of, path_of, whole
from core.memory.sqlite.migrations import OLDEST, migrate, migrated_copy_if_old, schema_version
from core.memory.sqlite.recovery import bring_up
from core.memory.sqlite.repair import repair
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import DIALECT, SCHEMA, finish
from core.memory.store.contract import BankStore, Busy, Texts
from core.memory.store.schema import Damaged

BUSY_S = 60  # seconds that a writer waits for others
COPIED = 64 * 2**20  # copy files up to this size (bytes) into memory
TRIES = 20  # attempts to open a file that keeps changing
SETTLES_S = 1.0  # seconds after which a writer that has written its line of the journal has committed, or is dead

State = tuple[int, int, str | None]  # of the bank: max rowid, max seq in `touched`, journal entry of the last erasure
STATE = (
    "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0), "
    "(SELECT value FROM meta WHERE key = 'forgot')"
)

# Which banks need no journal: a backup is whole without one, and to one that has counted no change nothing was ever
# written, unless it is a copy of the file alone: such a one lacks the files of the locks, too.
_IS_BACKUP = "SELECT 1 FROM meta WHERE key = 'backup'"  # until it is first opened for writing
_IS_UNWRITTEN = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM records) AND NOT EXISTS (SELECT 1 FROM journal)"

log = logging.getLogger(__name__)


class ReadOnlyFile:
    """A read-only connection `db` to a bank's file, in the current schema; creates no files.

    If a writer has the file open, SQLite locks protect us. If not, we read without locks (to create no files): small
    files are copied into memory, large ones are checked for changes at each read.

    UserError if there is no bank or a damaged one, StopRun if it changes while it is read.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file() and not path_of(path).exists():
            raise UserError(f"the bank {path} does not exist, and opening one to read it makes none.")
        self.path, ahead = path, 0
        for _ in range(TRIES):
            before = stamp(path)
            try:
                self.db, self._stamp = _opened(path, before)
            except (sqlite3.DatabaseError, UserError):
                if before == stamp(path):
                    raise
                continue  # the file changed during the opening
            end = last(path_of(path))
            ahead = end[0] - last_of(self.db)[0] if end and not self.db.execute(_IS_BACKUP).fetchone() else 0
            if before == stamp(path) and ahead <= 0:
                self.db.execute("PRAGMA query_only=ON")
                warn_of_copy(path, self.db, is_alone=not lock_of(path).exists())
                return
            self.db.close()
            if ahead > 0:  # by a writer that is about to commit, or for good
                time.sleep(SETTLES_S / TRIES)
        if ahead > 0:
            raise _needs_repair(path, f"its journal is {ahead} changes ahead of it")
        raise self._changed()

    def check(self) -> None:
        """StopRun if the file has changed, so that the last read may mix two states of it."""
        if self._stamp is not None and stamp(self.path) != self._stamp:
            raise self._changed()

    def _changed(self) -> StopRun:
        return StopRun(f"the bank {self.path} was changed while it was read: start this again.")


def warn_of_copy(path: Path, db: sqlite3.Connection, *, is_alone: bool) -> None:
    """Warn of a bank that may be a copy of its file alone. is_alone: the files of its locks are not beside it."""
    if path_of(path).exists() or db.execute(_IS_BACKUP).fetchone():
        return
    if is_alone or not db.execute(_IS_UNWRITTEN).fetchone():
        log.warning(
            f"the bank {path} has no journal beside it: a copy made while it was in use is incomplete. Copy "
            f"{path.name}* (what is missing is in the -wal file), or use `reasoningbank bank backup`."
        )


def _needs_repair(path: Path, reason: str) -> UserError:
    return UserError(f"the bank {path} needs repair ({reason}): run `reasoningbank bank doctor {path}`.")


def _opened(path: Path, before: Stamp | None) -> tuple[sqlite3.Connection, Stamp | None]:
    """(connection, the file stamp that must not change; None: no check needed)."""
    if reason := check_integrity(path, read_only=True):
        raise _needs_repair(path, reason)
    opened = open_to_read(path, before)
    found = migrated_copy_if_old(opened)
    if before is None or found is not opened:  # SQLite's locks protect us, or it is a copy already
        return found, None
    if path.stat().st_size > COPIED:
        return found, before
    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    with closing(found):
        found.backup(copy)
    return copy, None


class SqliteDatabase(BankStore):
    """One SQLite file in WAL mode. Thread-safe. Opened read-only, it never writes, not even its tables.

    Reads have their own connection, so that they see the last committed state while another thread writes; only the
    thread with an open change sees what that has done so far.
    Raises UserError when the file is no bank or damaged, and StopRun when the disk refuses a write.
    """

    dialect = DIALECT
    path: Path

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._write_lock, self._read_lock = threading.Lock(), threading.RLock()
        self._writer: int | None = None  # the thread that has a transaction open
        self._journal_file: JournalFile | None = None
        self._open: list[sqlite3.Connection | JournalFile] = []  # what `close` closes
        self._only_read: ReadOnlyFile | None = None
        try:
            with self._explaining():
                if read_only:
                    self._only_read = ReadOnlyFile(self.path)
                    self._db = self._reader = self._only_read.db
                    self._open.append(self._db)
                else:
                    self._open_or_repair()
        except BaseException:
            self.close()
            raise

    def _open_or_repair(self) -> None:
        reason = check_integrity(self.path)
        if reason is None:
            try:
                with self._explaining():
                    return self._open_to_write()
            except Damaged as error:
                self.close()
                reason = error.what
        repair(self.path, reason)
        return self._open_to_write()

    def _open_to_write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_copy = self.path.exists() and not lock_of(self.path).exists()
        self._journal_file = JournalFile(self.path)
        self._open.append(self._journal_file)
        self._db = self._connect()
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA secure_delete=ON")  # overwrite deleted data
        if schema_version(self._db) != SCHEMA:
            with self.unjournaled() as db:
                if (older := migrate(db.db)) != SCHEMA:
                    finish(db.db)
                    if older:
                        said, spoilt = bring_up(db, self.path)
                        if spoilt or older != OLDEST:  # whose lines are read
                            self._journal.rewrite(whole(db))
                        self._say(said)
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that a copy of the file alone is known for a bank
        elif last_of(self._db) != last(path_of(self.path)) or self._db.execute(_IS_BACKUP).fetchone():
            self.compare_with_journal()
        elif is_copy:
            warn_of_copy(self.path, self._db, is_alone=True)
        self._reader = self._connect()
        self._reader.execute("PRAGMA query_only=ON")

    def compare_with_journal(self) -> list[str]:
        """Make the changes that only the journal's file has, or write that anew; returns what was said about it."""
        with self.unjournaled() as db:  # a change of another process may just be under way
            said, spoilt = bring_up(db, self.path)
            if spoilt:
                self._journal.rewrite(whole(db))
        self._say(said)
        return [said] if said else []

    def _say(self, found: str | None) -> None:
        if found:
            log.warning(f"the bank {self.path} and its journal differ: {found}.")

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        self._open.append(db)
        return db

    @property
    def _journal(self) -> JournalFile:
        """The file of the journal. UserError if the bank was opened read-only: every write needs this file."""
        if self._journal_file is None:
            raise UserError(f"the bank {self.path} is opened for reading only.")
        return self._journal_file

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn SQLite's errors about the file into StopRun or UserError with one sentence."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if is_damage(error):
                raise Damaged(self.path, printed(error)) from error
            if not isinstance(error, sqlite3.OperationalError):  # a bug in this program
                raise
            raise StopRun(f"the bank {self.path} cannot be opened or cannot be written: {why(error)}.") from error

    @contextmanager
    def unjournaled(self, wait_s: float | None = None) -> Iterator[SqliteSession]:
        if self._writer == threading.get_ident():
            raise RuntimeError("a change is open already: changes cannot be nested")
        with self._explaining(), self._write_lock_and_begin(wait_s):
            self._writer = threading.get_ident()
            try:
                yield SqliteSession(self._db)
                self._db.execute("COMMIT")
                self._journal.committed()
            except BaseException:
                if self._db.in_transaction:  # a full disk has rolled back already
                    self._db.execute("ROLLBACK")
                self._journal.take_back()
                raise
            finally:
                self._writer = None

    @contextmanager
    def _write_lock_and_begin(self, wait_s: float | None) -> Iterator[None]:
        """Wait until this thread and this process may write, and begin the transaction."""
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
            while self._open:
                self._open.pop().close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection for reads of this thread: that of its open change, else the reader."""
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

    def copy_to(self, copy: sqlite3.Connection) -> None:
        """Copy the last committed state into an empty database."""
        with self.reading() as db:
            db.backup(copy)
            if self._only_read is not None:
                self._only_read.check()

    @property
    def is_changing(self) -> bool:
        return self._writer == threading.get_ident()

    def texts(self, namespace: str | None, known: State | None) -> Texts:
        query = "SELECT rowid, original_query, items FROM records WHERE ($1 IS NULL OR namespace = $1)"
        with nullcontext() if self.is_changing else self.read_transaction():
            state: State = self.rows(STATE)[0]
            if known is None or known[2] != state[2]:
                return Texts(state, None, self.rows(query, (namespace,)))
            if known == state:
                return Texts(state, [], [])
            gone = self.rows("SELECT DISTINCT record FROM touched WHERE seq > $1 AND found", (known[1],))
            # +: by row id, of which few are new, and not by the namespace's index
            new = query.replace("namespace = $1", "+namespace = $1") + (
                " AND rowid IN (SELECT rowid FROM records WHERE rowid > $2 "
                "UNION SELECT record FROM touched WHERE seq > $3 AND found)"
            )
            return Texts(state, [row[0] for row in gone], self.rows(new, (namespace, known[0], known[1])))

    def version(self) -> int:
        """SQLite's data_version: changes when another connection, such as this store's writer, has committed; cheap."""
        with self._read_lock:
            return self._reader.execute("PRAGMA data_version").fetchone()[0]

    def dim(self) -> int | None:
        found = self.rows("SELECT length(vector) / 4 FROM keys LIMIT 1")
        return found[0][0] if found else None

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        """All reads inside see the same state of the bank."""
        with self._read_lock:
            self._reader.execute("BEGIN")
            try:
                yield
            finally:
                self._reader.execute("COMMIT")
