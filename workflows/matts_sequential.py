"""workflow=matts_sequential: an attempt, then r rounds in which the agent checks and corrects its own work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from core.errors import InfraError, UserError
from core.learning.attempts import Attempts
from core.learning.lessons import Contrast, Distills
from core.learning.transcript import single_turn
from core.run.metrics import states_answer
from core.types import CUT_OFF, Extraction, Scored, Selection, Task, Trajectory, Verdict
from envs.base import BaseEnv
from workflows.episode import as_one
from workflows.reasoningbank import ReasoningBank, guarded


@dataclass(kw_only=True)
class MattsSequential(ReasoningBank):
    """Memory-aware test-time scaling, sequential (section 3.3). The last round is the answer; r=0 is the base loop.

    contrast     distils all rounds together; None: each round is distilled by itself
    keep_answer  if the last round states no answer (`stated` in its info), the last round that states one is the answer
    refine       restart | continue: whether a round in a multi-turn env starts a new episode or continues the last one
    """

    contrast: Contrast | None
    keep_answer: bool = True
    refine: str = "restart"
    scaled_by: ClassVar[tuple[str, ...]] = ("r",)

    def check_sizes(self) -> None:
        if self.k not in (None, 1):
            raise UserError(f"workflow=matts_sequential makes one attempt at a time: k={self.k} needs matts_parallel.")
        if self.r and not self.rollout.agent.converses:
            raise UserError(
                "workflow=matts_sequential: this agent keeps no conversation to go on with: matts_parallel."
            )
        if self.refine not in ("restart", "continue"):
            raise UserError(f"refine={self.refine}: choose restart or continue.")

    def attempt(self, index: int, task: Task, memories: list[Scored]) -> Attempts:
        """The first attempt and its refinement rounds. A round that breaks or is cut off is the last one."""
        rounds: list[Trajectory] = []
        try:
            with self.envs.lease() as env:
                finished = self.records.rollouts.finished(index)  # rounds of an earlier start of this run
                while len(rounds) <= self.r and not (rounds and rounds[-1].ended_by in ("infra_error", *CUT_OFF)):
                    made = finished.get(len(rounds)) or self._round(env, task, memories, rounds, resumed=bool(finished))
                    if rounds and made.ended_by in CUT_OFF and not made.steps:
                        break  # cut off before its first step: the round before it stays the answer
                    if made.sample not in finished:
                        self.checkpoint(index, task, made)
                    rounds.append(made)
        except InfraError as error:  # no env was available, or the round exceeded its time limit
            rounds.append(self.rollout.broken(task, error, len(rounds)))
        return self.as_attempts(task, rounds, memories)

    def _round(
        self, env: BaseEnv, task: Task, memories: list[Scored], rounds: list[Trajectory], *, resumed: bool
    ) -> Trajectory:
        """One round, with its own time limit. resumed: the earlier rounds were not played in this env."""

        def work() -> Trajectory:
            if not rounds:
                return self.rollout.run(env, task, memories)
            restart = self.refine == "restart"
            if resumed and not restart:
                self.rollout.replay(env, task, rounds)
            return self.rollout.refine(env, task, memories, rounds, restart=restart)

        return self.envs.limited(env, work)

    def played(self, attempts: Attempts, chosen: int) -> list[Trajectory]:
        goes_on = self.refine == "continue" and not single_turn(attempts.trajectories[0])
        return attempts.trajectories[:chosen] * goes_on + super().played(attempts, chosen)

    def evaluate(self, attempts: Attempts) -> list[Verdict]:
        """A verdict on each round; with refine=continue a round is judged together with the steps of earlier rounds."""
        rounds = [as_one(self.played(attempts, number)) for number in range(len(attempts))]
        return super().evaluate(self.as_attempts(attempts.task, rounds, attempts.memories))

    def select(self, attempts: Attempts) -> Selection | None:
        if not self.r:
            return None
        last, rounds = len(attempts) - 1, attempts.trajectories
        stated = [number for number, made in enumerate(rounds) if states_answer(made.answer, made.info)]
        # With an answer in one round and none in a later one, the last stated answer is kept.
        unstated = stated and set(range(stated[0], last + 1)) != {*stated}
        if self.keep_answer and unstated and rounds[last].ended_by != "infra_error":
            where = f"after round {stated[-1]}" if stated[-1] < last else "in a round before the last"
            return Selection(index=stated[-1], by="kept", reason=f"no answer {where}")
        return Selection(index=last, by="last")

    def extract(self, attempts: Attempts, memories: list[Scored]) -> list[Extraction]:
        """One call over all rounds. If the last round broke, the task has no result and nothing is learned."""
        last = len(attempts) - 1
        if attempts.trajectories[last].ended_by == "infra_error":
            return []
        if self.contrast is None or last == 0:
            return super().extract(attempts, memories)
        if self.select(attempts).index not in self.learnable(attempts):
            return []
        judged = [number for number, verdict in enumerate(attempts.verdicts()) if verdict.label is not None]
        contrast = partial(self.contrast.sequential, attempts.only(judged))
        made = guarded("extractor", Extraction, contrast, lambda error: Extraction(error=error))
        return [replace(made, attempts=tuple(judged))]

    def lesson_maker(self, n_attempts: int) -> Distills | Contrast:
        return self.contrast if self.contrast and n_attempts > 1 else super().lesson_maker(n_attempts)
