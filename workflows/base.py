"""The loop. Every workflow is these six verbs; a variant overrides one or two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol

from core.concurrency import once, ordered_map
from core.errors import InfraError, OverBudget, UserError
from core.learning.distiller import Distiller
from core.memory.none import NoMemory
from core.models.meter import Meter
from core.run.records import RunRecords, records_of, shown_in
from core.setting import Setting
from core.types import Episode, Extraction, Scored, Selection, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.episode import write_up
from workflows.rollout import Rollout

Verdicts = Callable[[], list[Verdict]]  # one an attempt; who asks waits until they are there
NOBODY = Verdict(label=None, source="none")


class Judge(Protocol):
    """core.learning.judges.LLMJudge, OracleJudge, or one of your own."""

    uses_gold: bool

    def judge(self, task: Task, trajectory: Trajectory) -> Verdict: ...


@dataclass(kw_only=True)
class Workflow:
    """The ReasoningBank loop (section 3.2 of the paper); all parts are given, none is made here.

    learn_from   both | success | failure: which attempts, by their verdict, are distilled
    k            attempts a task; null takes the workflow's own number
    r            refinements after an attempt; null takes the workflow's own number
    """

    envs: EnvPool
    rollout: Rollout
    bank: Any
    judge: Judge
    distiller: Distiller
    setting: Setting
    records: RunRecords
    meter: Meter = field(default_factory=Meter)
    learn_from: str = "both"
    k: int | None = None
    r: int | None = None
    learns: bool = field(init=False)  # whether episodes depend on each other through the bank
    judges: bool = field(init=False)  # whether attempts are judged
    has_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_sizes()
        self.learns = self.setting.learn and self.has_memory and not isinstance(self.bank, NoMemory)
        self.judges = self.learns
        if self.learn_from not in ("both", "success", "failure"):
            raise UserError(f"workflow.learn_from={self.learn_from}: choose both, success or failure.")
        if self.rollout.agent.uses_gold and self.learns and not self.setting.use_gold:
            raise UserError(
                f"agent=gold plays the answers, setting={self.setting.name} must not learn them: use workflow=vanilla."
            )
        if self.judge.uses_gold and not self.setting.use_gold:
            raise UserError(
                f"judge=oracle knows the answers, setting={self.setting.name} must not: "
                "use setting=true_labels, setting=train or judge=llm."
            )

    def check_sizes(self) -> None:
        """k and r that this workflow would ignore are refused rather than ignored."""
        if self.k not in (None, 1) or self.r not in (None, 0):
            raise UserError(
                f"this workflow makes one attempt a task and refines nothing: k={self.k} r={self.r} need a matts one."
            )

    @classmethod
    def calls(cls, k: int | None, r: int | None) -> dict[str, int]:
        """For dry_run: how often each role is asked about one task that is learned from; an attempt counts once."""
        return dict.fromkeys(("agent", "judge", "extractor"), k or 1)

    def run_task(self, index: int, task: Task) -> Episode:
        """One task from question to lesson. `solve` may run side by side, `consolidate` only in the stream's order."""
        episode = self.solve(index, task)
        self.consolidate(episode)
        return episode

    def solve(self, index: int, task: Task) -> Episode:
        kept = self.records.rollouts.finished(index)  # attempts of a start that was killed
        # An episode's budget holds the agent alone: what it cut is judged and learned from like any other attempt.
        self.meter.begin(task.id, sum((made.usage for made in kept.values()), Usage()), role="agent")
        try:
            memories = self.retrieve(task)  # Retrieval: a pure read
        except InfraError as error:
            stopped = isinstance(error, OverBudget)  # only the run's: an embedding is on no episode's account
            broken = self.rollout.broken(task, error)
            return write_up(index, task, memories=[], trajectories=[broken], verdicts=[NOBODY], stopped=stopped)
        errors: list[str] = []
        trajectories = self.attempt(index, task, memories)  # Inference + Execution
        # Of several attempts it is asked at once how each went, which is the answer and what there is to learn; who
        # needs the verdicts for it waits for them.
        verdicts = once(lambda: self.evaluate(task, trajectories, errors))
        questions = (
            verdicts,  # Evaluation
            lambda: self.select(task, trajectories, verdicts, errors),
            lambda: self.extract(task, memories, trajectories, verdicts, errors),  # Extraction
        )
        workers = len(questions) if len(trajectories) > 1 else 1
        judged, selection, made = ordered_map(lambda ask: ask(), questions, workers)
        return write_up(
            index,
            task,
            memories=memories,
            trajectories=trajectories,
            verdicts=judged,
            selection=selection,
            made=made,
            errors=errors,
            stopped=self.meter.stopped(task.id) is not None,
        )

    def consolidate(self, episode: Episode, teach: int = 1) -> None:
        """Consolidation, the only write: the episode's line, then its records, then what it teaches the whole bank.

        Resume mends a crash in between.
        teach   how many of the last episodes go into the bank now: this one, none within a batch, all of it at its end
        """
        with self.records.shielded():
            self.records.append(episode)
        for row in self.records.rows[len(self.records.rows) - teach :]:
            with self.records.shielded():
                for record in records_of(row):
                    self.bank.add(record, shown=shown_in(row))
            self.bank.learn(row)  # not shielded: a model may be asked, and resume goes on where this was stopped

    def retrieve(self, task: Task) -> list[Scored]:
        return self.bank.retrieve(task.query, exclude_task=task.id)

    def attempt(self, index: int, task: Task, memories: list[Scored]) -> list[Trajectory]:
        """k attempts at once, each in an env of its own; one that breaks leaves the others alone."""
        before = self.records.rollouts.finished(index)

        def one(sample: int) -> Trajectory:
            if sample in before:
                return before[sample]
            try:
                with self.envs.lease() as env:
                    made = self.envs.limited(env, partial(self.rollout.run, env, task, memories, sample))
            except InfraError as error:  # there is not even an env, or its time is over
                return self.rollout.broken(task, error, sample)
            self.keep(index, task, made)
            return made

        k = self.k or 1
        return list(ordered_map(one, range(k), k))

    def keep(self, index: int, task: Task, trajectory: Trajectory) -> None:
        """So that a run that is killed takes up the attempt; but one that broke is made again."""
        if trajectory.ended_by != "error" and not self.meter.stopped(task.id):
            self.records.rollouts.add(index, trajectory)

    def evaluate(self, task: Task, trajectories: list[Trajectory], errors: list[str]) -> list[Verdict]:
        """The learner's belief about each attempt. A broken one is not judged, nor any when nothing asks for it."""

        def one(trajectory: Trajectory) -> Verdict:
            if trajectory.ended_by == "error" or not self.judges:
                return NOBODY
            try:
                return self.judge.judge(task, trajectory)
            except InfraError as error:
                errors.append(f"judge: {error.kind}: {error}")
                return NOBODY

        return list(ordered_map(one, trajectories, len(trajectories)))

    def select(
        self, task: Task, trajectories: list[Trajectory], verdicts: Verdicts, errors: list[str]
    ) -> Selection | None:
        """Which attempt is the task's answer; None where there is only one."""
        return None

    def extract(
        self,
        task: Task,
        memories: list[Scored],
        trajectories: list[Trajectory],
        verdicts: Verdicts,
        errors: list[str],
    ) -> list[Extraction]:
        """Lessons from each attempt worth it, one by one."""

        def one(number: int) -> Extraction:
            trajectory, verdict = trajectories[number], verdicts()[number]
            gold = trajectory.gold if self.setting.show_answer else None
            try:
                made = self.distiller.distil(task, trajectory, verdict, memories, gold)
            except InfraError as error:
                errors.append(f"extractor: {error.kind}: {error}")
                return Extraction()
            return replace(made, attempt=number)

        worth = self.teachers(trajectories, verdicts())
        return list(ordered_map(one, worth, len(worth)))

    def teachers(self, trajectories: list[Trajectory], verdicts: list[Verdict]) -> list[int]:
        """Which attempts something may be learned from: judged, as `learn_from` wants them, with anything to show."""
        return [
            number
            for number, (trajectory, verdict) in enumerate(zip(trajectories, verdicts, strict=True))
            if self.learns and verdict.label is not None and self.learn_from in ("both", verdict.label)
            if trajectory.said
        ]
