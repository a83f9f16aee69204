"""A study: its plan, which runs come next, what they may cost, and when it has its answer.

What is run next follows from the finished runs alone (`analysis.answer`): the same command goes on where it stopped,
and comes to the same answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from analysis.answer import (
    FILE,
    SAME_COST,
    Question,
    Runs,
    answer_of,
    can_vote,
    content_looks,
    looks_of,
    n_run,
    outcome_of,
    spent,
    unasked,
    unlike,
    write,
)
from analysis.answer_page import page
from analysis.ladder import climb, first_break, seeds_needed
from analysis.reach import size_or_none
from analysis.runs import Run, read_run
from analysis.sequential import Design, Interim
from analysis.stats import GUESSES, paired_by_seed, paired_spread
from analysis.verdict import VERDICTS
from core.errors import UserError
from core.make import part, without_hydra
from core.run.arms import words_that_change
from core.run.keys import differences
from core.run.launch import save_config
from core.run.manifest import identity
from core.run.sweep_watch import Watch
from core.terminal import prose
from core.types import content_id, total
from envs.base import BaseEnv
from workflows.plan_sweep import plan_sweep, print_sweep

LIMITS = ("calls", "tokens", "usd", "wall_s")  # of budget.run
WITHOUT_CONTENT = ("empty_block", "placebo")  # arms with a block that says nothing: controls themselves


@dataclass(kw_only=True)
class GrowingStudy:
    """The settings of config/hydra/sweeper/verdict.yaml, and what has been run so far.

    config    of the sweep as a whole
    asked     fields of `Question`; plan: of its `Design`
    finished  (arm, seed) of the runs that this start has seen complete
    failed    whether a run ended with an error
    """

    config: DictConfig
    context: HydraContext
    launcher: Launcher
    asked: dict[str, Any]
    plan: dict[str, Any]
    pilot: int
    diagnose: bool | None
    same_cost: int | None
    finished: set[tuple[str, int]] = field(default_factory=set, init=False)
    n_launched: int = field(default=0, init=False)
    n_tasks: int | None = field(default=None, init=False)
    failed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.folder = Path(self.config.hydra.sweep.dir)

    def run(self, arguments: list[str]) -> bool:
        """Run the study, or print its plan (dry_run), and the answer. Returns whether there is one, whatever it is."""
        found, dry = False, bool(self.config.get("dry_run"))
        try:
            self._check_words(arguments)
            self.words = self._same_tasks([word for word in arguments if not word.startswith("budget.run")])
            self._check_arms(arguments)
            self._check_plan()
            self._say_plan(dry)
            found = dry or self._grow()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
        if (watch := Watch.running()) is not None:
            watch.end()
        if found and not dry:
            told = page(self.folder, json.loads((self.folder / FILE).read_text(encoding="utf-8")))
            print(prose("\n" + "\n".join(told) + f"\n\n  {self.folder / FILE}"), flush=True)
        return found

    def _same_tasks(self, words: list[str]) -> list[str]:
        """The words of the command; a `limit`, wherever it is set, takes the same tasks for each seed, in any order."""
        limit = self._composed(words).limit
        return words if limit is None else [*words, f"stream.first={limit}", "limit=null"]

    def _check_words(self, arguments: list[str]) -> None:
        """Raise UserError for a sweep within the study."""
        for word in OverridesParser.create().parse_overrides(arguments):
            if word.is_sweep_override() or word.get_key_element() in ("arm", "seed"):
                raise UserError(
                    f"{word.input_line}: a verdict is one question, and chooses arms and seeds itself: give one value, "
                    "or hydra.sweeper.arm=ARM for another arm than reasoningbank."
                )
            if word.get_key_element().endswith(".limit"):
                raise UserError(f"{word.input_line}: a verdict has one environment: give limit=N.")

    def _check_arms(self, arguments: list[str]) -> None:
        """Raise UserError for words with which an arm would be another one, and for two arms that are one."""
        question = self.question
        arms = [question.arm, question.baseline, question.control.partition(" ")[0], SAME_COST]
        arms += [arm for step in question.steps() for arm in (step.arm, step.than)]
        changed = words_that_change(self.config.hydra.runtime, arguments, dict.fromkeys(filter(None, arms)))
        for word, arm in changed:
            raise UserError(
                f"{word}: arm={arm} of this study sets that itself, and would be another arm with it. Ask about an arm "
                "that has it, with hydra.sweeper.arm=ARM."
            )
        if identity(without_hydra(self.arm)) == identity(without_hydra(self.baseline)):
            raise UserError(
                f"arm={question.arm} and arm={question.baseline} are one configuration here: nothing is compared."
            )
        if (passes := self.arm.stream.passes) != (usual := self.baseline.stream.passes):
            raise UserError(
                f"arm={question.arm} plays each task {passes} times, arm={question.baseline} {usual}: give a "
                "baseline that plays as often, e.g. hydra.sweeper.baseline=no_memory_two_passes."
            )

    def _check_plan(self) -> None:
        """Raise UserError for another study than the folder holds."""
        before = Question.read(self.folder)
        if before is not None and (changes := differences(asdict(before), asdict(self.question))):
            raise UserError(
                f"run_dir={self.folder} holds a study with another plan ({', '.join(changes)}). A plan that is changed "
                "after a look no longer has its error rate: give the plan as it was, or another run_dir."
            )

    @cached_property
    def baseline(self) -> DictConfig:
        """The composed configuration of the baseline's runs."""
        return self._composed([*self.words, f"arm={self.asked['baseline']}"])

    @cached_property
    def arm(self) -> DictConfig:
        """The composed configuration of the arm's runs."""
        return self._composed([*self.words, f"arm={self.asked['arm']}"])

    def _composed(self, words: list[str]) -> DictConfig:
        return self.context.config_loader.load_sweep_config(self.config, words)

    @cached_property
    def question(self) -> Question:
        lessons = part(self.baseline.env).lessons is not BaseEnv.lessons
        about = {"configuration": content_id(identity(without_hydra(self.baseline))), "lessons": lessons}
        arm, control = self.asked["arm"], ""
        if _has_memory(self.arm) and not _has_memory(self.baseline) and arm not in WITHOUT_CONTENT:
            control = "placebo" if arm == "reasoningbank" else f"{arm} retrieval=placebo"
        return Question(**self.asked, **about, design=Design(**self.plan), control=control)

    @property
    def design(self) -> Design:
        return self.question.design

    def _grow(self) -> bool:
        """Grow the study and climb the ladder. Returns whether no run failed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_config(self.config, self.folder / "multirun.yaml")
        if not (self.folder / FILE).exists():
            write(self.folder, unasked(self.question))
        arms = (self.question.baseline, self.question.arm)
        if not self._pilot(arms):
            return False
        for n_seeds in range(self.design.first, self.design.most + 1):
            if not self._launch(arms, self._seeds(n_seeds)):
                break
            looks = looks_of(self.question, Runs(self.folder, self.question))
            if looks[-1].outcome != "go on":
                self._run_controls(looks)
                self._climb(looks)
                break
        if self.failed:
            return False
        write(self.folder, answer_of(self.folder, self.question))
        return True

    def _pilot(self, arms: Sequence[str]) -> bool:
        """Run a few tasks of the first seed, say what the whole will cost, and check that it can be paid.

        Nothing is paid twice: the runs grow to the whole stream afterwards. Returns whether to go on.
        """
        stream = self.baseline.stream
        grows = stream.passes == stream.batch == 1 and (stream.first is None or stream.first > self.pilot)
        if not self.pilot or not grows or self.summaries():  # the last: it has been made
            return True
        if self._launch(arms, self._seeds(1), f"limit={self.pilot}", "retry_broken=0"):
            self._say_costs()
        return not self.failed

    def _run_controls(self, looks: list[Interim]) -> None:
        """Where the arms differ: is it the lessons' content, and is it more than their cost buys without memory?

        The control runs on the study's seeds, and both go on until that is answered, too.
        """
        question, seeds = self.question, n_run(self.question, looks)
        if not question.control or looks[-1].verdict not in VERDICTS:
            return
        for n_seeds in (1, *range(seeds, self.design.most + 1)):  # the first seed shows whether it is a control
            print(f"is it the lessons' content? {question.control}, seeds: {n_seeds}", flush=True)
            if not self._launch([question.arm, question.control], self._seeds(n_seeds)):
                break
            found = content_looks(question, runs := Runs(self.folder, question), looks)
            if unlike(question, runs) or (found and found[-1].outcome != "go on"):
                break
        self.same_cost = self._attempts_at_same_cost() if self.same_cost is None else self.same_cost
        if looks[-1].verdict == "better" and self.same_cost > 1:
            self._launch([SAME_COST], self._seeds(seeds))
        self.failed = False  # the study has its answer

    def _attempts_at_same_cost(self) -> int:
        """How many attempts of the baseline have the tokens of one of the arm's, by the first seed; 0: not known.

        0 also where attempts state no answers: there no majority could be taken.
        """
        runs = Runs(self.folder, self.question)
        if not can_vote(self.question, runs):
            return 0
        mine, base = (spent(runs.of(arm, 1))["tokens"] for arm in (self.question.arm, self.question.baseline))
        return round(mine / base) if mine and base else 0

    def _climb(self, looks: list[Interim]) -> None:
        """Unless memory helps, run the ladder's arms, step by step, until a link breaks, or cannot be run.

        Where the seeds repeat each other, none of its comparisons could be tested either.
        """
        last, content = looks[-1], content_looks(self.question, Runs(self.folder, self.question), looks)
        outcome = outcome_of(self.question, last, content)
        if self.diagnose is False or (self.diagnose is None and outcome in ("better", "alike")):
            return
        question, effect, steps = self.question, self.design.effect, self.question.steps()
        values, baseline, _, _, seeds = Runs(self.folder, question).outcomes(n_run(question, looks))
        about = paired_spread(paired_by_seed(values, baseline, seeds))
        n_seeds = seeds_needed(about, last.n_seeds, effect, len(steps), self.design.most)
        print(f"which link breaks? {len(steps)} steps, each with {n_seeds} seeds, until one does", flush=True)
        for place, step in enumerate(steps, 1):
            if not self._launch(filter(None, [step.than, step.arm]), self._seeds(n_seeds)):
                self.failed = False  # the study has its answer
                return
            runs = Runs(self.folder, question)
            if first_break(climb(steps[:place], runs.compare, effect, runs.recur())):
                return

    def _launch(self, arms: Iterable[str], seeds: Iterable[int], *more: str) -> bool:
        """Run these arms on these seeds, arms of a seed side by side. Returns whether all of them are complete.

        A budget for the whole study is shared among the runs that are still to be done; what one leaves, others take.

        more   further overrides, of the pilot
        """
        arms = list(arms)
        jobs = [(arm, seed) for seed in seeds for arm in arms if (arm, seed) not in self.finished]
        while jobs:
            before = self.summaries()
            left = {key: limit - used(before.values(), key) for key, limit in self.budget.items()}
            if any(amount <= 0 for amount in left.values()):
                return False
            words = []
            for job in jobs:
                own = [before[job]] if job in before else []
                most = {key: amount / len(jobs) + used(own, key) for key, amount in left.items()}
                limits = [f"budget.run.{key}={_limit(key, amount)}" for key, amount in most.items()]
                words.append([*self.words, *self._words_of(*job), *limits, *more])
            results = self.launcher.launch(words, initial_job_idx=self.n_launched)
            self.n_launched += len(jobs)
            if any(result.status == JobStatus.FAILED for result in results):
                self.failed = True
                return False
            after = self.summaries()
            whole = {job for job in jobs if after.get(job, {}).get("complete")}
            self.finished |= set() if more else whole
            jobs = [job for job in jobs if job not in whole]
            n_before, n_after = (sum(one.get("n", 0) for one in seen.values()) for seen in (before, after))
            if jobs and n_after <= n_before:
                return False  # what is left pays no further task, or they ended for another reason
        return True

    def _seeds(self, n_seeds: int) -> range:
        return range(self.question.first_seed, self.question.first_seed + n_seeds)

    def _words_of(self, arm: str, seed: int) -> list[str]:
        arm, *more = arm.split(" ")
        more += self.question.strong_extractor if arm == "strong_extractor" else ()
        if arm == SAME_COST:
            more += [f"k={self.same_cost}"] if self.same_cost else []
            more += [f"stream.passes={self.arm.stream.passes}"] if self.arm.stream.passes != 1 else []
        return [f"arm={arm}", f"seed={seed}", *more]

    @cached_property
    def budget(self) -> dict[str, float]:
        """{key of budget.run: its limit} for the whole study."""
        given = OmegaConf.to_container(self.config.budget.run)
        return {key: float(given[key]) for key in LIMITS if given.get(key) is not None}

    def summaries(self) -> dict[tuple[str, int], dict[str, Any]]:
        """{(arm, seed): summary} of the study's runs; {} for one that has not ended once."""
        name = self.question.name_of
        found = [(name(run.arm, run.choices.get("retrieval")), run) for run in self.runs()]
        return {(arm, run.config["seed"]): run.summary for arm, run in found if arm}

    def runs(self) -> list[Run]:
        """The study's runs, without their episodes."""
        return [read_run(file.parent, episodes=False) for file in sorted(self.folder.glob("*/manifest.json"))]

    def _say_plan(self, dry: bool) -> None:
        """Print what the study will do and what it could find; with dry_run=true also what a seed asks and costs."""
        question, design = self.question, self.design
        arms = [question.baseline, question.arm]
        arms += [question.control, SAME_COST] if dry and question.control else []
        jobs = [[*self.words, *self._words_of(arm, question.first_seed)] for arm in arms]
        groups = plan_sweep(self.config, jobs, begin=dry)
        if dry and print_sweep(groups):
            raise UserError("a run of this study cannot be planned, for the reason above.")
        self.n_tasks = next((each.plan.n_tasks for each in groups if each.plan), None)
        print(
            f"does {question.arm} help, against {question.baseline}? {design.first} to {design.most} seeds of "
            f"{self.n_tasks or '?'} tasks, a look after each; it stops when the answer is clear (level "
            f"{100 * design.level:g} % over all looks) or more seeds will not show {100 * design.effect:g} points.",
            flush=True,
        )
        if self.n_tasks:
            print(_could_find(design.detectable(self.n_tasks, **GUESSES)), flush=True)

    def _say_costs(self) -> None:
        """Print what the pilot's tasks make of the whole. Raises UserError if its budget cannot pay the first look."""
        design, found = self.design, self.summaries()
        n_pilot = max(run.n_tasks for run in self.runs())
        n_tasks = self.n_tasks or n_pilot
        mine = [summary for (arm, _), summary in found.items() if arm == self.question.arm]

        def seed_of(runs: Iterable[dict[str, Any]]) -> dict[str, float]:
            return {key: used(runs, key, unknown=nan) * n_tasks / n_pilot for key in LIMITS}

        a_seed = seed_of(found.values())
        print(f"after {n_pilot} tasks of both arms, the study will cost about (a ladder is not included):")
        print(f"  both arms: {_amounts(a_seed, design)}", flush=True)
        if self.question.control:  # two of them, each like the arm
            print(f"  two controls, if the arms differ: {_amounts(seed_of([*mine, *mine]), design)}", flush=True)
        for key, limit in self.budget.items():
            if (needed := a_seed[key] * design.first) > limit:
                raise UserError(
                    f"budget.run.{key}={limit:g} is too little for the first look, which takes about {needed:.3g}: "
                    "give more, a smaller limit of tasks, or a cheaper model. The same command goes on."
                )


def _has_memory(config: DictConfig) -> bool:
    return part(config.workflow).has_memory and part(config.memory).learns


def _amounts(a_seed: dict[str, float], design: Design) -> str:
    """What the fewest and the most seeds cost. a_seed: of one seed, by the keys of LIMITS."""
    usd, tokens, wall_s = (a_seed[key] for key in ("usd", "tokens", "wall_s"))
    sizes = (design.first, design.most)
    told = (f"{n} seeds {usd * n:.2f} USD, {tokens * n:,.0f} tokens, {wall_s * n / 60:.0f} min" for n in sizes)
    return "; ".join(told).replace("nan", "unknown")


def _limit(key: str, amount: float) -> str:
    """A limit as its key takes it: calls and tokens are whole numbers, at least 1."""
    return f"{amount:.12g}" if key in ("usd", "wall_s") else str(max(1, int(amount)))


def _could_find(found: list[tuple[int, float]]) -> str:
    """What a study could find before anything is known of it. found: from `Design.detectable`."""
    some = dict.fromkeys((found[0], found[len(found) // 2], found[-1]))
    sizes = ", ".join(f"{size_or_none(100 * size)} by {n_seeds} seeds" for n_seeds, size in some)
    return (
        f"it finds, with a chance of 80 %, in points: {sizes} (assumed: success {GUESSES['rate']:.0%}, "
        f"sd of banks {100 * GUESSES['sd']:g} points, arms alike {GUESSES['alike']:g})"
    )


def used(summaries: Iterable[dict[str, Any]], key: str, unknown: float = 0.0) -> float:
    """What runs have spent of a limit of budget.run, as their meters count it. unknown: what an unknown amount is."""
    amount = 0.0
    for summary in summaries:
        calls = summary.get("calls", {}).get("total", {})
        tokens = total((calls.get("prompt_tokens", 0), calls.get("completion_tokens", 0)))
        amounts = {"tokens": tokens, "usd": calls.get("cost_usd"), "wall_s": summary.get("wall_s")}
        one = amounts.get(key, calls.get("calls"))
        amount += unknown if one is None else one
    return amount
