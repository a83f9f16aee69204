"""setting=told: the bank holds what the environment itself knows, a perfect extractor's lessons. A positive control."""

from __future__ import annotations

from collections.abc import Iterable

from core.memory.protocol import Memory
from core.setting import ORACLE
from core.types import Lesson, MemoryRecord, Task, content_id

_MARK = "told/"  # before a task's type: the task_id of what was told


def was_told(record: MemoryRecord) -> bool:
    """Whether a record was not learned, but told by the environment."""
    return record.task_id.startswith(_MARK)


def tell(bank: Memory, lessons: Iterable[tuple[Task, Lesson]]) -> None:
    """Add the lessons that the bank does not have yet, each as a record of its own in the domain of its task's type.

    No task is excluded from them: they were made from none.
    """
    known = bank.ids()
    for task, lesson in lessons:
        record = MemoryRecord(
            id=content_id("told", task.type, lesson.text),
            original_query=task.query,
            items=(lesson,),
            source_trajectory_id="",
            score=1.0,
            outcome="success",
            label_source=ORACLE,
            task_id=f"{_MARK}{task.type}",
            domain=task.type,
            provenance={"use_gold": True, "show_answer": True},
        )
        if record.id not in known:
            bank.add(record)
