"""All attempts at one task, in one object: what select and extract need of each other travels in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from core.concurrency import once
from core.types import Task, Trajectory, Verdict


@dataclass(kw_only=True)
class Attempts:
    """The attempts at a task, and what the learner believes about each.

    evaluate   judges all of them; called once, by whoever asks for the verdicts first, and others wait for it
    refused    the run's budget refused a call before any attempt began: the episode is stopped, not broken
    """

    task: Task
    trajectories: list[Trajectory]
    evaluate: Callable[[Attempts], list[Verdict]] = field(repr=False)
    refused: bool = False

    def __post_init__(self) -> None:
        self.verdicts: Callable[[], list[Verdict]] = once(lambda: self.evaluate(self))

    def __len__(self) -> int:
        return len(self.trajectories)

    def whole(self) -> list[int]:
        """Which of them did not break."""
        return [number for number, attempt in enumerate(self.trajectories) if attempt.ended_by != "infra_error"]

    def only(self, numbers: list[int]) -> Attempts:
        """Some of them, in that order. Their verdicts are these attempts' own."""
        return Attempts(
            task=self.task,
            trajectories=[self.trajectories[number] for number in numbers],
            evaluate=lambda _: [self.verdicts()[number] for number in numbers],
        )
