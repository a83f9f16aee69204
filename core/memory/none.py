"""The absence of a bank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.memory.filter import Filter
from core.types import MemoryRecord, Scored


@dataclass(kw_only=True)
class NoMemory:
    """memory=none: an agent without memory. Retrieves nothing and keeps nothing."""

    embedder: Any = None
    policy: Any = None
    path: str | None = None
    read_only: bool = False
    inject: str = "system"
    max_tokens: int | None = None
    provenance: Any = None
    run: str = ""

    def retrieve(
        self, query: str, top_k: int | None = None, exclude_task: str | None = None, where: Filter | None = None
    ) -> list[Scored]:
        return []

    def expect(self, query: str) -> None:
        """Nothing to prepare."""

    def add(self, record: MemoryRecord, *, shown: Sequence[str] | None = None) -> bool:
        return False

    def learn(self, episode: Any) -> None:
        """Learns nothing."""

    def spent(self) -> None:
        """Nothing."""

    def ids(self) -> set[str]:
        return set()

    def records(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        return []

    def __len__(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to release."""
