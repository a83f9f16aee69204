"""Making memory records from attempts, and the feedback on them that an episode gives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from core.memory.protocol import Memory
from core.proportions import difference
from core.redact import HIDDEN
from core.setting import ORACLE
from core.types import Lesson, MemoryRecord, Task, Trajectory, Verdict, content_id


def record_of(
    index: int, task: Task, trajectory: Trajectory, verdict: Verdict, lessons: tuple[Lesson, ...]
) -> MemoryRecord:
    """The record that the loop adds to the bank. index: of the episode."""
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


def short_id(id: str) -> str:
    """The id as a model is shown it: half of a hash, which `Contents.find` takes for the whole, or any other id."""
    return id[:8] if re.fullmatch(r"[0-9a-f]{16}", id) else id


def n_records(n: int) -> str:
    """A number of records in words."""
    return f"{n} record" if n == 1 else f"{n} records"


def tried(found: dict[str, Any] | None) -> str:
    """What the trials of memory.validate found of a record, in words; "" of one that was not tried.

    found   a row of an episode's `validated`, or what the record's provenance has of it
    """
    n, won, without = (len(found["tasks"]), found["won_with"], found["won_without"]) if found else (0, 0, 0)
    if (effect := difference(n, won, n, without)) is None:
        return ""
    gain, low, high = (f"{100 * end:+.1f}" for end in effect)
    tasks = f"{n} earlier task{'s' * (n != 1)}"
    return f"on {tasks}: {won} judged solved with it, {without} without: {gain} points, 95 % interval {low} to {high}"


def source_of(record: MemoryRecord, by: str) -> str:
    """The source of a record; "" if it is not known. by: task, namespace, or a key of its provenance."""
    known = {"task": record.task_id, "namespace": record.namespace}
    return str(known.get(by, record.provenance.get(by, "")))


def ticked(record: MemoryRecord, index: int) -> MemoryRecord:
    """The record with the tick and the id that follow from the index of its episode."""
    id = content_id(index, record.task_id, record.source_trajectory_id, record.items)
    return replace(record, id=id, tick=index)


def id_in_bank(run_dir: str) -> str:
    """The name of a run in a bank that others fill, too. run_dir: its directory, resolved."""
    return content_id(run_dir)


def record_from(values: dict[str, Any]) -> MemoryRecord:
    """A record from its JSON dictionary. Raises KeyError, TypeError or ValueError if that does not fit."""
    tuples: dict[str, Any] = {name: tuple(values[name]) for name in ("tags", "parents") if name in values}
    tuples["items"] = tuple(Lesson(**item) for item in values["items"])
    return MemoryRecord(**values | tuples)


# What no later step changes in a stored record. (Hygiene changes texts before a record is stored, and notes it.)
_LASTING = ("items", "original_query", "task_id", "source_trajectory_id")


def is_altered(stored: MemoryRecord | None, made: MemoryRecord) -> bool:
    """Whether a stored record holds something else than the one that was made, which bears the same id."""
    if stored is None or stored.provenance.get("hygiene") or HIDDEN in made.text + made.original_query:
        return False
    return any(getattr(made, name) != getattr(stored, name) for name in _LASTING)


# The input of consolidation from one episode: the records used, the judge's label, the new records.


@dataclass(frozen=True, kw_only=True)
class EpisodeFeedback:
    """The part of an episode that consolidation reads. Its labels are the judge's, never the true outcome.

    index     position in the stream; None outside a stream (a server), where nothing is resumed
    label     success | failure as judged; None: not judged
    used      ids of the records that were shown to the agent; with memory.uses=cited, of those that it cited
    counted   True: these uses were counted when they were shown (bank.count_shown), and only their outcome is new
    new       (id, the judge's confidence in [0, 1] or None) of each record that the episode added
    """

    index: int | None = None
    label: str | None = None
    used: tuple[str, ...] = ()
    counted: bool = False
    new: tuple[tuple[str, float | None], ...] = ()


def feedback_of(row: dict[str, Any]) -> EpisodeFeedback:
    """The feedback in a row of episodes.jsonl. An infra_error counts as no use of the records shown."""
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


# setting=told: the bank holds the environment's own lessons, as of a perfect extractor. A positive control.

_MARK = "told/"  # prefix of the task_id of such a record; the task's type follows


def was_told(record: MemoryRecord) -> bool:
    """Whether a record holds a lesson of the environment rather than a learned one."""
    return record.task_id.startswith(_MARK)


def tell(bank: Memory, lessons: Iterable[tuple[Task, Lesson]]) -> None:
    """Add the lessons that the bank does not have yet, each as one record whose domain is the task's type.

    Every task may retrieve them, because they were learned from no task.
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
