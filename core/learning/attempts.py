"""All attempts at one task, as the steps of the loop pass them to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from core.concurrency import once
from core.learning.transcript import without_lessons
from core.types import Scored, Task, Trajectory, Verdict


@dataclass(kw_only=True)
class Attempts:
    """The attempts at a task, with a verdict on each.

    evaluate       judges all of them; runs once, when `verdicts()` is first called, and later callers get the same
    memories       the retrieved records that they were shown
    strip_lessons  judges, selectors and distillers do not get to read verbatim quotes from those
    refused        the run's budget refused a call before any attempt began: the episode is stopped, not broken
    """

    task: Task
    trajectories: list[Trajectory]
    evaluate: Callable[[Attempts], list[Verdict]] = field(repr=False)
    memories: list[Scored] = field(default_factory=list)
    strip_lessons: bool = True
    refused: bool = False

    def __post_init__(self) -> None:
        self.verdicts: Callable[[], list[Verdict]] = once(lambda: self.evaluate(self))

    def __len__(self) -> int:
        return len(self.trajectories)

    def whole(self) -> list[int]:
        """The numbers of the attempts that did not break."""
        return [number for number, attempt in enumerate(self.trajectories) if attempt.ended_by != "infra_error"]

    def read(self) -> list[Trajectory]:
        """The attempts as judges, selectors and distillers read them."""
        quoted = self.memories if self.strip_lessons else []
        return [without_lessons(trajectory, quoted) for trajectory in self.trajectories]

    def only(self, numbers: list[int]) -> Attempts:
        """The attempts of these numbers, in that order, with the verdicts that they have here."""
        return Attempts(
            task=self.task,
            trajectories=[self.trajectories[number] for number in numbers],
            memories=self.memories,
            strip_lessons=self.strip_lessons,
            evaluate=lambda _: [self.verdicts()[number] for number in numbers],
        )


def plain_answers(trajectories: list[Trajectory]) -> list[str]:
    """The answer of each attempt as answers are compared in a vote, without case and blanks; "" where it has none."""
    return [" ".join((trajectory.answer or "").lower().split()) for trajectory in trajectories]
