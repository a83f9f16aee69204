"""The loop. Every workflow is these six verbs; a variant overrides one or two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from core.concurrency import ordered_map
from core.errors import InfraError, UserError
from core.extractor import Distiller
from core.records import RunRecords
from core.setting import Setting
from core.types import Episode, Extraction, Lesson, MemoryRecord, Scored, Task, Trajectory, Usage, Verdict, content_id
from envs.pool import EnvPool
from workflows.rollout import Rollout

NOBODY = Verdict(label=None, source="none")


class Judge(Protocol):
    """core.extractor.LLMJudge, OracleJudge, or one of your own."""

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
    learn_from: str = "both"
    k: int | None = None
    r: int | None = None
    learns: bool = field(init=False)  # whether episodes depend on each other through the bank
    has_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_sizes()
        self.learns = self.setting.learn and self.has_memory
        if self.learn_from not in ("both", "success", "failure"):
            raise UserError(f"workflow.learn_from={self.learn_from}: choose both, success or failure.")
        if self.rollout.agent.uses_gold and self.learns and not self.setting.use_gold:
            raise UserError(
                f"agent=gold plays the answers, setting={self.setting.name} must not learn them: use workflow=vanilla."
            )
        if self.judge.uses_gold and not self.setting.use_gold:
            raise UserError(
                f"judge=oracle knows the answers, setting={self.setting.name} must not: use setting=train or judge=llm."
            )

    def check_sizes(self) -> None:
        """k and r that this workflow would ignore are refused rather than ignored."""
        if self.k not in (None, 1) or self.r not in (None, 0):
            raise UserError(
                f"this workflow makes one attempt a task and refines nothing: k={self.k} r={self.r} need a matts one."
            )

    def run_task(self, index: int, task: Task) -> Episode:
        """One task from question to lesson. `solve` may run side by side, `consolidate` only in the stream's order."""
        episode = self.solve(index, task)
        self.consolidate(episode)
        return episode

    def solve(self, index: int, task: Task) -> Episode:
        try:
            memories = self.retrieve(task)  # Retrieval: a pure read
        except InfraError as error:
            return self.episode(index, task, [], [self.rollout.broken(task, error)], [NOBODY], Extraction(), [])
        trajectories = self.attempt(task, memories)  # Inference + Execution
        errors: list[str] = []
        verdicts = [self.evaluate(task, t, errors) for t in trajectories]  # Evaluation
        extraction = self.extract(task, memories, trajectories, verdicts, errors)  # Extraction
        return self.episode(index, task, memories, trajectories, verdicts, extraction, errors)

    def consolidate(self, episode: Episode) -> None:
        """Consolidation, the only write: the episode's line, then its record, then what it teaches the bank as a whole.

        Resume mends a crash in between.
        """
        with self.records.shielded():
            self.records.append(episode)
            if episode.record is not None:
                self.bank.add(episode.record)
        self.bank.learn(episode)  # not shielded: a model may be asked, and resume goes on where this was stopped

    def retrieve(self, task: Task) -> list[Scored]:
        return self.bank.retrieve(task.query, exclude_task=task.id)

    def attempt(self, task: Task, memories: list[Scored]) -> list[Trajectory]:
        def one(sample: int) -> Trajectory:
            with self.envs.lease() as env:
                return self.rollout.run(env, task, memories, sample)

        return list(ordered_map(one, range(self.k or 1), self.k or 1))

    def evaluate(self, task: Task, trajectory: Trajectory, errors: list[str]) -> Verdict:
        """The learner's belief about an attempt. A broken attempt is not judged, nor any when nothing is learned."""
        if trajectory.ended_by == "error" or not self.learns:
            return NOBODY
        try:
            return self.judge.judge(task, trajectory)
        except InfraError as error:
            errors.append(f"judge: {error}")
            return NOBODY

    def extract(
        self,
        task: Task,
        memories: list[Scored],
        trajectories: list[Trajectory],
        verdicts: list[Verdict],
        errors: list[str],
    ) -> Extraction:
        """Lessons from each judged attempt that has anything to show."""
        total = Extraction()
        for trajectory, verdict in zip(trajectories, verdicts, strict=True):
            wanted = verdict.label is not None and self.learn_from in ("both", verdict.label)
            if not wanted or not any(step.text.strip() for step in trajectory.steps):
                continue
            gold = trajectory.gold if self.setting.use_gold else None
            try:
                made = self.distiller.distil(task, trajectory, verdict, memories, gold)
            except InfraError as error:
                errors.append(f"extractor: {error}")
                continue
            total = Extraction(
                lessons=total.lessons + made.lessons,
                n_dropped=total.n_dropped + made.n_dropped,
                usage=total.usage + made.usage,
            )
        return total

    def select(self, trajectories: list[Trajectory], verdicts: list[Verdict]) -> int:
        """Which attempt is the task's answer."""
        return 0

    def episode(self, index, task, memories, trajectories, verdicts, extraction, errors) -> Episode:
        """Everything about the task as one record."""
        chosen = self.select(trajectories, verdicts)
        answer, verdict = trajectories[chosen], verdicts[chosen]
        status = "infra_error" if answer.ended_by == "error" else "success" if answer.success else "failure"
        usage = {
            "agent": sum((t.usage for t in trajectories), Usage()),
            "judge": sum((v.usage for v in verdicts), Usage()),
            "extractor": extraction.usage,
        }
        return Episode(
            index=index,
            task_id=task.id,
            task_type=task.type,
            query=task.query,
            status=status,
            reward=answer.reward,
            verdict=verdict,
            retrieved=tuple({"id": m.record.id, "score": m.score} for m in memories),
            trajectories=tuple(trajectories),
            chosen=chosen,
            lessons=extraction.lessons,
            n_dropped=extraction.n_dropped,
            usage=usage,
            errors=tuple(errors),
            record=self.record(index, task, answer, verdict, extraction.lessons),
        )

    def record(
        self, index: int, task: Task, trajectory: Trajectory, verdict: Verdict, lessons: tuple[Lesson, ...]
    ) -> MemoryRecord | None:
        """What the bank keeps of the task; nothing when there was no lesson."""
        if not lessons:
            return None
        return MemoryRecord(
            id=content_id(index, task.id, trajectory.id, lessons),
            original_query=task.query,
            items=lessons,
            source_trajectory_id=trajectory.id,
            score=1.0 if verdict.label == "success" else 0.0,
            outcome=verdict.label or "failure",
            label_source=verdict.source,
            task_id=task.id,
            tick=index,
        )
