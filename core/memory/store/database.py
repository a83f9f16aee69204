"""The bank's truth: one SQLite file in WAL mode. One writer at a time over all processes; readers are never blocked."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import StopRun, UserError
from core.memory.store import writes
from core.memory.store.changes import Change, dumps
from core.memory.store.journal_file import JournalFile, whole
from core.memory.store.queries import Queries, State
from core.memory.store.repair import UNEMBEDDED, damage, repair
from core.memory.store.schema import SCHEMA_VERSION, SELECT, TABLES, to_record

BUSY_S = 60  # how long a writer waits for others


class Store(Queries):
    """A bank file. Thread-safe. Opened read-only, it never writes, not even its tables.

    Reads have a connection of their own, so that they see the last committed state while another thread writes; only
    the thread that has a change open reads what it has done so far.
    Raises UserError when the file is no bank, and StopRun when the disk refuses a write.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._write_lock, self._read_lock = threading.Lock(), threading.RLock()
        self._writer: int | None = None  # the thread that has a change open
        self._check(read_only)
        self._journal = None if read_only else JournalFile(self.path)
        try:
            self._db = self._connect(read_only)
            self._reader = self._db if read_only else self._connect_reader()
            version = self.meta("schema")
        except sqlite3.OperationalError as error:
            raise StopRun(f"the bank {self.path} cannot be opened or cannot be written: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"memory.path={self.path} is not a memory bank: {error}.") from error
        if version not in (None, SCHEMA_VERSION):
            raise UserError(f"memory.path={self.path} has bank schema {version}; this version reads {SCHEMA_VERSION}.")

    def _check(self, read_only: bool) -> None:
        if read_only and not self.path.is_file():
            raise UserError(f"memory.path={self.path} does not exist, and a frozen bank is only read.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if reason := damage(self.path):
            if read_only:
                raise UserError(
                    f"memory.path={self.path} needs repair ({reason}): run `python -m core.memory doctor {self.path}`."
                )
            repair(self.path, reason)

    def _connect(self, read_only: bool) -> sqlite3.Connection:
        if read_only:
            # Without a live writer's log the file is complete, and `immutable` leaves no trace beside it.
            way = "mode=ro" if self.path.with_name(self.path.name + "-wal").exists() else "immutable=1"
            uri = f"{self.path.resolve().as_uri()}?{way}"
            return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        db = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'lexicon'").fetchone() is None:
            db.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")
        return db

    def _connect_reader(self) -> sqlite3.Connection:
        reader = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        reader.execute("PRAGMA query_only=ON")
        return reader

    @contextmanager
    def change(self, reason: str, embed: Callable, embedder: str) -> Iterator[Change]:
        """One transaction with one journal entry; the first names the embedder. Nested is a RuntimeError."""
        if self._writer == threading.get_ident():
            raise RuntimeError("a change is open already: changes cannot be nested")
        with self._write_lock:
            self._writer = threading.get_ident()
            try:
                with self.transaction() as db:
                    change = Change(db, embed)
                    yield change
                    if change.redo:
                        if self.meta("embedder") is None:
                            writes.set_fact(db, "embedder", embedder)
                            change.redo.append(["fact", "embedder", embedder])
                        self._enter(db, reason, change)
            finally:
                self._writer = None

    def _enter(self, db: sqlite3.Connection, reason: str, change: Change) -> None:
        undo = change.undo[::-1]
        seq, at, tick = writes.enter(db, reason, dumps(undo))
        line = {"seq": seq, "at": at, "tick": tick, "reason": reason, "undo": undo, "redo": change.redo}
        if not self._journal.append(line):
            self._journal.rewrite(whole(db))

    def embed_missing(self, embed: Callable) -> None:
        """Give vectors to the records that a repair could give none."""
        lost = self.rows(f"SELECT r.rowid, {SELECT[7:]} WHERE v.vector IS NULL")
        vectors = [(row[0], embed(to_record(row[1:]))[0]) for row in lost]
        with self._write_lock, self.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", vectors)
            db.executemany("INSERT INTO touched (record, found) VALUES (?, 1)", [(rowid,) for rowid, _ in vectors])
            writes.set_fact(db, UNEMBEDDED, None)

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """A transaction on what is no memory (the queue of jobs): no journal entry, nothing to undo."""
        with self._write_lock, self.transaction() as db:
            yield db

    def purge(self) -> None:
        """Overwrite what was deleted in every file of the bank."""
        with self._write_lock, self.transaction() as db:
            db.execute("INSERT INTO lexicon(lexicon) VALUES ('optimize')")
            self._journal.rewrite(whole(db))
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is executed in here, or nothing."""
        try:
            self._journal.queue()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has rolled back already
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._journal.leave()
        except sqlite3.OperationalError as error:
            raise StopRun(f"the bank {self.path} cannot be written: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error

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
        with self.reading() as db:
            try:
                return db.execute(query, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._explained(error) from error

    def version(self) -> int:
        """Changes whenever another connection, this store's own writer among them, has committed; cheap."""
        with self._read_lock:
            return self._reader.execute("PRAGMA data_version").fetchone()[0]

    @contextmanager
    def snapshot(self) -> Iterator[State]:
        """All reads in here see one state of the bank, which is given."""
        with self._read_lock:
            self._reader.execute("BEGIN")
            try:
                yield self.state()
            finally:
                self._reader.execute("COMMIT")

    def _explained(self, error: sqlite3.DatabaseError) -> Exception:
        """What to raise for an error of the database: one sentence where its file is damaged, else the error."""
        if type(error) is not sqlite3.DatabaseError:
            return error
        return UserError(
            f"the bank {self.path} is damaged ({error}): close it and run `python -m core.memory doctor {self.path}`."
        )

    def close(self) -> None:
        """Close the file; afterwards no WAL is left behind."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._db.close()
            if self._journal is not None:
                self._journal.close()
                self._journal = None
