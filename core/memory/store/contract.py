"""What a bank needs of the database below it, search included; SQLite and PostgreSQL are two peers behind it.

What both understand is said once, in SQL with `$1` for values (changes.py, jobs.py, core/memory/contents.py). Where
they differ is in a `Dialect` (schema.py); what only one of them can do is a method here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from core.errors import UserError
from core.memory.filter import Filter
from core.memory.store.changes import Change, Embed, Items
from core.memory.store.hits import Hit
from core.memory.store.schema import Dialect, SqlSession
from core.types import MemoryRecord


class Busy(UserError):
    """Other writers kept a bank busy for longer than was to be waited; nothing was done."""


@dataclass(frozen=True, kw_only=True)
class Lead:
    """What makes a process the one that works on the queue.

    held    whether it still does: the lock may be lost with the connection to a database
    close   lets another process lead
    """

    held: Callable[[], bool]
    close: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How a bank is searched.

    approximate    memory.index=hnsw: by a graph, where there are enough records for that to pay
    read_only      nothing is to be written for the search's sake
    items_by       the memory.key that vectors of items are made for: item | both
    item_vectors   makes them for a record of which the store has none
    most_missing   of more such records at once it is not asked, and these are not found by their items; None: of any
    """

    approximate: bool
    read_only: bool
    items_by: str
    item_vectors: Callable[[MemoryRecord], Items]
    most_missing: int | None


class Search(Protocol):
    """Finds records as of the last committed state, in the searcher's thread. Thread-safe.

    A filter's namespace is filled in. None of what is found came from exclude_task; None excludes nothing.
    """

    def nearest(
        self, vector: Any, k: int, where: Filter, exclude_task: str | None, *, kinds: tuple[bool, ...], distinct: bool
    ) -> list[Hit]:
        """The k nearest of each kind, best first within a kind, ties to the oldest; scores rounded to 6 digits.

        vector     float32 (d,), of length 1
        kinds      False: of the records' queries; True: of their items
        distinct   of a record's items only the best
        """

    def lexical(self, words: list[str], k: int, where: Filter, exclude_task: str | None) -> list[Hit]:
        """The k records that have any of the words, best BM25 first, ties to the oldest."""

    def save(self) -> None:
        """Keep what makes the next opening fast, where that is worth it."""


class BankStore(Protocol):
    """The truth of a bank: what is committed here is in it, whole, after any crash. Thread-safe.

    One transaction writes at a time, over all processes, and row ids and journal entries are given out in the order of
    commits. Reads see the last committed state; only the thread with a change open reads what it has done so far.
    UserError says what the user can mend, StopRun that the disk, or the server, refuses.

    remains    what `forget` cannot reach, as one sentence; "": nothing
    sees_all   whether everyone's rows are shown to it; a role in PostgreSQL may be bound to some tenants
    """

    dialect: Dialect

    @property
    def remains(self) -> str: ...

    @property
    def sees_all(self) -> bool: ...

    def of(self, namespace: str | None) -> Self:
        """The same open store for one tenant's rows; None: for everyone's."""

    def search(self, settings: SearchSettings) -> Search:
        """What finds records in this store."""

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query."""

    def meta(self, key: str) -> str | None:
        """A fact about the bank (schema, embedder); None when it was never set."""

    def dim(self) -> int | None:
        """Numbers in a vector; None while there is none."""

    def count(self) -> int:
        """How many records there are, everyone's."""

    def unjournaled(self, wait_s: float | None = None) -> AbstractContextManager[SqlSession]:
        """A transaction without a journal entry. wait_s: seconds for other writers, then Busy; None: BUSY_S."""

    def change(
        self, reason: str, namespace: str, embed: Embed, embedder: str, wait_s: float | None = None
    ) -> AbstractContextManager[Change]:
        """A transaction with one journal entry, if anything was changed; durable when it returns."""

    def embed_missing(self, embed: Embed) -> int:
        """Give vectors to everyone's records that want one and have none (schema.LACKS_VECTOR); how many they were."""

    def reembed(self, embed: Embed, note: Callable[[SqlSession], None]) -> int:
        """Replace the vectors of every record that has one, and all of items; how many records.

        note   what else is to be executed in the same transaction. UserError for a session that does not see all
        """

    def drop_indexes(self) -> None:
        """Remove copies of what is about to be forgotten."""

    def empty_log(self) -> None:
        """Overwrite what was just forgotten, as far as that can be done."""

    def rebuild(self) -> Iterator[str]:
        """Make anew what follows from the records, without the vectors; a line about each part."""

    def compact(self) -> tuple[int, int]:
        """Give back the room that deleted rows have left; bytes before and after."""

    def size(self) -> int:
        """Bytes of the whole bank."""

    def lead(self) -> Lead | None:
        """Make this process the one that works on the queue, until that is closed; None while another is."""

    def alone(self, at: str) -> AbstractContextManager[bool]:
        """Whether no other process does meanwhile what `at` names; True where that cannot be known."""

    def close(self) -> None: ...
