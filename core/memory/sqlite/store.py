"""The bank's truth: one SQLite file in WAL mode. One writer at a time over all processes; readers are never blocked."""

from __future__ import annotations

import fcntl
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

from core.errors import StopRun, UserError
from core.memory.filter import PRIOR, Filter, normal_tag
from core.memory.moment import now
from core.memory.sqlite import index as index_file
from core.memory.sqlite.journal_file import JournalFile, line_of, whole
from core.memory.sqlite.migrations import in_present_schema, migrate, version
from core.memory.sqlite.repair import Stamp, check_integrity, open_to_read, repair, stamp
from core.memory.store.changes import MADE, Change, Embed, embedded, select
from core.memory.store.contract import Busy, Lead
from core.memory.store.schema import (
    LACKS_VECTOR,
    MARK_UNEMBEDDED,
    RECORDS,
    SCHEMA,
    SET_ASIDE,
    create,
    fill_lexicon,
    finish,
    storable,
    to_record,
)
from core.types import MemoryRecord

# A bank's file that is only read, while others may or may not be writing to it; nothing is made beside it.
#
# While a writer has the file open, SQLite's own locks keep a reader's view whole. Without one there is no log to share,
# and locks would have to be made: so the file is read without any, and a writer that comes later does not know of the
# reader. A small file is therefore copied into memory, and of a large one each read asks whether the file has changed.

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


# The search by words in SQLite: BM25 as FTS5 has it.

# How far a record is believed in.
BELIEVED = f"coalesce(r.confidence, iif(r.outcome = 'success', {PRIOR['success']}, {PRIOR['failure']}))"


def as_in_lineage(task_id: str | None) -> str | None:
    """A task's id as `lineage` has it, which is filled by SQLite's json_each: that ends a text at a NUL byte."""
    return None if task_id is None else task_id.partition("\0")[0]


def by_words(words: list[str], k: int, where: Filter, exclude_task: str | None) -> tuple[str, tuple]:
    """The query for (rowid, BM25) of the k best records that have any of the words, and its values."""
    marks = ", ".join("?" * len(where.statuses))
    domains = "" if where.domains is None else f" AND r.domain IN ({', '.join('?' * len(where.domains))})"
    same = "t.value = ? OR lower(replace(trim(t.value), ' ', '-')) = ?"  # SQLite's lower: ASCII alone
    tags = "".join(f" AND EXISTS (SELECT 1 FROM json_each(r.tags) t WHERE {same})" for _ in where.tags)
    query = (
        "SELECT r.rowid, round(-bm25(lexicon), 9) AS score FROM lexicon JOIN records r ON r.rowid = lexicon.rowid "
        "WHERE lexicon MATCH ?1 AND (?6 OR r.namespace = ?2) AND r.task_id IS NOT ?3 "
        "AND NOT EXISTS (SELECT 1 FROM lineage l WHERE l.task_id IN (?3, ?5) AND l.record = r.rowid) "
        "AND coalesce(?4, r.outcome) = r.outcome "
        f"AND {BELIEVED} >= ?7 "
        f"AND r.status IN ({marks}){domains}{tags} ORDER BY score DESC, r.rowid LIMIT {int(k)}"
    )
    expression = " OR ".join(f'"{word}"' for word in words)  # quoted: nothing in a text is an operator
    fixed = (expression, where.namespace, exclude_task, where.outcome, as_in_lineage(exclude_task), where.everyone)
    fixed = (*fixed, -math.inf if where.min_confidence is None else where.min_confidence)
    spelled = [spelling for tag in where.tags for spelling in (tag, normal_tag(tag))]
    return query, (*fixed, *where.statuses, *(where.domains or ()), *spelled)


BUSY_S = 60  # how long a writer waits for others
# What else is noted of the embedder, once: how many numbers its vectors have, and when the first change named it.
_MEASURED = "INSERT OR IGNORE INTO meta SELECT 'embedder_dim', length(vector) / 4 FROM vectors LIMIT 1"
_SINCE = "INSERT OR IGNORE INTO meta SELECT 'embedder_since', at FROM (SELECT at FROM journal ORDER BY seq LIMIT 1)"
_SEQ = "SELECT coalesce(max(seq), 0) FROM journal"
State = tuple[int, int, str | None]  # (highest rowid, last entry of `touched`, journal entry of the last forgetting)


class Store:
    """A bank file. Thread-safe. Opened read-only, it never writes, not even its tables.

    Reads have a connection of their own, so that they see the last committed state while another thread writes; only
    the thread that has a change open reads what it has done so far.
    Raises UserError when the file is no bank or damaged, and StopRun when the disk refuses a write.
    """

    remains = ""  # the file is overwritten
    sees_all = True

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
                if (older := migrate(db)) != SCHEMA:
                    finish(db)
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
    def unjournaled(self, wait_s: float | None = None) -> Iterator[sqlite3.Connection]:
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
                yield self._db
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

    @contextmanager
    def change(
        self, reason: str, namespace: str, embed: Embed, embedder: str, wait_s: float | None = None
    ) -> Iterator[Change]:
        """One transaction with one journal entry; the first names the embedder."""
        with self.unjournaled(wait_s) as db:
            change = Change(db, reason, namespace, embed)
            yield change
            if change.made:
                self._enter(db, change, embedder)

    def _enter(self, db: sqlite3.Connection, change: Change, embedder: str) -> None:
        """Add a change to the journal and to its file."""
        query = "INSERT INTO journal (at, tick, reason) SELECT ?, coalesce(max(tick), 0), ? FROM records RETURNING *"
        entry = db.execute(query, (now(), storable(change.reason))).fetchone()
        if change.meta("embedder_dim") is None:  # of what is noted once, the last
            db.execute("INSERT INTO meta VALUES ('embedder', ?) ON CONFLICT DO NOTHING", (embedder,))
            db.execute(_SINCE)
            db.execute(_MEASURED)
        if change.erased or not self._journal.append(line_of(db, entry) | {"now": select(db, MADE, entry[:1])}):
            self._journal.rewrite(whole(db))

    def embed_missing(self, embed: Embed) -> int:
        """Give vectors to the records that want one and have none (schema.LACKS_VECTOR). Returns how many."""
        lost = [(row[0], embed(to_record(row))[0]) for row in self.rows(f"{RECORDS} WHERE {LACKS_VECTOR}")]
        with self.unjournaled() as db:
            db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", lost)
            db.executemany("INSERT INTO touched (record, found) VALUES (?, 1)", [row[:1] for row in lost])
            db.execute("DELETE FROM meta WHERE key = 'unembedded'")
            db.execute(MARK_UNEMBEDDED)  # others may have come back meanwhile
        return len(lost)

    def reembed(self, embed: Embed, note: Callable[[Any], None]) -> int:
        """Replace the vectors of every record that has one, and all of items. Returns how many records."""
        query = f"{RECORDS} WHERE v.vector IS NOT NULL"
        made = embedded(self.rows(query), embed)
        with self.unjournaled() as db:
            made = embedded(db.execute(query), embed, made)  # others may have added, changed and forgotten some
            db.execute("INSERT INTO touched (record, found) SELECT rowid, 1 FROM vectors")
            db.execute("DELETE FROM item_vectors")
            for rowid, (_, vector, items) in made.items():
                db.execute("UPDATE vectors SET vector = ? WHERE rowid = ?", (vector, rowid))
                db.executemany("INSERT INTO item_vectors VALUES (?, ?, ?)", [(rowid, *item) for item in items])
            note(db)
        return len(made)

    def rebuild(self) -> Iterator[str]:
        """Make the full-text index and the journal's file anew from the bank; a line about each."""
        with self.unjournaled() as db:
            db.execute("DROP TABLE lexicon")
            create(db)
            fill_lexicon(db)
        yield "the words of every record are indexed anew"
        with self.unjournaled() as db:
            self._journal.rewrite(whole(db))
        yield f"the journal's file is written anew: {self.rows(_SEQ)[0][0]} changes"

    def drop_indexes(self) -> None:
        index_file.remove(self.path)  # what is forgotten must not lie in them

    def empty_log(self) -> None:
        """Bring what was committed from SQLite's log into the bank: the log holds what was overwritten there."""
        with self._explaining(), self._write_lock:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def compact(self) -> tuple[int, int]:
        """Write the file anew without the room that deleted rows have left; other writers wait meanwhile."""
        self.empty_log()
        before = self.path.stat().st_size
        with self._explaining(), self._write_lock, self._journal.turn():
            self._db.execute("VACUUM")
        self.empty_log()
        return before, self.path.stat().st_size

    def size(self) -> int:
        """Bytes of the file and of those beside it."""
        return sum(file.stat().st_size for file in self.path.parent.glob(f"{self.path.name}*"))

    def lead(self) -> Lead | None:
        """A lock that the kernel gives back when the process dies; None while another has it."""
        lock = self.path.with_name(self.path.name + ".worker").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return Lead(held=lambda: True, close=lock.close)

    def close(self) -> None:
        """Close the file; afterwards no WAL is left behind."""
        with self._write_lock, self._read_lock:
            for part in {self._reader, self._db, self._journal} - {None}:
                part.close()
            self._journal = None

    def of(self, namespace: str | None) -> Self:
        return self  # the file holds everyone's rows, and each query names its namespace

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
                return db.execute(query, tuple(map(storable, values))).fetchall()
            finally:
                if self._only_read is not None:
                    self._only_read.check()

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

    def meta(self, key: str) -> str | None:
        """A fact about the file (schema, embedder); None when it was never set."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def dim(self) -> int | None:
        """Numbers in a vector; None while there is none."""
        found = self.rows("SELECT length(vector) / 4 FROM vectors LIMIT 1")
        return found[0][0] if found else None

    def count(self) -> int:
        """How many records there are."""
        return self.rows("SELECT count(*) FROM records")[0][0]

    # What a search asks

    def state(self) -> State:
        """How far records and changes to them go."""
        query = "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0)"
        return self.rows(f"{query}, (SELECT value FROM meta WHERE key = 'forgot')")[0]

    def get(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """The whole records of some rowids, None for all; those that are gone are left out."""
        where = "" if rowids is None else f" WHERE r.rowid IN ({', '.join('?' * len(rowids))})"
        return {row[0]: to_record(row) for row in self.rows(RECORDS + where, tuple(rowids or ()))}

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

    def without_items(self, after: int, upto: int) -> list[tuple[int, tuple, MemoryRecord]]:
        """(rowid, (namespace, status, outcome, domain, tags), record) of those that have no vectors of their items.

        But none that was set aside and has no vector at all.
        """
        query = (
            f"{RECORDS} WHERE r.rowid > ? AND r.rowid <= ? AND NOT (v.vector IS NULL AND r.status IN {SET_ASIDE}) "
            "AND NOT EXISTS (SELECT 1 FROM item_vectors i WHERE i.record = r.rowid) ORDER BY r.rowid"
        )
        return [(row[0], row[2:7], to_record(row)) for row in self.rows(query, (after, upto))]

    def touched(self, after: int, upto: int, *, found: bool = True) -> set[int]:
        """The rowids of records that were removed, put back, or changed: in what a search looks at, or in anything."""
        query = "SELECT record FROM touched WHERE seq > ? AND seq <= ? AND found >= ?"
        return {row[0] for row in self.rows(query, (after, upto, found))}

    def rowids_of_task(self, where: Filter, task_id: str) -> set[int]:
        """The records that came from a task, merged ones too: what the guard against self-retrieval leaves out."""
        mine = "" if where.everyone else "namespace = ?2 AND "
        query = f"SELECT rowid FROM records WHERE {mine}task_id = ?1"
        query += " UNION SELECT record FROM lineage WHERE task_id IN (?1, ?3)"
        return {row[0] for row in self.rows(query, (task_id, where.namespace, as_in_lineage(task_id)))}

    def rowids_below(self, where: Filter) -> set[int]:
        """The records that are believed in less than a filter's min_confidence."""
        if where.min_confidence is None:
            return set()
        query = f"SELECT rowid FROM records r WHERE (?1 OR namespace = ?2) AND {BELIEVED} < ?3"
        return {row[0] for row in self.rows(query, (where.everyone, where.namespace, where.min_confidence))}

    def lexical(self, words: list[str], k: int, where: Filter, exclude_task: str | None) -> list[tuple[int, float]]:
        """(rowid, BM25) of the k best records that have any of the words, best first, ties to the oldest."""
        return self.rows(*by_words(words, k, where, exclude_task))
