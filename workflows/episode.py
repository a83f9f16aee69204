"""From what happened in a task to its record: the Episode, and what of it goes into the bank."""

from __future__ import annotations

from collections.abc import Sequence

from core.types import (
    Episode,
    Extraction,
    MemoryRecord,
    Scored,
    Selection,
    Task,
    Trajectory,
    Usage,
    Verdict,
    content_id,
)


def write_up(
    index: int,
    task: Task,
    *,
    memories: Sequence[Scored],
    trajectories: Sequence[Trajectory],
    verdicts: Sequence[Verdict],
    selection: Selection | None = None,
    made: Sequence[Extraction] = (),
    errors: Sequence[str] = (),
    stopped: bool = False,
) -> Episode:
    """Everything about the task as one record.

    stopped   by the run's budget: in no average, kept out of the bank, done again by the next start
    """
    chosen = selection.index if selection else 0
    answer, verdict = trajectories[chosen], verdicts[chosen]
    status = "infra_error" if answer.ended_by == "error" else "success" if answer.success else "failure"
    kept = [] if stopped else [m for m in made if m.lessons and verdicts[_source(m, chosen)].label is not None]
    records = {_source(m, chosen): _record(index, task, trajectories, verdicts, _source(m, chosen), m) for m in kept}
    return Episode(
        index=index,
        task_id=task.id,
        task_type=task.type,
        query=task.query,
        status="stopped" if stopped else status,
        reward=answer.reward,
        verdict=verdict,
        retrieved=tuple({"id": m.record.id, "score": m.score} for m in memories),
        trajectories=tuple(trajectories),
        chosen=chosen,
        verdicts=tuple(verdicts) if selection else (),
        selection=selection,
        lessons=tuple(lesson for m in kept for lesson in m.lessons),
        n_dropped=0 if stopped else sum(m.n_dropped for m in made),
        n_truncated=0 if stopped else sum(m.n_truncated for m in made),
        usage={
            "agent": sum((t.usage for t in trajectories), Usage()),
            "judge": sum((v.usage for v in verdicts), Usage()),
            "extractor": sum((m.usage for m in made), Usage()),
            **({"selector": selection.usage} if selection else {}),
        },
        errors=tuple(sorted(errors)),  # they came from several threads
        record=records.pop(chosen, None),
        other_records=tuple(records.values()),
    )


def _source(made: Extraction, chosen: int) -> int:
    return chosen if made.attempt is None else made.attempt


def _record(
    index: int, task: Task, trajectories: Sequence[Trajectory], verdicts: Sequence[Verdict], source: int, m: Extraction
) -> MemoryRecord:
    trajectory, verdict = trajectories[source], verdicts[source]
    return MemoryRecord(
        id=content_id(index, task.id, trajectory.id, m.lessons),
        original_query=task.query,
        items=m.lessons,
        source_trajectory_id=trajectory.id,
        score=1.0 if verdict.label == "success" else 0.0,
        outcome=verdict.label or "failure",
        label_source=verdict.source,
        task_id=task.id,
        tick=index,
    )
