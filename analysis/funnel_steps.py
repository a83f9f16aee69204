"""The steps of the funnel of learning from memory: was a task shown a lesson, of the right kind, and did it follow it?

All of it is read from a run's records. A lesson is of the right kind, or relevant, where the task that it came from, or
its record's domain, has the task's type; and where the env could say whether it was followed, for then it speaks of
this task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from core.run.records import records_of
from core.types import MemoryRecord

if TYPE_CHECKING:
    import pandas as pd

# The steps of the funnel: {name: (what its tasks are called, the step that they are a part of)}.
STEPS = {
    "all": ("all tasks", ""),
    "shown": ("shown a lesson", "all"),
    "relevant": ("of the right kind", "shown"),
    "followed": ("followed", "relevant"),
    "not_followed": ("not followed", "relevant"),
    "followed_unknown": ("followed or not: not known", "relevant"),
    "irrelevant": ("of another kind", "shown"),
    "kind_unknown": ("kind not known", "shown"),
    "none": ("shown none", "all"),
}
Kinds = dict[str, set[str | None]]  # {record: the types of the tasks that it came from; None for one not known}


def kinds_of(rows: list[dict[str, Any]], banked: Callable[[], Iterable[MemoryRecord]]) -> Kinds:
    """The kinds of every record that the rows retrieved, as far as it is known.

    banked   reads the run's banks; called only where the rows do not hold all records
    """
    types = {row["task_id"]: row["task_type"] for row in rows}
    kinds = {record.id: _kinds(record, types) for row in rows for record in records_of(row)}
    wanted = {hit["id"] for row in rows for hit in row["retrieved"]} - kinds.keys()
    return kinds | {record.id: _kinds(record, types) for record in (banked() if wanted else ()) if record.id in wanted}


def _kinds(record: MemoryRecord, types: dict[str, str]) -> set[str | None]:
    came_from = {types.get(task) for task in source_tasks(record)}
    if record.domain in types.values():  # another one is a subject of the user's own
        return came_from - {None} | {record.domain}
    return came_from


def source_tasks(record: MemoryRecord) -> set[str]:
    """The tasks that a record came from; of a merged one those of all that were merged into it."""
    return {record.task_id, *(record.provenance.get("tasks", ()) if record.parents else ())}


def lesson_step(row: dict[str, Any], kinds: Kinds) -> str:
    """The last step of the funnel that an episode is at, of those in `STEPS` that have no step below them.

    Of several lessons one that is of the right kind is enough, and of these one that the answer followed.
    """
    shown = [hit for hit in row["retrieved"] if hit["n_shown"]]
    if not shown:
        return "none"
    relevant = [_relevant(row["task_type"], hit, kinds) for hit in shown]
    if True not in relevant:
        return "kind_unknown" if None in relevant else "irrelevant"
    did = [hit.get("followed") for hit, fits in zip(shown, relevant, strict=True) if fits]
    return "followed" if True in did else "followed_unknown" if None in did else "not_followed"


def _relevant(task_type: str, hit: dict[str, Any], kinds: Kinds) -> bool | None:
    if "followed" in hit:
        return True
    if not task_type:
        return None
    known = kinds.get(hit["id"], {None})
    return True if task_type in known else None if known & {None, ""} else False


def steps_above(step: str) -> list[str]:
    """The steps that a step is a part of, from all tasks on."""
    before = STEPS[step][1]
    return [*steps_above(before), before] if before else []


def steps_within(step: str) -> list[str]:
    """A step and those that are a part of it."""
    return [each for each in STEPS if step in (each, *steps_above(each))]


def at_steps(episodes: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The episodes at each step of the funnel, by its name in `STEPS`."""
    return {step: episodes[episodes["lesson_step"].isin(steps_within(step))] for step in STEPS}


def lesson_counts(episodes: pd.DataFrame) -> dict[str, int]:
    """How many episodes are at each step of the funnel, as tasks_STEP; how many of those that followed succeeded."""
    by_step = at_steps(episodes)
    counts = {f"tasks_{step}": len(inside) for step, inside in by_step.items()}
    return counts | {"followed_won": int(by_step["followed"]["success"].sum())}
