"""BankStore for SQLite: database file, journal file, search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from core.file_lock import try_lock
from core.memory.moment import now
from core.memory.sqlite import index as index_file
from core.memory.sqlite import journal_file
from core.memory.sqlite.database import SqliteDatabase
from core.memory.sqlite.journal_file import line_of, whole
from core.memory.sqlite.recovery import keep_aside
from core.memory.sqlite.search import IndexSearch
from core.memory.store.changes import Change, Embed
from core.memory.store.contract import Lead, SearchSettings
from core.memory.store.schema import SqlSession

# SQL that records the embedder's dimension and date in meta, if not there yet.
_MEASURED = "INSERT OR IGNORE INTO meta SELECT 'embedder_dim', length(vector) / 4 FROM keys LIMIT 1"
_SINCE = "INSERT OR IGNORE INTO meta SELECT 'embedder_since', at FROM (SELECT at FROM journal ORDER BY seq LIMIT 1)"
_SEQ = "SELECT coalesce(max(seq), 0) FROM journal"


class SqliteStore(SqliteDatabase):
    """A bank in one file; see core/memory/store/contract.py."""

    remains = ""  # deleted data is overwritten in the file
    sees_all = True

    def of(self, namespace: str | None) -> Self:
        return self  # the file holds the rows of all namespaces, and each query names its own

    def search(self, settings: SearchSettings) -> IndexSearch:
        return IndexSearch(self, settings)

    @contextmanager
    def change(
        self, reason: str, namespace: str, embed: Embed, embedder: str, wait_s: float | None = None
    ) -> Iterator[Change]:
        """One transaction with one journal entry; the first one stores the embedder's name."""
        with self.unjournaled(wait_s) as db:
            change = Change(db, reason, namespace, embed, self.path)
            yield change
            change.settle()
            if change.made:
                self._append_journal(db, change, embedder)

    def _append_journal(self, db: SqlSession, change: Change, embedder: str) -> None:
        """Add a change to the journal and to its file."""
        query = "INSERT INTO journal (at, tick, reason) SELECT $1, coalesce(max(tick), 0), $2 FROM records RETURNING *"
        entry = db.execute(query, (now(), change.reason)).fetchone()
        if change.meta("embedder_dim") is None:  # written last, so if it is missing none were written
            db.execute("INSERT INTO meta VALUES ('embedder', $1) ON CONFLICT DO NOTHING", (embedder,))
            db.execute(_SINCE)
            db.execute(_MEASURED)
        if change.erased or not self._journal.append(line_of(db, entry)):
            self._journal.rewrite(whole(db))

    def rebuild(self) -> Iterator[str]:
        """Write the journal file anew if it is not whole; yields lines."""
        yield from self.compare_with_journal()
        file = self._journal.path
        if torn := sum(line is None for line in journal_file.read(file)):
            yield f"{torn} lines of {file.name} cannot be read: it is kept as {keep_aside(file)} and written anew"
            with self.unjournaled() as db:
                self._journal.rewrite(whole(db))
        yield f"the journal's file is whole: {self.rows(_SEQ)[0][0]} changes"

    def drop_indexes(self) -> None:
        index_file.remove(self.path)  # they hold copies of records about to be deleted

    def empty_log(self) -> None:
        """Checkpoint and truncate the WAL, which still holds deleted data."""
        with self._explaining(), self._write_lock:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def compact(self) -> tuple[int, int]:
        """Rewrite the file (VACUUM) without the space of deleted rows; other writers wait meanwhile."""
        journal = self._journal  # refuses a bank that was opened read-only before anything is done
        self.empty_log()
        before = self.path.stat().st_size
        with self._explaining(), self._write_lock, journal.turn():
            self._db.execute("VACUUM")
        self.empty_log()
        return before, self.path.stat().st_size

    def size(self) -> int:
        """Size in bytes of the file and those beside it."""
        return sum(file.stat().st_size for file in self.path.parent.glob(f"{self.path.name}*"))

    def lead(self) -> Lead | None:
        """Take a file lock, which the kernel releases when the process dies; None if another process holds it."""
        lock = try_lock(self._beside("worker"))
        return lock and Lead(held=lambda: True, close=lock.close)

    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        lock = try_lock(self._beside(name))
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.close()

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{ending}")
