"""workflow=reasoningbank, the loop of the paper (section 3.2): `run_task` runs one task in six steps.

The other workflows are subclasses that override some of the steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeVar

from core.concurrency import ordered_map, side_by_side
from core.errors import InfraError, OverBudget, UserError, check_choice, check_returned
from core.learning.attempts import Attempts, as_learner_sees
from core.learning.judges import Judge
from core.learning.lessons import Contrast, Distills
from core.memory.protocol import Memory, hits_of
from core.models.meter import Meter, account_of
from core.run.metrics import Follows
from core.run.records import RunRecords, as_memory_sees, did_in, records_of, shown_in
from core.setting import Setting
from core.types import UNJUDGED, Episode, Extraction, Scored, Selection, Task, Trajectory, Usage, Verdict
from envs.pool import EnvPool
from workflows.episode import build_episode, retrieved_rows
from workflows.rollout import Rollout
from workflows.validate import Gate, Trial

log = logging.getLogger("run.learning")
Result = TypeVar("Result")
TASK, STUCK = "task", "stuck"  # retrieval.when; the third is "step"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A task's turn in the stream: all that the stream tells the loop about it.

    index                the episode's index
    stream_consolidates  run_task does not write this episode; the stream does, after all earlier ones
    """

    index: int
    task: Task
    stream_consolidates: bool = False


@dataclass(kw_only=True)
class ReasoningBank:
    """The loop, and the base of every other workflow. workflows/build.py builds it.

    learn_from     both | success | failure: which attempts are distilled, by their verdicts
    strip_lessons  the text of retrieved lessons is removed from an attempt before judge, selector and distiller read it
    k              attempts for each task; None: 1
    r              refinements after an attempt; None: 0
    visible_domains
                   {`Task.seeded_by`: domains that the task may see lessons of}; None: as retrieval.domain says
    when           task | step | stuck: when an attempt is shown lessons: in its opening, also after each step, or only
                   after a step that was invalid or repeats the one before it (retrieval.when)
    gate           tries new lessons on earlier tasks before others are shown them (memory.validate); None: at once
    follows        the env's rule that says whether an attempt followed a lesson (`BaseEnv.follows`)
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
    visible_domains: Mapping[tuple[str, ...], tuple[str, ...]] | None = None
    when: str = TASK
    gate: Gate | None = None
    learns: bool = field(init=False)  # whether episodes depend on each other through the bank
    judges: bool = field(init=False)  # whether attempts are judged
    withheld: frozenset[str] = field(init=False)  # which of OUTCOME and ANSWER (core/setting.py) nobody is told
    has_memory: ClassVar[bool] = True
    scaled_by: ClassVar[tuple[str, ...]] = ()  # which of k and r this workflow uses; a sweep drops the others

    def __post_init__(self) -> None:
        self.check_sizes()
        self.learns = self.setting.learn and self.has_memory and self.bank.learns
        self.judges = self.learns
        self.withheld = self.setting.withheld
        if self.has_memory and self.when != TASK:
            self.rollout.recall, self.rollout.when = self.search, self.when
        self.check_parts()

    def run_task(self, turn: Turn) -> Episode:
        """One task, from the question to the lessons. The stream calls this for every task."""
        self.begin(turn.index, turn.task)
        try:
            with self.records.timing_retrieval(turn.index):
                memories = self.retrieve(turn.task)  # Retrieval: a pure read
            attempts = self.attempt(turn.index, turn.task, memories)  # Inference + Execution: k attempts at once
        except InfraError as error:  # retrieval failed, or no attempt could start
            memories, attempts = [], self.nothing_attempted(turn.task, error)
        with side_by_side(len(attempts) > 1) as start:  # with several attempts these three run concurrently
            get_verdicts = start(attempts.verdicts)  # Evaluation (calls self.evaluate): what the learner believes
            get_answer = start(attempts.selection)  # (calls self.select) which attempt is the task's answer
            get_lessons = start(self.extract, attempts, memories)  # Extraction
        episode = self.episode(turn, attempts, get_verdicts(), get_answer(), get_lessons())
        if self.gate is not None:  # new lessons are tried on earlier tasks, where that is due
            episode = self.gate.tried(episode, self.records.rows, self.play_again)
        if not turn.stream_consolidates:
            self.consolidate(episode)  # Consolidation: the only write
        return episode

    def retrieve(self, task: Task) -> list[Scored]:
        """The records retrieved for the task's opening, best first."""
        if (stored := self.rollout.retrieved(task)) is not None:
            return stored
        return [] if self.when == STUCK else self.search(task, task.query)

    def search(self, task: Task, query: str) -> list[Scored]:
        """The records that the bank finds for a query, best first, of those that the task may see."""
        if self.visible_domains is None:
            domain, _ = self.bank.filed_under(task)
        elif not (domain := self.visible_domains[task.seeded_by]):
            return []
        within = {} if domain is None else {"domain": domain}
        return hits_of(self.bank, "retrieve", self.bank.retrieve(query, exclude_task=task.id, **within))

    def attempt(self, index: int, task: Task, memories: list[Scored]) -> Attempts:
        """Make k attempts concurrently, each in its own env. An attempt that breaks does not affect the others.

        index   the turn's (`Turn.index`): attempts are stored under it until the episode is written
        """
        finished = self.records.rollouts.finished(index)  # attempts of an earlier start of this run

        def one(sample: int) -> Trajectory:
            if sample in finished:
                return finished[sample]
            try:
                with self.envs.lease() as env:
                    made = self.envs.limited(env, partial(self.rollout.run, env, task, memories, sample))
            except InfraError as error:  # no env was available, or the attempt exceeded its time limit
                return self.rollout.broken(task, error, sample)
            self.checkpoint(index, task, made)
            return made

        k = self.k or 1
        return self.as_attempts(task, list(ordered_map(one, range(k), k)), memories)

    def evaluate(self, attempts: Attempts) -> list[Verdict]:
        """What the learner believes: the judge's verdict on each attempt, which may be wrong.

        The truth is what `BaseEnv.evaluate` returns. UNJUDGED for an attempt that broke, and for every attempt of a run
        that needs no verdicts.
        """

        def one(trajectory: Trajectory) -> Verdict:
            if trajectory.ended_by == "infra_error" or not self.judges:
                return UNJUDGED
            judge = partial(self.judge.judge, attempts.task, trajectory)
            return guarded("judge", Verdict, judge, lambda error: replace(UNJUDGED, error=error))

        if self.judges and self.judge.compares:
            return self.judged_together(attempts)
        return list(ordered_map(one, attempts.read(), len(attempts)))

    def select(self, attempts: Attempts) -> Selection | None:
        """Which attempt is the task's answer; None if there is only one attempt."""
        return None

    def extract(self, attempts: Attempts, memories: list[Scored]) -> list[Extraction]:
        """Distil each learnable attempt (`learnable`) by itself."""
        read, learnable = attempts.read(), self.learnable(attempts)

        def one(number: int) -> Extraction:
            trajectory, verdict = read[number], attempts.verdicts()[number]
            distil = partial(self.distiller.distil, attempts.task, trajectory, verdict, memories, trajectory.gold)
            made = guarded("extractor", Extraction, distil, lambda error: Extraction(error=error))
            return replace(made, attempts=(number,))

        return list(ordered_map(one, learnable, len(learnable)))

    def consolidate(self, episode: Episode) -> None:
        """Write the episode's line, add its records to the bank, then let the bank learn from the whole episode.

        After a crash between these steps, `core.run.resume.restore` repeats the missing ones.
        """
        self.record(episode)
        if episode.status != "stopped":  # a stopped task runs again on resume
            self.update_bank(self.records.rows[-1:])

    def record(self, *episodes: Episode) -> None:
        """First half of `consolidate`: write the episodes' lines to episodes.jsonl."""
        with self.records.shielded():
            self.records.append(*episodes)

    def update_bank(self, rows: list[dict]) -> None:
        """Second half of `consolidate`: the bank gets the records of these episodes and learns from their outcomes."""
        for row in rows:
            with self.records.shielded():
                for record in records_of(row):
                    self.bank.add_from(record, did_in(row), shown=shown_in(row))
            # Not shielded: it may call a model, and resume repeats what Ctrl-C cut off.
            self.bank.learn(as_memory_sees(row, self.withheld))

    def episode(
        self,
        turn: Turn,
        attempts: Attempts,
        verdicts: list[Verdict],
        selection: Selection | None,
        extractions: list[Extraction],
    ) -> Episode:
        """The task's Episode: everything that happened in it."""
        right = isinstance(extractions, list) and all(isinstance(made, Extraction) for made in extractions)
        check_returned(right, f"{type(self).__name__}.extract", "a list of Extraction", extractions)
        played = self.played(attempts, selection.index if selection else 0)
        n_shown, cited = self.rollout.agent.shown(attempts.memories), self.bank.uses == "cited"
        retrieved = retrieved_rows(attempts, n_shown, played, self.follows, cited=cited)
        stopped, filed = self.was_stopped(attempts), self.bank.filed_under(turn.task)
        how = {"stopped": stopped, "filed": filed, "candidates": self.gate is not None}
        return build_episode(turn.index, retrieved, attempts, verdicts, selection, extractions, **how)

    def played(self, attempts: Attempts, chosen: int) -> list[Trajectory]:
        """The chosen attempt, preceded by the attempts that it continued (refine=continue).

        chosen   the number of the attempt that is the answer
        """
        return [attempts.trajectories[chosen]]

    def learnable(self, attempts: Attempts) -> list[int]:
        """The numbers of the attempts to learn from: not empty, and with a label that `learn_from` allows."""
        return [
            number
            for number, (trajectory, verdict) in enumerate(zip(attempts.trajectories, attempts.verdicts(), strict=True))
            if self.learns and verdict.label is not None and self.learn_from in ("both", verdict.label)
            if trajectory.has_output
        ]

    def lesson_maker(self, n_attempts: int) -> Distills | Contrast:
        """The extractor used for `n_attempts`: the distiller, or the contrast extractor."""
        return self.distiller

    def judged_together(self, attempts: Attempts) -> list[Verdict]:
        """Verdicts from a judge that needs all attempts together (`Judge.compares`)."""
        whole = attempts.whole()
        compare = partial(self.judge.judge_all, attempts.only(whole), partial(self.extra_attempts, attempts))
        verdicts = guarded("judge", list, compare, lambda error: [replace(UNJUDGED, error=error)] * len(whole))
        found = dict(zip(whole, verdicts, strict=True))
        return [found.get(number, UNJUDGED) for number in range(len(attempts))]

    def extra_attempts(self, attempts: Attempts, n: int) -> list[Trajectory]:
        """n further attempts for the judge only: not part of the episode, so not limited by the episode budget."""
        self.meter.release(account_of(attempts.task))

        def one(sample: int) -> Trajectory:
            with self.envs.lease() as env:
                run = partial(self.rollout.run, env, attempts.task, attempts.memories, sample)
                return as_learner_sees(self.envs.limited(env, run), self.withheld)

        return list(ordered_map(one, range(len(attempts), len(attempts) + n), n))

    def play_again(self, task: Task, memories: list[Scored], sample: int) -> Trial:
        """A further attempt at an earlier task, for memory.validate: shown these memories and no others."""
        self.meter.begin(account_of(task), role="agent")
        alone = replace(self.rollout, recall=None)
        try:
            with self.envs.lease() as env:
                made = self.envs.limited(env, partial(alone.run, env, task, memories, sample))
        except InfraError as error:
            made = alone.broken(task, error, sample)
        attempts = self.as_attempts(task, [made], memories)
        [verdict] = attempts.verdicts()
        solved = None if verdict.label is None else verdict.label == "success"
        return Trial(solved, made.usage + verdict.usage, self.was_stopped(attempts))

    def begin(self, index: int, task: Task) -> None:
        """Start counting the episode's usage against the episode budget; attempts of an earlier start are included.

        The episode budget limits the agent only: an attempt that it cuts off is judged and learned from like any other.
        """
        finished = self.records.rollouts.finished(index).values()
        spent = sum((trajectory.usage for trajectory in finished), Usage())
        self.meter.begin(account_of(task), spent, role="agent")

    def as_attempts(
        self, task: Task, trajectories: list[Trajectory], memories: list[Scored] = (), *, refused: bool = False
    ) -> Attempts:
        """Wrap trajectories as Attempts, with the judge and the loop's settings.

        memories   the retrieved records
        refused    see Attempts
        """
        return Attempts(
            task=task,
            trajectories=trajectories,
            evaluate=self.evaluate,
            memories=list(memories),
            strip_lessons=self.strip_lessons,
            select=self.select,
            refused=refused,
            withheld=self.withheld,
        )

    def nothing_attempted(self, task: Task, error: InfraError) -> Attempts:
        """One attempt that broke before it began.

        OverBudget here means that the run's budget is used up, so the run ends: an episode's budget limits its agent
        alone, which has not begun.
        """
        return self.as_attempts(task, [self.rollout.broken(task, error)], refused=isinstance(error, OverBudget))

    def was_stopped(self, attempts: Attempts) -> bool:
        """Whether the run's budget ended the episode."""
        return attempts.refused or self._refused(attempts.task)

    def _refused(self, task: Task) -> bool:
        """Whether the run's budget refused a call of this task.

        Grader calls are metered under task.id, not under the account of this visit.
        """
        return any(self.meter.stopped(name) for name in (account_of(task), task.id))

    def checkpoint(self, index: int, task: Task, trajectory: Trajectory) -> None:
        """Store a finished attempt in rollouts.jsonl, so that a killed run does not repeat it.

        An attempt that broke, or that the run's budget ended, is not stored: a resumed run repeats it.
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
        """Raises UserError for parts that must not, or cannot, be combined."""
        check_choice(self, "workflow", "learn_from", ("both", "success", "failure"))
        agent, most = self.rollout.agent, self.rollout.max_steps
        if most is not None and most < agent.least_steps:
            raise UserError(f"max_steps={most}: an attempt of this agent takes {agent.least_steps} steps.")
        if self.rollout.agent.uses_gold and self.learns and not self.setting.use_gold:
            raise UserError(
                f"agent=gold plays the answers, setting={self.setting.name} must not learn them: use workflow=vanilla."
            )
        if self.judge.uses_gold and not self.setting.use_gold:
            raise UserError(
                f"judge=oracle knows the answers, setting={self.setting.name} must not: "
                "use setting=true_labels, setting=train or judge=llm."
            )
        if self.gate is not None and (not self.learns or self.judge.compares):
            raise UserError(
                "memory.validate tries lessons by single attempts that are judged one by one: it needs a setting that "
                "learns, and judge=llm, heuristic or oracle."
            )
        least = getattr(self.distiller, "least_attempts", 1)  # one of somebody's own may leave it out
        if self.learns and (self.k or 1) < least:
            raise UserError(
                "this memory learns from several attempts at a task alone, and this workflow makes one: use "
                "workflow=matts_parallel and k=5 (memory=grpo: arm=grpo)."
            )
        if self.learns and self.judge.compares and (self.k or 1) + (self.r or 0) + self.judge.n_more < 2:
            raise UserError(
                "judge=consensus compares the attempts at a task, and this workflow makes one: "
                "use workflow=matts_parallel or judge=self_consistency."
            )


def guarded(role: str, kind: type[Result], ask: partial[Result], otherwise: Callable[[str], Result]) -> Result:
    """Return ask(); on InfraError, log it with its traceback and return otherwise(message).

    kind   what the method must return, which may be one of somebody's own: UserError for anything else

    The only place that catches the errors of a judge, a selector or an extractor.
    """
    try:
        found = ask()
        where = getattr(ask.func, "__qualname__", role)
        check_returned(isinstance(found, kind), where, f"an instance of {kind.__name__}", found)
        return found
    except InfraError as error:
        log.error("the %s is broken: %s: %s", role, error.kind, error, exc_info=error)
        return otherwise(f"{role}: {error.kind}: {error}")
