"""What a bank needs of the database below it. SQLite (database.py) and PostgreSQL (core/memory/postgres) do all of it.

The bank speaks SQL to both: the tables of tables.sql, `?` and `?1` for values, `ON CONFLICT DO NOTHING`, json_extract
and json_each. What only one of them understands is a method here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from core.errors import UserError
from core.memory.filter import Filter
from core.memory.store.changes import Change, Embed
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


class BankStore(Protocol):
    """The truth of a bank: what is committed here is in it, whole, after any crash. Thread-safe.

    One transaction writes at a time, over all processes, and row ids and journal entries are given out in the order of
    commits. Reads see the last committed state; only the thread with a change open reads what it has done so far.
    A store may have `search(graph, item_vectors, read_only, most_missing)`, which gives what looks for vectors in it,
    with the methods of core/memory/sqlite/search.py's Search; without one, that class follows the store.
    UserError says what the user can mend, StopRun that the disk, or the server, refuses.

    remains    what `forget` cannot reach, as one sentence; "": nothing
    sees_all   whether everyone's rows are shown to it; a role in PostgreSQL may be bound to some tenants
    """

    @property
    def remains(self) -> str: ...

    @property
    def sees_all(self) -> bool: ...

    def of(self, namespace: str | None) -> Self:
        """The same open store for one tenant's rows; None: for everyone's."""

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query."""

    def meta(self, key: str) -> str | None:
        """A fact about the bank (schema, embedder); None when it was never set."""

    def dim(self) -> int | None:
        """Numbers in a vector; None while there is none."""

    def count(self) -> int:
        """How many records there are, everyone's."""

    def get(self, rowids: list[int] | None) -> dict[int, MemoryRecord]:
        """The whole records of some rowids, None for all; those that are gone are left out."""

    def lexical(self, words: list[str], k: int, where: Filter, exclude_task: str | None) -> list[tuple[int, float]]:
        """(rowid, BM25) of the k best records that have any of the words, best first, ties to the oldest."""

    def unjournaled(self, wait_s: float | None = None) -> AbstractContextManager[Any]:
        """A transaction without a journal entry. wait_s: seconds for other writers, then Busy; None: BUSY_S."""

    def change(
        self, reason: str, namespace: str, embed: Embed, embedder: str, wait_s: float | None = None
    ) -> AbstractContextManager[Change]:
        """A transaction with one journal entry, if anything was changed; durable when it returns."""

    def embed_missing(self, embed: Embed) -> int:
        """Give vectors to everyone's records that want one and have none; how many they were."""

    def reembed(self, embed: Embed, note: Callable[[Any], None]) -> int:
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

    def close(self) -> None: ...
