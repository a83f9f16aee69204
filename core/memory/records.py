"""The record of an experience: what an attempt at a task taught."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from core.memory.protocol import Memory
from core.setting import ORACLE
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


# What consolidation learns from one episode: which records were used, how it was judged, which records are new.


@dataclass(frozen=True, kw_only=True)
class EpisodeFeedback:
    """The part of an episode that consolidation reads. It holds the judge's labels, never the true outcome.

    index     position in the stream; None outside a stream (a server), where nothing is resumed
    label     success | failure as judged; None: not judged
    used      ids of the records that were shown to the agent; with memory.uses=cited, of those that it cited
    counted   these uses were counted when they were shown (bank.count_shown): what is new is how they ended
    new       (id, the judge's confidence in [0, 1] or None) of each record that the episode added
    """

    index: int | None = None
    label: str | None = None
    used: tuple[str, ...] = ()
    counted: bool = False
    new: tuple[tuple[str, float | None], ...] = ()


def feedback_of(row: dict[str, Any]) -> EpisodeFeedback:
    """The feedback in a row of episodes.jsonl. A broken attempt says nothing about the records that it used."""
    judged = zip(row["trajectories"], row["verdicts"], strict=True)
    confidence = {trajectory["id"]: verdict["confidence"] for trajectory, verdict in judged}
    shown = [hit["id"] for hit in row["retrieved"] if hit.get("n_cited", hit.get("n_shown", 1))]
    used = () if row["status"] == "infra_error" else dict.fromkeys(shown)
    return EpisodeFeedback(
        index=row["index"],
        label=row["verdict"]["label"],
        used=tuple(used),
        new=tuple((record["id"], confidence.get(record["source_trajectory_id"])) for record in row["records"]),
    )


# setting=told: the bank holds what the environment itself knows, a perfect extractor's lessons. A positive control.

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
