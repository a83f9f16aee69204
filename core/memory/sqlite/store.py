"""BankStore for SQLite: database file, journal file, search."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from core.file_lock import try_lock
from core.memory.moment import now
from core.memory.sqlite import index as index_file
from core.memory.sqlite.database import SqliteDatabase
from core.memory.sqlite.journal_file import line_of, whole
from core.memory.sqlite.recovery import mend_links_and_facts
from core.memory.sqlite.search import IndexSearch
from core.memory.sqlite.setup import DIALECT
from core.memory.store.changes import MADE, PUT_ITEM, PUT_VECTOR, Change, Embed, embedded, select
from core.memory.store.contract import Lead, SearchSettings
from core.memory.store.schema import LACKS_VECTOR, SqlSession, to_record

# SQL that records the embedder's dimension and date in meta, if not there yet.
_MEASURED = "INSERT OR IGNORE INTO meta SELECT 'embedder_dim', length(vector) / 4 FROM vectors LIMIT 1"
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
        if change.erased or not self._journal.append(line_of(db, entry) | {"now": select(db, MADE, entry[:1])}):
            self._journal.rewrite(whole(db))

    def embed_missing(self, embed: Embed) -> int:
        """Embed the records that are missing a vector (schema.LACKS_VECTOR); returns how many."""
        rows = self.rows(f"{DIALECT.records} WHERE {LACKS_VECTOR}")
        lost = [(row[0], vector := embed(to_record(row, self.path))[0], zlib.crc32(vector)) for row in rows]
        with self.unjournaled() as db:
            db.executemany(PUT_VECTOR, lost)
            db.executemany("INSERT INTO touched (record, found) VALUES ($1, 1)", [row[:1] for row in lost])
            db.execute("DELETE FROM meta WHERE key = 'unembedded'")
            db.execute(DIALECT.mark_unembedded)  # others may have been restored meanwhile
        return len(lost)

    def reembed(self, embed: Embed, note: Callable[[SqlSession], None]) -> int:
        """Replace the vectors of every record that has one, and all item vectors; returns the number of records."""
        query = f"{DIALECT.records} WHERE v.vector IS NOT NULL"
        made = embedded(self.rows(query), embed, self.path)
        with self.unjournaled() as db:
            # Others may have added, changed or deleted some.
            made = embedded(db.execute(query), embed, self.path, made)
            db.execute("INSERT INTO touched (record, found) SELECT rowid, 1 FROM vectors")
            db.execute("DELETE FROM item_vectors")
            for rowid, (_, vector, items) in made.items():
                db.execute(PUT_VECTOR, (rowid, vector, zlib.crc32(vector)))
                db.executemany(PUT_ITEM, [(rowid, *item, zlib.crc32(item[1])) for item in items])
            note(db)
        return len(made)

    def rebuild(self) -> Iterator[str]:
        """Rebuild the journal file from the bank, after both are compared; yields lines."""
        yield from self.compare_with_journal()
        with self.unjournaled() as db:
            if differ := mend_links_and_facts(db, self.path):
                yield f"{differ} links or facts were not as the journal has them: they are taken from there"
        with self.unjournaled() as db:
            self._journal.rewrite(whole(db))
        yield f"the journal's file is written anew: {self.rows(_SEQ)[0][0]} changes"

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
