"""The bank's truth: one SQLite file in WAL mode. One writer at a time over all processes; readers are never blocked."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import StopRun, UserError
from core.memory import writes
from core.memory.changes import Change, dumps
from core.memory.filter import Filter
from core.memory.schema import SCHEMA_VERSION, SELECT, TABLES, to_record
from core.types import MemoryRecord

BUSY_S = 60  # how long a writer waits for others
State = tuple[int, int]  # (highest rowid, last entry of `touched`)


class Store:
    """A bank file. Thread-safe. Opened read-only, it never writes, not even its tables.

    Reads have a connection of their own, so that they see the last committed state while another thread writes; only
    the thread that has a change open reads what it has done so far.
    Raises UserError when the file is no bank, and StopRun when the disk refuses a write.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._write_lock, self._read_lock = threading.Lock(), threading.RLock()
        self._writer: int | None = None  # the thread that has a change open
        if read_only and not self.path.is_file():
            raise UserError(f"memory.path={self.path} does not exist, and a frozen bank is only read.")
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

    def _connect(self, read_only: bool) -> sqlite3.Connection:
        if read_only:
            # Without a live writer's log the file is complete, and `immutable` leaves no trace beside it.
            way = "mode=ro" if self.path.with_name(self.path.name + "-wal").exists() else "immutable=1"
            uri = f"{self.path.resolve().as_uri()}?{way}"
            return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'snapshots'").fetchone() is None:
            db.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")
        return db

    def _connect_reader(self) -> sqlite3.Connection:
        reader = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
        reader.execute("PRAGMA query_only=ON")
        return reader

    @contextmanager
    def change(self, reason: str, embed: Callable, facts: dict[str, str]) -> Iterator[Change]:
        """One transaction with one journal entry; facts are set at a bank's first use. Nested is a RuntimeError."""
        if self._writer == threading.get_ident():
            raise RuntimeError("a change is open already: changes cannot be nested")
        with self._write_lock:
            self._writer = threading.get_ident()
            try:
                with self._transaction() as db:
                    change = Change(db, embed)
                    yield change
                    if change.undo:
                        db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", facts.items())
                        writes.enter(db, reason, dumps(change.undo[::-1]))
            finally:
                self._writer = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has rolled back already
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise StopRun(f"the bank {self.path} cannot be written: {error}.") from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection that this thread reads with."""
        if self._writer == threading.get_ident():
            yield self._db
        else:
            with self._read_lock:
                yield self._reader

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query."""
        with self.reading() as db:
            return db.execute(query, values).fetchall()

    def meta(self, key: str) -> str | None:
        """A fact about the bank (schema, embedder, dim); None when it was never set."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def count(self) -> int:
        """How many records there are."""
        return self.rows("SELECT count(*) FROM records")[0][0]

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

    def state(self) -> State:
        """How far records and changes to them go."""
        query = "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0)"
        return self.rows(query)[0]

    def ids(self) -> set[str]:
        """The ids of all records."""
        return {row[0] for row in self.rows("SELECT id FROM records")}

    def get(self, rowids: list[int]) -> dict[int, MemoryRecord]:
        """The whole records of some rowids; those that are gone are left out."""
        marks = ", ".join("?" * len(rowids))
        rows = self.rows(f"SELECT r.rowid, {SELECT[7:]} WHERE r.rowid IN ({marks})", tuple(rowids))
        return {row[0]: to_record(row[1:]) for row in rows}

    def find(self, id: str) -> MemoryRecord | None:
        """The record of an id."""
        with self.reading() as db:
            found = writes.find(db, id)
        return found[1] if found else None

    def all(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        """Every record, oldest first; of one namespace or status where they are given."""
        where = "WHERE coalesce(?1, r.namespace) = r.namespace AND coalesce(?2, r.status) = r.status"
        return [to_record(row) for row in self.rows(f"{SELECT} {where} ORDER BY r.rowid", (namespace, status))]

    def vectors(self, after: int, upto: int, items: bool = False) -> list[tuple]:
        """(rowid, place, namespace, status, outcome, domain, tags, float32 bytes) of records, oldest first.

        With after < rowid <= upto, whatever their status. place is -1, or with `items` an item's position.
        """
        place, table = ("v.place", "item_vectors v ON v.record") if items else ("-1", "vectors v ON v.rowid")
        query = (
            f"SELECT r.rowid, {place}, r.namespace, r.status, r.outcome, r.domain, r.tags, v.vector "
            f"FROM records r JOIN {table} = r.rowid WHERE r.rowid > ? AND r.rowid <= ? ORDER BY r.rowid, 2"
        )
        return self.rows(query, (after, upto))

    def touched(self, after: int, upto: int) -> set[int]:
        """The rowids of records that were removed, put back, or changed in what a search looks at."""
        return {row[0] for row in self.rows("SELECT record FROM touched WHERE seq > ? AND seq <= ?", (after, upto))}

    def without_items(self, after: int, upto: int) -> list[tuple]:
        """(rowid, namespace, status, outcome, domain, tags, record) of those that have items and no vectors of them."""
        query = (
            f"SELECT r.rowid, r.namespace, r.status, r.outcome, r.domain, r.tags, {SELECT[7:]} WHERE r.rowid > ? AND "
            "r.rowid <= ? AND NOT EXISTS (SELECT 1 FROM item_vectors i WHERE i.record = r.rowid) ORDER BY r.rowid"
        )
        return [(*row[:6], to_record(row[6:])) for row in self.rows(query, (after, upto))]

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]:
        """(source, relation, target, note) of all links, or of those from or to a record."""
        query = "SELECT source, relation, target, note FROM links"
        if id is None:
            return self.rows(f"{query} ORDER BY 1, 2, 3")
        return self.rows(f"{query} WHERE source = ?1 UNION {query} WHERE target = ?1 ORDER BY 1, 2, 3", (id,))

    def tick(self) -> int:
        """The highest tick of any record."""
        return self.rows("SELECT coalesce(max(tick), 0) FROM records")[0][0]

    def journal(self) -> list[tuple]:
        """(seq, at, tick, reason, undo as JSON) of every change, oldest first."""
        return self.rows("SELECT seq, at, tick, reason, undo FROM journal ORDER BY seq")

    def rowids_of_task(self, namespace: str, task_id: str) -> set[int]:
        """The records that came from a task: what the guard against self-retrieval leaves out."""
        query = "SELECT rowid FROM records WHERE namespace = ? AND task_id = ?"
        return {row[0] for row in self.rows(query, (namespace, task_id))}

    def lexical(self, words: str, k: int, where: Filter, exclude_task: str | None) -> list[tuple[int, float]]:
        """(rowid, BM25) of the k best records for an FTS5 expression, best first, ties to the oldest."""
        marks = ", ".join("?" * len(where.statuses))
        tags = "".join(" AND EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE t.value = ?)" for _ in where.tags)
        query = (
            "SELECT r.rowid, round(-bm25(lexicon), 9) AS score FROM lexicon JOIN records r ON r.rowid = lexicon.rowid "
            "WHERE lexicon MATCH ?1 AND r.namespace = ?2 AND r.task_id IS NOT ?3 "
            "AND coalesce(?4, r.outcome) = r.outcome AND coalesce(?5, r.domain) = r.domain "
            f"AND r.status IN ({marks}){tags} ORDER BY score DESC, r.rowid LIMIT {int(k)}"
        )
        fixed = (words, where.namespace, exclude_task, where.outcome, where.domain)
        return self.rows(query, (*fixed, *where.statuses, *where.tags))

    def close(self) -> None:
        """Close the file; afterwards no WAL is left behind."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._db.close()
