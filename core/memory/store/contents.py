"""What is in a bank, asked by anything but likeness. Every question is a pure read."""

from __future__ import annotations

from typing import Any

from core.memory.store.jobs import Jobs
from core.types import MemoryRecord


class Contents:
    """The part of MemoryBank that says what it holds."""

    namespace: str
    _store: Any

    def get(self, id: str) -> MemoryRecord | None:
        """The record of an id; None when there is none."""
        return self._store.find(id)

    def ids(self) -> set[str]:
        """Of all records."""
        return self._store.ids()

    def records(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        """Every record, oldest first; of one namespace and status where they are given."""
        return self._store.all(namespace, status)

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]:
        """(source, relation, target, note) of all links, or of those from or to a record."""
        return self._store.links(id)

    def fact(self, key: str) -> str | None:
        """A fact about the bank that a change has set; None when there is none."""
        return self._store.meta(key)

    def tick(self) -> int:
        """The highest tick of any record: where the stream stands."""
        return self._store.tick()

    def dim(self) -> int | None:
        """Numbers in an embedding; None while the bank is empty."""
        found = self._store.rows("SELECT length(vector) / 4 FROM vectors LIMIT 1")
        return found[0][0] if found else None

    def __len__(self) -> int:
        return self._store.count()

    def titles(self) -> list[tuple[str, str]]:
        """(id, title of the first item) of the active records of the bank's namespace, oldest first."""
        return self._store.titles(self.namespace)

    def statuses(self) -> dict[str, int]:
        """How many records of the bank's namespace have each status."""
        return self._store.statuses(self.namespace)

    def jobs(self) -> Jobs:
        """The queue of attempts that wait to be learned from."""
        return Jobs(self._store)
