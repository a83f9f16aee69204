"""The interface between a bank and its database, search included. SQLite and PostgreSQL each implement it.

SQL that both understand is shared, with `$1` for values (here, changes.py, jobs.py, core/memory/contents.py). Small
differences are in a `Dialect` (schema.py), larger ones are methods, which are described here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from core.errors import UserError
from core.memory.filter import Filter
from core.memory.store.changes import Change, Embed, embedded, fewer
from core.memory.store.hits import Hit, RowHit
from core.memory.store.keys import Keys, lacks_keys
from core.memory.store.schema import Dialect, SqlSession, to_record


class Busy(UserError):
    """The wait for others timed out; nothing was done."""


@dataclass(frozen=True, kw_only=True)
class Lead:
    """The lock of the process that works on the queue.

    held    whether this process still holds it: a lock in a database server is lost with the connection
    close   releases it
    """

    held: Callable[[], bool]
    close: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings of the search in a bank.

    approximate   memory.index=hnsw: by an HNSW graph, if the bank is large enough
    read_only     the search must not write files or indexes
    """

    approximate: bool
    read_only: bool


class Texts(NamedTuple):
    """An answer of `BankStore.texts`.

    state   in which the bank was read; compared with later ones only
    gone    row ids of records that were removed or changed; None: what was known before may not be kept, because some
            records were deleted for good
    added   (row id, query, items as JSON) of each record, of any status
    """

    state: Any
    gone: list[int] | None
    added: list[tuple[int, str, str]]


class Search(Protocol):
    """Finds records in the last committed state, by their keys. Thread-safe: runs in the thread that calls it.

    where          with its namespace filled in, unless `everyone` is set
    exclude_task   no hit came from this task, nor by a key of a record from it; None: no task is excluded
    """

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, *, kinds: tuple[str, ...], distinct: bool
    ) -> list[Hit]:
        """The k nearest of each kind, best first within a kind, ties to the oldest; scores rounded to 6 digits.

        vector     float32 (d,), of length 1
        kinds      of the keys to search (core/memory/store/keys.py)
        distinct   keep only the best hit per record and kind, as always with the queries; else per record and place
        """
        ...

    def those(self, hits: list[RowHit], where: Filter, exclude_task: str | None) -> list[Hit]:
        """Of these hits, in their order, those that a search may return: each of the record that its keys lead to."""
        ...

    def save(self) -> None:
        """Write the index file that makes the next opening fast, if it is worth it."""


class BankStore(Protocol):
    """The database of a bank. A commit survives any crash, as a whole. Thread-safe.

    One transaction writes at a time, over all processes; row ids and journal entries increase in the order of commits.
    Reads see the last committed state; only the thread with an open change sees what that has done so far.
    Raises UserError for what the user can fix, StopRun if the disk or the server refuses.

    path       the bank's file, or the URL of its database
    remains    sentence on what `forget` cannot delete; "": it deletes everything
    sees_all   whether it can read all namespaces; a role in PostgreSQL may be bound to some tenants
    """

    dialect: Dialect
    path: Any
    remains: str
    sees_all: bool

    def of(self, namespace: str | None) -> Self:
        """A view of the same open store for one namespace; None: for all (in a Filter, None is the bank's own)."""
        ...

    def search(self, settings: SearchSettings) -> Search:
        """The search in this store."""
        ...

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query."""
        ...

    @property
    def is_changing(self) -> bool:
        """Whether this thread has a change open, whose reads see what may yet be rolled back."""
        ...

    def texts(self, namespace: str | None, known: Any) -> Texts:
        """The texts of the records that were added or changed since a state, for a search by words.

        namespace   None: of all
        known       the state of an earlier answer; None: everything is new
        """
        ...

    def version(self) -> int | None:
        """A number that changes with every commit, whoever makes it; None: there is none that is cheap to read."""

    def meta(self, key: str) -> str | None:
        """A value of the whole bank (schema, embedder); None when it was never set."""
        found = self.rows("SELECT value FROM meta WHERE key = $1", (key,))
        return found[0][0] if found else None

    def dim(self) -> int | None:
        """Dimension of the vectors; None while there is none."""

    def count(self) -> int:
        """Number of records of this view: `of(None)` counts all namespaces, in SQLite every view does."""
        return self.rows("SELECT count(*) FROM records")[0][0]

    def unjournaled(self, wait_s: float | None = None) -> AbstractContextManager[SqlSession]:
        """A transaction without a journal entry, for data other than records (queue, metadata).

        Not re-entrant: nesting raises RuntimeError.

        wait_s   seconds to wait for other writers, then Busy is raised and nothing is done; None: BUSY_S. With wait_s,
                 the commit does not wait for the disk: a power failure may lose it, but cannot corrupt the bank
        """
        ...

    def change(
        self, reason: str, namespace: str, embed: Embed, embedder: str, wait_s: float | None = None
    ) -> AbstractContextManager[Change]:
        """A transaction that writes one journal entry if anything was changed; durable when it returns (see wait_s).

        embed      computes the vectors of added records
        embedder   its name, stored by the first change
        wait_s     seconds to wait for other writers, then Busy is raised; such a commit is not synced to the disk
        """
        ...

    def embed_missing(self, embed: Embed, kinds: Collection[str], most: int | None = None) -> tuple[int, int]:
        """Make the keys of these kinds that records lack, in all namespaces; returns (of how many records, still lack).

        most   if more records lack some but have their query's, they stay without; None: no limit
        """
        everyone, lacking = self.of(None), f"{self.dialect.records} WHERE {lacks_keys(self.dialect.key_row, kinds)}"
        made = {row[0]: embed(to_record(row, self.path)) for row in fewer(everyone.rows(lacking), most)}
        with everyone.unjournaled() as db:
            _enter(db, made)
            # Else others were restored meanwhile, or are of tenants that this role does not see.
            if not (left := len(db.execute(lacking).fetchall())) and self.sees_all:
                db.execute("DELETE FROM meta WHERE key = 'unembedded'")
        return len(made), left

    def reembed(self, embed: Embed, note: Callable[[SqlSession], None]) -> int:
        """Make the keys of all records anew; returns the number of records.

        note   called in the same transaction. UserError for a session that cannot read all namespaces
        """
        if not self.sees_all:
            raise UserError(
                f"the bank {self.path}: everyone's vectors are made anew together, and the role sees only tenants that "
                "it is bound to (bind_role): run reembed as another."
            )
        everyone = self.of(None)
        made = embedded(everyone.rows(self.dialect.records), embed, self.path)
        with everyone.unjournaled() as db:
            # Others may have added, changed or deleted some.
            made = embedded(db.execute(self.dialect.records).fetchall(), embed, self.path, made)
            db.execute("DELETE FROM keys")
            _enter(db, {rowid: keys for rowid, (_, keys) in made.items()})
            note(db)
        return len(made)

    def drop_indexes(self) -> None:
        """Remove the index files, if any, because they hold copies of records about to be deleted."""

    def empty_log(self) -> None:
        """Remove deleted rows from the log (SQLite: WAL) or from the tables (PostgreSQL: VACUUM)."""

    def rebuild(self) -> Iterator[str]:
        """Rebuild derived data except the keys; yields a line about each part."""
        ...

    def compact(self) -> tuple[int, int]:
        """Free the space of deleted rows; returns the size in bytes before and after."""
        ...

    def size(self) -> int:
        """Size of the whole bank in bytes."""
        ...

    def lead(self) -> Lead | None:
        """Take the queue's lock, until it is closed; None if another process holds the queue's lock."""

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        """Take a named lock without waiting; True if this process holds it. In PostgreSQL True, without a lock."""
        ...

    def close(self) -> None: ...


def _enter(db: SqlSession, made: Mapping[int, Keys]) -> None:
    db.executemany(db.dialect.put_key, [(rowid, *key) for rowid, keys in made.items() for key in keys])
    if db.dialect.touch:
        db.executemany(db.dialect.touch, [(rowid,) for rowid in made])
