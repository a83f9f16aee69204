"""The record of an experience: what an attempt at a task taught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.types import Lesson, MemoryRecord, Task, Trajectory, Verdict, content_id


def record_of(
    index: int, task: Task, trajectory: Trajectory, verdict: Verdict, lessons: tuple[Lesson, ...]
) -> MemoryRecord:
    """The record that the loop gives to the bank. index: of its episode."""
    made = MemoryRecord(
        id="",
        original_query=task.query,
        items=lessons,
        source_trajectory_id=trajectory.id,
        score=1.0 if verdict.label == "success" else 0.0,
        outcome=verdict.label or "failure",
        label_source=verdict.source,
        task_id=task.id,
    )
    return ticked(made, index)


def ticked(record: MemoryRecord, index: int) -> MemoryRecord:
    """The record as the episode with this index makes it: its tick and its id say which."""
    id = content_id(index, record.task_id, record.source_trajectory_id, record.items)
    return replace(record, id=id, tick=index)


def record_from(values: dict[str, Any]) -> MemoryRecord:
    """A record from its dictionary, as JSON has it."""
    tuples = {name: tuple(values[name]) for name in ("tags", "parents") if name in values}
    return MemoryRecord(**values | tuples | {"items": tuple(Lesson(**item) for item in values["items"])})
