"""Attempts: all attempts at one task, passed between the steps of the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from core.concurrency import once
from core.learning.transcript import given_answer, without_lessons
from core.plain_answer import plain_answer
from core.setting import blanks_for
from core.types import UNJUDGED, Scored, Selection, Task, Trajectory, Verdict


@dataclass(kw_only=True)
class Attempts:
    """The attempts at a task, with a verdict on each.

    evaluate       judges all attempts; runs once, at the first call of `verdicts()`, which returns its result
    memories       the retrieved records that the attempts were shown
    strip_lessons  verbatim quotes from `memories` are removed before judges, selectors and distillers read an attempt
    select         chooses the answer; runs once, at the first call of `selection()`. None: there is nothing to choose
    refused        the run's budget refused a call before any attempt began: the episode's status is stopped
    withheld       OUTCOME and ANSWER (core/setting.py), as far as judges, selectors and distillers are not told them
    """

    task: Task
    trajectories: list[Trajectory]
    evaluate: Callable[[Attempts], list[Verdict]] = field(repr=False)
    memories: list[Scored] = field(default_factory=list)
    strip_lessons: bool = True
    select: Callable[[Attempts], Selection | None] | None = field(default=None, repr=False)
    refused: bool = False
    withheld: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.verdicts: Callable[[], list[Verdict]] = once(lambda: self.evaluate(self))
        self.selection: Callable[[], Selection | None] = once(lambda: self.select and self.select(self))

    def __len__(self) -> int:
        return len(self.trajectories)

    def whole(self) -> list[int]:
        """The numbers of the attempts that did not break."""
        return [number for number, attempt in enumerate(self.trajectories) if attempt.ended_by != "infra_error"]

    def read(self) -> list[Trajectory]:
        """The attempts as judges, selectors and distillers read them (see `strip_lessons` and `withheld`)."""
        told = [as_learner_sees(each, self.withheld) for each in self.trajectories]
        if not self.strip_lessons:
            return told
        later = [shown for each in self.trajectories for shown in each.recalled]
        return [without_lessons(each, self.memories, later) for each in told]

    def only(self, numbers: list[int], *, verdicts: bool = True) -> Attempts:
        """The attempts with these numbers, in that order, as a part is handed them: without what is `withheld`.

        verdicts   with their verdicts from here; else all are UNJUDGED
        """
        return Attempts(
            task=self.task,
            trajectories=[as_learner_sees(self.trajectories[number], self.withheld) for number in numbers],
            memories=self.memories,
            strip_lessons=self.strip_lessons,
            evaluate=lambda _: [self.verdicts()[number] if verdicts else UNJUDGED for number in numbers],
        )


def as_learner_sees(trajectory: Trajectory, withheld: frozenset[str]) -> Trajectory:
    """An attempt as a part is handed it: what is kept back is None (`info`: `stated` alone; `id`: "")."""
    return replace(trajectory, **blanks_for(vars(trajectory), withheld), **({"id": ""} if withheld else {}))


def plain_answers(trajectories: list[Trajectory]) -> list[str]:
    """`plain_answer` of each attempt's answer, for a vote; "" for an attempt without an answer."""
    return [plain_answer(given_answer(trajectory)) for trajectory in trajectories]
