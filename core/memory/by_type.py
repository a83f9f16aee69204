"""A separate bank for each type of task (`stream.split_by=type`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.memory.protocol import Memory
from core.types import MemoryRecord, Scored, Task, Usage

BANKS = "banks"  # folder of these banks in the run directory


class FiledMemory(Memory, Protocol):
    """A memory that gives its records a domain (`Memory.filing`), and so is told the task's."""

    def retrieve(self, query: str, exclude_task: str | None = None, *, domain: str | None = None) -> list[Scored]: ...


@dataclass(kw_only=True)
class BankByType(Memory):
    """A memory made of several independent banks. Each may be used in its own thread.

    banks   {type of task: its bank}; a record goes to the bank of its domain, so `memory.domain` must be type
    """

    banks: dict[str, FiledMemory]

    def __post_init__(self) -> None:
        one = next(iter(self.banks.values()))
        self.learns, self.uses = one.learns, one.uses

    def retrieve(self, query: str, exclude_task: str | None = None, *, domain: str) -> list[Scored]:
        return self.banks[domain].retrieve(query, exclude_task=exclude_task, domain=domain)

    def filing(self, task: Task) -> tuple[str | None, tuple[str, ...]]:
        return self.banks[task.type].filing(task)

    def add(self, record: MemoryRecord, *, shown: Sequence[str] = ()) -> bool:
        return self.banks[record.domain].add(record, shown=shown)

    def add_from(self, record: MemoryRecord, did: Sequence[tuple[str, str]], *, shown: Sequence[str] = ()) -> bool:
        return self.banks[record.domain].add_from(record, did, shown=shown)

    def learn(self, episode: dict[str, Any] | None) -> None:
        for bank in self.banks.values() if episode is None else [self.banks[episode["task_type"]]]:
            bank.learn(episode)

    def prefetch(self, query: str) -> None:
        next(iter(self.banks.values())).prefetch(query)  # any bank will do: they share the embedder

    def ids(self) -> set[str]:
        return set().union(*(bank.ids() for bank in self.banks.values()))

    def get(self, id: str) -> MemoryRecord | None:
        return next((found for bank in self.banks.values() if (found := bank.get(id)) is not None), None)

    def labels(self) -> set[str]:
        return set().union(*(bank.labels() for bank in self.banks.values()))

    def spent(self) -> Usage | None:
        known = [spent for bank in self.banks.values() if (spent := bank.spent()) is not None]
        return sum(known, Usage()) if known else None

    def close(self) -> None:
        for bank in self.banks.values():
            bank.close()
