"""memory=none: an agent without a memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.memory.protocol import Memory
from core.types import MemoryRecord, Scored


@dataclass(kw_only=True)
class NoMemory(Memory):
    """Retrieves nothing and stores nothing."""

    path: str | None = None
    learns = False

    def retrieve(self, query: str, exclude_task: str | None = None) -> list[Scored]:
        return []

    def add(self, record: MemoryRecord, *, shown: Sequence[str] = ()) -> bool:
        return False
