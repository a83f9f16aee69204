"""workflow=reasoningbank, the loop of the paper (section 3.2): `run_task` runs one task in six steps.

The other workflows are subclasses, each of which overrides one or two of the steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import ClassVar, TypeVar

from core.concurrency import ordered_map, side_by_side
from core.errors import InfraError, OverBudget, UserError, check_choice
from core.learning.attempts import Attempts
from core.learning.judges import Judge
from core.learning.lessons import Contrast, Distills
from core.memory.protocol import Memory
from core.models.meter import Meter, account_of
from core.run.metrics import Follows
from core.run.records import RunRecords, did_in, records_of, shown_in
from core.run.unfinished import Begun
from core.setting import Setting
from core.types import UNJUDGED, Episode, Extraction, Scored, Selection, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.episode import build_episode, retrieved_rows
from workflows.rollout import Rollout

log = logging.getLogger("run.learning")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A task's turn in the stream: all that the stream tells the loop about it.

    index        of the task's episode; with stream.mode=async, where that is known only at its end, the task's place
    seen         with stream.mode=async the version of the bank that the task reads: after how many episodes
    write_waits  the stream consolidates the episode itself, when those before it have been written
    has_read     set by the loop when the task has read the bank, for a stream that must not write to it before
    """

    index: int
    task: Task
    seen: int | None = None
    write_waits: bool = False
    has_read: Event = field(default_factory=Event, compare=False, repr=False)


@dataclass(kw_only=True)
class ReasoningBank:
    """The loop, and the base of every other workflow. workflows/build.py builds it.

    learn_from     both | success | failure: which attempts are distilled, by their verdicts
    strip_lessons  judge, selector and distiller do not read what an attempt quotes from the lessons that it was shown
    k              attempts for each task; null takes the workflow's own number
    r              refinements after an attempt; null takes the workflow's own number
    follows        the env's rule that says whether an attempt followed a lesson
    """

    envs: EnvPool
    rollout: Rollout
    bank: Memory
    judge: Judge
    distiller: Distills
    setting: Setting
    records: RunRecords
    follows: Follows
    meter: Meter = field(default_factory=Meter)
    learn_from: str = "both"
    strip_lessons: bool = True
    k: int | None = None
    r: int | None = None
    learns: bool = field(init=False)  # whether episodes depend on each other through the bank
    judges: bool = field(init=False)  # whether attempts are judged
    has_memory: ClassVar[bool] = True
    scaled_by: ClassVar[tuple[str, ...]] = ()  # k or r, where this workflow acts on it; in a sweep others go without

    def __post_init__(self) -> None:
        self.check_sizes()
        self.learns = self.setting.learn and self.has_memory and self.bank.learns
        self.judges = self.learns
        self.check_parts()

    def run_task(self, turn: Turn) -> Episode:
        """One task, from the question to the lessons. The stream calls this for every task."""
        self.begin(turn.index, turn.task)
        try:
            memories = self.memories(turn)  # Retrieval: a pure read
            attempts = self.attempt(turn.index, turn.task, memories)  # Inference + Execution: k attempts at once
        except InfraError as error:  # nothing could be attempted
            memories, attempts = [], self.nothing_attempted(turn.task, error)
        with side_by_side(len(attempts) > 1) as start:  # where there are several attempts, these three run at once
            verdicts = start(attempts.verdicts)  # Evaluation: `evaluate`, what the judge says of each
            answer = start(self.select, attempts)  # which attempt counts
            lessons = start(self.extract, attempts, memories)  # Extraction
        episode = self.episode(turn, attempts, verdicts(), answer(), lessons())
        if not turn.write_waits:
            self.consolidate(episode)  # Consolidation: the only write
        return episode

    def retrieve(self, task: Task) -> list[Scored]:
        """The records that the task is shown, best first."""
        domain, _ = self.bank.filing(task)
        within = {} if domain is None else {"domain": domain}
        return self.bank.retrieve(task.query, exclude_task=task.id, **within)

    def attempt(self, index: int, task: Task, memories: list[Scored]) -> Attempts:
        """k attempts at once, each in an env of its own; one that breaks leaves the others alone."""
        finished = self.records.rollouts.finished(index)  # by an earlier start of this run

        def one(sample: int) -> Trajectory:
            if sample in finished:
                return finished[sample]
            try:
                with self.envs.lease() as env:
                    made = self.envs.limited(env, partial(self.rollout.run, env, task, memories, sample))
            except InfraError as error:  # no env could be had, or the attempt ran out of time
                return self.rollout.broken(task, error, sample)
            self.checkpoint(index, task, made)
            return made

        k = self.k or 1
        return self.as_attempts(task, list(ordered_map(one, range(k), k)), memories)

    def evaluate(self, attempts: Attempts) -> list[Verdict]:
        """A verdict on each attempt; UNJUDGED for one that broke, and for all where no verdict is needed."""

        def one(trajectory: Trajectory) -> Verdict:
            if trajectory.ended_by == "infra_error" or not self.judges:
                return UNJUDGED
            judge = partial(self.judge.judge, attempts.task, trajectory)
            return guarded("judge", judge, lambda error: replace(UNJUDGED, error=error))

        if self.judges and self.judge.compares:
            return self.judged_together(attempts)
        return list(ordered_map(one, attempts.read(), len(attempts)))

    def select(self, attempts: Attempts) -> Selection | None:
        """Which attempt is the task's answer; None where there is one attempt."""
        return None

    def extract(self, attempts: Attempts, memories: list[Scored]) -> list[Extraction]:
        """Lessons from each learnable attempt, distilled alone."""

        def one(number: int) -> Extraction:
            trajectory, verdict = read[number], attempts.verdicts()[number]
            gold = trajectory.gold if self.setting.show_answer else None
            distil = partial(self.distiller.distil, attempts.task, trajectory, verdict, memories, gold)
            return replace(guarded("extractor", distil, lambda error: Extraction(error=error)), attempts=(number,))

        read, learnable = attempts.read(), self.learnable(attempts)
        return list(ordered_map(one, learnable, len(learnable)))

    def consolidate(self, episode: Episode) -> None:
        """Write the episode's line, add its records to the bank, then let the bank learn from the whole episode.

        Resume repairs a crash in between.
        """
        self.record(episode)
        if episode.status != "stopped":  # its task will run again
            self.update_bank(self.records.rows[-1:])

    def record(self, episode: Episode) -> None:
        """The first half of `consolidate`: write the episode's line."""
        with self.records.shielded():
            self.records.append(episode)

    def update_bank(self, rows: list[dict]) -> None:
        """The second half, for one episode or for those of a batch: the bank learns from their lines."""
        for row in rows:
            with self.records.shielded():
                self.keep(row)
            self.bank.learn(row)  # may ask a model, so Ctrl-C stops it; resume goes on from there

    def keep(self, row: dict) -> None:
        """Add the records of an episode's line to the bank."""
        for record in records_of(row):
            self.bank.add_from(record, did_in(row), shown=shown_in(row))

    def memories(self, turn: Turn) -> list[Scored]:
        """What the task retrieves. Where tasks overlap it is kept, because the bank has moved on when a run resumes."""
        with self.records.timing_retrieval(turn.index):
            if turn.seen is None:
                found = self.retrieve(turn.task)
            elif (begun := self.records.rollouts.begun(turn.index)) is not None:  # by an earlier start of this run
                found = begun.memories
            else:
                found = self.retrieve(turn.task)
                self.records.rollouts.begin(turn.index, Begun(seen=turn.seen, memories=found))
        turn.has_read.set()
        return found

    def episode(
        self,
        turn: Turn,
        attempts: Attempts,
        verdicts: list[Verdict],
        selection: Selection | None,
        extractions: list[Extraction],
    ) -> Episode:
        """Everything that happened in the task, as one object."""
        played = self.played(attempts, selection.index if selection else 0)
        n_shown, cited = self.rollout.agent.shown(attempts.memories), self.bank.uses == "cited"
        retrieved = retrieved_rows(attempts, n_shown, played, self.follows, cited=cited)
        stopped, filed = self.was_stopped(attempts), self.bank.filing(turn.task)
        return build_episode(
            turn.index, retrieved, attempts, verdicts, selection, extractions, stopped=stopped, filed=filed
        )

    def played(self, attempts: Attempts, chosen: int) -> list[Trajectory]:
        """The attempts whose actions led to the answer: itself, after those that it goes on from.

        chosen   the number of the attempt that is the answer
        """
        return [attempts.trajectories[chosen]]

    def learnable(self, attempts: Attempts) -> list[int]:
        """The numbers of the attempts to learn from: judged, with a verdict that `learn_from` allows, and not empty."""
        return [
            number
            for number, (trajectory, verdict) in enumerate(zip(attempts.trajectories, attempts.verdicts(), strict=True))
            if self.learns and verdict.label is not None and self.learn_from in ("both", verdict.label)
            if trajectory.has_output
        ]

    def lesson_maker(self, n_attempts: int) -> Distills | Contrast:
        """What makes the lessons of a task with so many attempts."""
        return self.distiller

    def judged_together(self, attempts: Attempts) -> list[Verdict]:
        """`evaluate` by a judge that compares the attempts."""
        whole = attempts.whole()
        compare = partial(self.judge.judge_all, attempts.only(whole), partial(self.more, attempts))
        verdicts = guarded("judge", compare, lambda error: [replace(UNJUDGED, error=error)] * len(whole))
        found = dict(zip(whole, verdicts, strict=True))
        return [found.get(number, UNJUDGED) for number in range(len(attempts))]

    def more(self, attempts: Attempts, n: int) -> list[Trajectory]:
        """n further attempts at a task, for a judge alone: no part of the episode, so its budget does not hold them."""
        self.meter.release(account_of(attempts.task))

        def one(sample: int) -> Trajectory:
            with self.envs.lease() as env:
                run = partial(self.rollout.run, env, attempts.task, attempts.memories, sample)
                return self.envs.limited(env, run)

        return list(ordered_map(one, range(len(attempts), len(attempts) + n), n))

    def begin(self, index: int, task: Task) -> None:
        """Start to count the episode's usage against its budget, attempts finished by an earlier start included.

        The episode's budget limits the agent alone: an attempt that it cuts off is judged and learned from like others.
        """
        finished = self.records.rollouts.finished(index).values()
        spent = sum((trajectory.usage for trajectory in finished), Usage())
        self.meter.begin(account_of(task), spent, role="agent")

    def as_attempts(
        self, task: Task, trajectories: list[Trajectory], memories: list[Scored] = (), *, refused: bool = False
    ) -> Attempts:
        """The attempts as the steps of the loop pass them on. memories: what they were shown."""
        return Attempts(
            task=task,
            trajectories=trajectories,
            evaluate=self.evaluate,
            memories=list(memories),
            strip_lessons=self.strip_lessons,
            refused=refused,
        )

    def nothing_attempted(self, task: Task, error: InfraError) -> Attempts:
        """One attempt that broke before it began. A budget that refuses retrieval is the run's, and ends the run."""
        return self.as_attempts(task, [self.rollout.broken(task, error)], refused=isinstance(error, OverBudget))

    def was_stopped(self, attempts: Attempts) -> bool:
        """Whether the run's budget ended the episode."""
        return attempts.refused or self._refused(attempts.task)

    def _refused(self, task: Task) -> bool:
        """Whether the run's budget refused a call of the task's. The calls of an env's grader bear its id alone."""
        return any(self.meter.stopped(name) for name in (account_of(task), task.id))

    def checkpoint(self, index: int, task: Task, trajectory: Trajectory) -> None:
        """Store a finished attempt for the case that the run is killed.

        One that broke, or that the run's budget ended, is not stored but made again.
        """
        ended = trajectory.ended_by == "budget" and self._refused(task)
        if trajectory.ended_by != "infra_error" and not ended:
            self.records.rollouts.add(index, trajectory)

    def check_sizes(self) -> None:
        """Raises UserError for a k or r that this workflow would ignore."""
        if self.k not in (None, 1) or self.r not in (None, 0):
            raise UserError(
                f"this workflow makes one attempt per task and refines nothing: k={self.k} r={self.r} need a matts one."
            )

    def check_parts(self) -> None:
        """Raises UserError for parts that must not, or cannot, work together."""
        check_choice(self, "workflow", "learn_from", ("both", "success", "failure"))
        if self.rollout.agent.uses_gold and self.learns and not self.setting.use_gold:
            raise UserError(
                f"agent=gold plays the answers, setting={self.setting.name} must not learn them: use workflow=vanilla."
            )
        if self.judge.uses_gold and not self.setting.use_gold:
            raise UserError(
                f"judge=oracle knows the answers, setting={self.setting.name} must not: "
                "use setting=true_labels, setting=train or judge=llm."
            )
        if self.learns and self.judge.compares and (self.k or 1) + (self.r or 0) + self.judge.n_more < 2:
            raise UserError(
                "judge=consensus compares the attempts at a task, and this workflow makes one: "
                "use workflow=matts_parallel or judge=self_consistency."
            )


def guarded(role: str, ask: Callable[[], Result], otherwise: Callable[[str], Result]) -> Result:
    """ask(), or where its model or env broke a result that carries the error; main.log has its traceback.

    This is the one place where a judge, selector or extractor that breaks is caught.
    """
    try:
        return ask()
    except InfraError as error:
        log.error("the %s is broken: %s: %s", role, error.kind, error, exc_info=error)
        return otherwise(f"{role}: {error.kind}: {error}")
