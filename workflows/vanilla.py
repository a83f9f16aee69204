"""workflow=vanilla: the same agent without memory. Retrieves nothing, judges nothing, learns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from core.types import Scored, Task
from workflows.reasoningbank import ReasoningBank


@dataclass(kw_only=True)
class Vanilla(ReasoningBank):
    """The paper's "No Memory" row."""

    has_memory: ClassVar[bool] = False

    def retrieve(self, task: Task) -> list[Scored]:
        return []
