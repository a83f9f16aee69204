"""Build the Episode of a task: its attempts, what it retrieved, and the records that it adds to the bank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from core.learning.attempts import Attempts
from core.memory.citations import n_cited
from core.memory.ports import CORRUPTER
from core.memory.records import record_of
from core.run.metrics import Follows, followed
from core.types import (
    CANDIDATE,
    NOT_TAKEN,
    Episode,
    Extraction,
    MemoryRecord,
    Selection,
    Task,
    Trajectory,
    Usage,
    Verdict,
)


def build_episode(
    index: int,
    retrieved: Sequence[dict],
    attempts: Attempts,
    verdicts: Sequence[Verdict],
    selection: Selection | None,
    extractions: Sequence[Extraction],
    *,
    stopped: bool = False,
    filed: tuple[str | None, tuple[str, ...]] = (None, ()),
    candidates: bool = False,
) -> Episode:
    """The Episode of a task.

    retrieved   the rows of `retrieved_rows`
    stopped     the run's budget ended the episode: it counts in no average, adds nothing to the bank, and its task runs
                again when the run is resumed
    filed       (domain, tags) of the new records, from `Memory.filed_under`
    candidates  new records are not retrieved before they were tried (memory.validate)
    """
    task, trajectories, chosen = attempts.task, attempts.trajectories, selection.index if selection else 0
    answer = trajectories[chosen]
    counted = [] if stopped else [marked_tampered(made, trajectories) for made in extractions]

    # A record carries one attempt's verdict: the chosen attempt's if the lessons were drawn from it, otherwise that of
    # the first attempt they were drawn from.
    def source_of(made: Extraction) -> int:
        drawn_from = made.attempts or range(len(trajectories))
        return chosen if chosen in drawn_from else drawn_from[0]

    sources = [(source_of(made), made) for made in counted]
    kept = [(source, made) for source, made in sources if made.lessons and verdicts[source].label is not None]
    records = {
        source: _record(index, task, trajectories, source, verdicts[source], made, filed) for source, made in kept
    }
    if candidates:
        records = {source: replace(record, status=CANDIDATE) for source, record in records.items()}
    rewriting = [memory.usage for memory in attempts.memories if memory.usage is not None]
    asked = (*verdicts, *([selection] if selection else ()), *extractions)
    return Episode(
        index=index,
        task_id=task.id,
        task_type=task.type,
        query=task.query,
        status="stopped" if stopped else _status(answer),
        reward=answer.reward,
        verdict=verdicts[chosen],
        retrieved=tuple(retrieved),
        trajectories=tuple(trajectories),
        chosen=chosen,
        verdicts=tuple(verdicts),
        selection=selection,
        lessons=tuple(lesson for _, made in kept for lesson in made.lessons),
        n_dropped=sum(made.n_dropped for made in counted)
        + sum(len(made.lessons) for source, made in sources if verdicts[source].label is None),
        n_truncated=sum(made.n_truncated for made in counted),
        usage={
            "agent": sum((trajectory.usage for trajectory in trajectories), Usage()),
            "judge": sum((verdict.usage for verdict in verdicts), Usage()),
            "extractor": sum((made.usage for made in extractions), Usage()),
            **({"selector": selection.usage} if selection else {}),
            **({CORRUPTER: sum(rewriting, Usage())} if rewriting else {}),
        },
        learning_errors=tuple(sorted(each.error for each in asked if each.error)),
        records=tuple(records[source] for source in sorted(records, key=lambda source: source != chosen)),
    )


def marked_tampered(made: Extraction, trajectories: Sequence[Trajectory]) -> Extraction:
    """The extraction; lessons from an attempt that forged its result (`tampered`) have that word in
    their title, unless they say it themselves."""
    sources = made.attempts or range(len(trajectories))
    if not any(trajectories[number].tampered for number in sources):
        return made
    lessons = (
        each if "tampered" in each.text.lower() else replace(each, title=f"Tampered: {each.title}")
        for each in made.lessons
    )
    return replace(made, lessons=tuple(lessons))


def retrieved_rows(
    attempts: Attempts, n_shown: Sequence[int], played: Sequence[Trajectory], follows: Follows, *, cited: bool
) -> list[dict]:
    """A row for each retrieved record: {id, score, n_items, n_shown}, and where they apply

    items      its lessons, if they are not those that the bank holds
    fell_back  a rule rewrote these, since the reply of the model that should could not be used
    followed   whether the answer did what one of the shown lessons says, if that is known
    step, sample   where an attempt was shown it after its opening (`Recalled`): the step, and which attempt
    n_cited    number of the record's lessons that the answer cites, with `cited`

    The arguments: `n_shown` is for each record the number of its lessons that fit into the prompt, `played` the
    attempts whose actions led to the answer: the answer's own, which is the last, and those that it continued.
    """
    memories = attempts.memories
    rows = [
        {"id": m.record.id, "score": m.score, "n_items": len(m.record.items), "n_shown": n}
        | ({"items": [asdict(item) for item in m.record.items]} if m.rewritten else {})
        | ({"fell_back": True} if m.fell_back else {})
        for m, n in zip(memories, n_shown, strict=True)
    ]
    for row, memory, n in zip(rows, memories, n_shown, strict=True):
        if (did := followed(follows, attempts.task, played, memory.record.items[:n])) is not None:
            row["followed"] = did
    if cited:
        counts = n_cited(as_one(played), memories, n_shown)
        rows = [row | {"n_cited": n} for row, n in zip(rows, counts, strict=True)]
    task = attempts.task
    return rows + [row for made in attempts.trajectories for row in _recalled_rows(task, made, played, follows)]


def _recalled_rows(task: Task, made: Trajectory, played: Sequence[Trajectory], follows: Follows) -> Iterator[dict]:
    """The rows of what an attempt was shown after its opening."""
    for shown in made.recalled:
        row = {"id": shown.id, "score": shown.score, "n_items": shown.n_items, "n_shown": shown.n_shown}
        row |= {"step": shown.step, "sample": made.sample}
        if shown.changed:
            row["items"] = [asdict(item) for item in shown.items]
        if (did := followed(follows, task, played, shown.items)) is not None:
            row["followed"] = did
        yield row


def as_one(played: Sequence[Trajectory]) -> Trajectory:
    """The last of attempts that continue each other, with the steps of all of them; notes (NOT_TAKEN) are left out."""
    steps = tuple(s for made in played for s in made.steps if s.observation != NOT_TAKEN)
    return replace(played[-1], steps=steps, recalled=tuple(shown for made in played for shown in made.recalled))


def _status(answer: Trajectory) -> str:
    return "infra_error" if answer.ended_by == "infra_error" else "success" if answer.success else "failure"


def _record(
    index: int,
    task: Task,
    trajectories: Sequence[Trajectory],
    source: int,
    verdict: Verdict,
    made: Extraction,
    filed: tuple[str | None, tuple[str, ...]],
) -> MemoryRecord:
    """A new record. source: number of the attempt whose verdict it bears; filed: (domain, tags)."""
    domain, tags = filed
    read = [trajectories[number].sample for number in made.attempts or range(len(trajectories))]
    evidence = None if made.evidence is None else list(made.evidence)
    record = record_of(index, task, trajectories[source], verdict, made.lessons)
    about = {"attempts": read, "evidence": evidence} | ({"notes": made.notes} if made.notes else {})
    return replace(record, domain=domain or "", tags=tags, provenance=about)
