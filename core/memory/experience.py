"""The record of an experience: what an attempt at a task taught."""

from __future__ import annotations

from core.types import Lesson, MemoryRecord, Task, Trajectory, Verdict, content_id


def record_of(
    index: int, task: Task, trajectory: Trajectory, verdict: Verdict, lessons: tuple[Lesson, ...]
) -> MemoryRecord:
    """The record that the loop gives to the bank. index: the task's place in the stream."""
    return MemoryRecord(
        id=content_id(index, task.id, trajectory.id, lessons),
        original_query=task.query,
        items=lessons,
        source_trajectory_id=trajectory.id,
        score=1.0 if verdict.label == "success" else 0.0,
        outcome=verdict.label or "failure",
        label_source=verdict.source,
        task_id=task.id,
        tick=index,
    )
