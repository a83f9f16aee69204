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

    evaluate   judges all of them; runs once, when `verdicts()` is first called, and later callers get the same
    quoted     the retrieved records whose verbatim quotes judges, selectors and distillers do not get to read
    refused    the run's budget refused a call before any attempt began: the episode is stopped, not broken
    """

    task: Task
    trajectories: list[Trajectory]
    evaluate: Callable[[Attempts], list[Verdict]] = field(repr=False)
    quoted: list[Scored] = field(default_factory=list)
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
        return [without_lessons(trajectory, self.quoted) for trajectory in self.trajectories]

    def only(self, numbers: list[int]) -> Attempts:
        """The attempts of these numbers, in that order, with the verdicts that they have here."""
        return Attempts(
            task=self.task,
            trajectories=[self.trajectories[number] for number in numbers],
            quoted=self.quoted,
            evaluate=lambda _: [self.verdicts()[number] for number in numbers],
        )
