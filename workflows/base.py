"""The ReasoningBank loop: `run_task` runs one task in six steps, of which a workflow overrides one or two."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeVar

from core.concurrency import ordered_map, side_by_side
from core.errors import InfraError, OverBudget, UserError, check_choice
from core.learning.attempts import Attempts
from core.learning.judges import Judge
from core.learning.lessons import Distills
from core.memory.citations import n_cited
from core.memory.protocol import Memory
from core.models.meter import Meter, account_of
from core.run.metrics import Follows, followed
from core.run.records import RunRecords, did_in, records_of, shown_in
from core.setting import Setting
from core.types import NOT_TAKEN, UNJUDGED, Episode, Extraction, Scored, Selection, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.episode import build_episode
from workflows.rollout import Rollout

log = logging.getLogger("run.learning")
Result = TypeVar("Result", Verdict, Selection, Extraction)


@dataclass(kw_only=True)
class Workflow:
    """The ReasoningBank loop (section 3.2 of the paper). workflows/build.py gives it its parts.

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

    def check_sizes(self) -> None:
        """Raises UserError for a k or r that this workflow would ignore."""
        if self.k not in (None, 1) or self.r not in (None, 0):
            raise UserError(
                f"this workflow makes one attempt per task and refines nothing: k={self.k} r={self.r} need a matts one."
            )

    def run_task(
        self, index: int, task: Task, *, write: bool = True, retrieve: Callable[[Task], list[Scored]] | None = None
    ) -> Episode:
        """One task, from the question to the lessons. The stream calls this for every task.

        write      False: the stream consolidates the episode later, when those before it have been written
        retrieve   in place of `self.retrieve`, where the stream must know when the bank is read
        """
        self.begin(index, task)
        try:
            with self.records.timing_retrieval(index):
                memories = (retrieve or self.retrieve)(task)  # Retrieval: a pure read
            attempts = self.attempt(index, task, memories)  # Inference + Execution: k attempts at once
        except InfraError as error:  # nothing could be attempted
            memories, attempts = [], self.nothing_attempted(task, error)
        with side_by_side(len(attempts) > 1) as ask:  # where there are several attempts, these three run at once
            verdicts = ask(attempts.verdicts)  # Evaluation: what the judge says of each
            answer = ask(self.select, attempts)  # which attempt counts
            lessons = ask(self.extract, attempts, memories)  # Extraction
        judged, selection, made = verdicts(), answer(), lessons()
        retrieved = self.shown(memories, attempts, selection.index if selection else 0)
        parts = {"stopped": self.was_stopped(attempts), "filed": self.bank.filing(task)}
        episode = build_episode(index, retrieved, attempts, judged, selection, made, **parts)
        if write:
            self.consolidate(episode)  # Consolidation: the only write
        return episode

    def retrieve(self, task: Task) -> list[Scored]:
        domain, _ = self.bank.filing(task)
        within = {} if domain is None else {"domain": domain}
        return self.bank.retrieve(task.query, exclude_task=task.id, **within)

    def shown(self, memories: list[Scored], attempts: Attempts, chosen: int) -> list[dict]:
        """What the episode records of the retrieved lessons: how many of each record's the prompt had room for.

        With `memory.uses=cited` also how many of them the answer cites; where the env can tell, whether it followed
        them.

        chosen   the number of the attempt that is the answer
        """
        n_shown = self.rollout.agent.shown(memories)
        hits = [
            {"id": m.record.id, "score": m.score, "n_items": len(m.record.items), "n_shown": n}
            for m, n in zip(memories, n_shown, strict=True)
        ]
        played = self.played(attempts, chosen)
        for hit, memory, n in zip(hits, memories, n_shown, strict=True):
            if (did := followed(self.follows, attempts.task, played, memory.record.items[:n])) is not None:
                hit["followed"] = did
        if self.bank.uses != "cited":
            return hits
        cited = n_cited(as_one(played), memories, n_shown)
        return [hit | {"n_cited": n} for hit, n in zip(hits, cited, strict=True)]

    def played(self, attempts: Attempts, chosen: int) -> list[Trajectory]:
        """The attempts whose actions led to the answer: itself, after those that it goes on from."""
        return [attempts.trajectories[chosen]]

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
            return guarded("judge", partial(self.judge.judge, attempts.task, trajectory), UNJUDGED)

        if self.judges and self.judge.compares:
            return self.judged_together(attempts)
        return list(ordered_map(one, attempts.read(), len(attempts)))

    def judged_together(self, attempts: Attempts) -> list[Verdict]:
        """`evaluate` by a judge that needs all attempts of the task."""
        whole = attempts.whole()
        try:
            verdicts = self.judge.judge_all(attempts.only(whole), partial(self.more, attempts))
            found = dict(zip(whole, verdicts, strict=True))
        except InfraError as error:
            found = dict.fromkeys(whole, replace(UNJUDGED, error=_told("judge", error)))
        return [found.get(number, UNJUDGED) for number in range(len(attempts))]

    def more(self, attempts: Attempts, n: int) -> list[Trajectory]:
        """n further attempts at a task, for a judge alone: no part of the episode, so its budget does not hold them."""
        self.meter.release(account_of(attempts.task))

        def one(sample: int) -> Trajectory:
            with self.envs.lease() as env:
                run = partial(self.rollout.run, env, attempts.task, attempts.memories, sample)
                return self.envs.limited(env, run)

        return list(ordered_map(one, range(len(attempts), len(attempts) + n), n))

    def select(self, attempts: Attempts) -> Selection | None:
        """Which attempt is the task's answer; None where there is one attempt."""
        return None

    def extract(self, attempts: Attempts, memories: list[Scored]) -> list[Extraction]:
        """Lessons from each learnable attempt, distilled alone."""

        def one(number: int) -> Extraction:
            trajectory, verdict = read[number], attempts.verdicts()[number]
            gold = trajectory.gold if self.setting.show_answer else None
            distil = partial(self.distiller.distil, attempts.task, trajectory, verdict, memories, gold)
            return replace(guarded("extractor", distil, Extraction()), attempts=(number,))

        read, learnable = attempts.read(), self.learnable(attempts)
        return list(ordered_map(one, learnable, len(learnable)))

    def consolidate(self, episode: Episode, due: int = 1) -> None:
        """Write the episode's line, add its records to the bank, then let the bank learn from the whole episode.

        Resume repairs a crash in between.

        due   how many of the last episodes go into the bank now: this one, or in a batch none until its end, then all
        """
        with self.records.shielded():
            self.records.append(episode)
        if episode.status == "stopped":  # its task will run again
            return
        for row in self.records.rows[len(self.records.rows) - due :]:
            with self.records.shielded():
                self.keep(row)
            self.bank.learn(row)  # may ask a model, so Ctrl-C stops it; resume goes on from there

    def keep(self, row: dict) -> None:
        """Add the records of an episode's line to the bank."""
        for record in records_of(row):
            self.bank.add_from(record, did_in(row), shown=shown_in(row))

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

    def learnable(self, attempts: Attempts) -> list[int]:
        """The numbers of the attempts to learn from: judged, with a verdict that `learn_from` allows, and not empty."""
        return [
            number
            for number, (trajectory, verdict) in enumerate(zip(attempts.trajectories, attempts.verdicts(), strict=True))
            if self.learns and verdict.label is not None and self.learn_from in ("both", verdict.label)
            if trajectory.has_output
        ]


def as_one(played: Sequence[Trajectory]) -> Trajectory:
    """Attempts that go on from each other as one: the last, with all that was done. A note on them is no deed."""
    return replace(played[-1], steps=tuple(s for made in played for s in made.steps if s.observation != NOT_TAKEN))


def guarded(part: str, ask: Callable[[], Result], otherwise: Result) -> Result:
    """ask(), or `otherwise` with the error in it, when a model or an env broke."""
    try:
        return ask()
    except InfraError as error:
        return replace(otherwise, error=_told(part, error))


def _told(part: str, error: InfraError) -> str:
    """What broke beside the attempts, as an episode records it; in main.log with its traceback."""
    log.error("the %s is broken: %s: %s", part, error.kind, error, exc_info=error)
    return f"{part}: {error.kind}: {error}"
