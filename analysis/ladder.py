"""Which link between a lesson and a solved task breaks: each arm of the ladder differs from another one in one link.

no_memory -> empty_block -> placebo -> random_retrieval -> reasoningbank -> true_labels -> strong_extractor -> told_*

A step asks one question of two arms, and answers "holds", "breaks" or "not known". The first three ask for harm: a
block, any text in it, other tasks' lessons. The others replace one link by an ideal one: what then gets better was
broken. One step compares no arms: where hardly any task has an earlier one of its type, even perfect lessons come too
late. docs/verdict.md shows worlds in which exactly one link is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.stats import Spread, least_difference
from analysis.verdict import LEVEL, comparison_outcome, correct

HOLDS, BREAKS, UNKNOWN = "holds", "breaks", "not known"
HARM, REPAIR, USELESS, COUNT = "harm", "repair", "useless", "count"


@dataclass(frozen=True, kw_only=True)
class LadderStep:
    """One question of the ladder.

    link     what it is about
    arm      the arm that has the link otherwise than its baseline `than`
    kind     harm: the link breaks if the arm is worse; repair: if the arm, which has an ideal link, is better; useless:
             unless the arm is better; count: if too few tasks can gain at all, of no arms ("")
    broken   what is said where it breaks
    advice   what to try then
    recurring   asked of those tasks alone that had an earlier one of their type: for the others told_bank, as a bank
                that is learned, has no lesson
    """

    link: str
    arm: str
    than: str
    kind: str
    broken: str
    advice: str
    recurring: bool


# fmt: off
STEPS = tuple(
    LadderStep(link=link, arm=a, than=b, kind=kind, broken=broken, advice=advice, recurring="told_bank" in (a, b))
    for link, a, b, kind, advice, broken in (
        ("attention", "empty_block", "no_memory", HARM, "memory.inject=user",
         "the frame of the memory block alone, without a lesson in it, makes the agent worse"),
        ("any text", "placebo", "empty_block", HARM, "retrieval.min_score=0.6",
         "any text before the task makes the agent worse, also one that says nothing about it"),
        ("wrong lessons", "random_retrieval", "placebo", HARM, "retrieval.min_score=0.6",
         "lessons of other tasks make the agent worse than text that says nothing"),
        ("labels", "true_labels", "reasoningbank", REPAIR, "hydra.sweeper.arm=labels_self_consistency",
         "with the environment's labels in place of the judge's, memory helps more"),
        ("recurrence", "", "", COUNT, "",
         "too few tasks have an earlier one of their type, so hardly any lesson meets a task that it is about"),
        ("distillation", "strong_extractor", "reasoningbank", REPAIR, "+distiller.style=quote",
         "with lessons of the stronger model, memory helps more"),
        ("use", "told_lesson", "no_memory", USELESS, "",
         "even the right lesson, in the environment's own words, gains less than the planned difference, if anything"),
        ("retrieval", "told_lesson", "told_bank", REPAIR, "hydra.sweeper.arm=rrf",
         "the right lesson helps where it is handed over, and less where it has to be found"),
        ("distillation", "told_bank", "true_labels", REPAIR, "+distiller.style=quote",
         "the environment's own lessons, found in the same way, help more than the learned ones"),
    )
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step found. `difference`, `low` and `high` are of the arm minus `than`; None where it was not run.

    p   Holm's, over the steps that were run
    """

    link: str
    arm: str
    than: str
    answer: str
    why: str
    n_seeds: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None


def steps_for(*, lessons: bool, strong_extractor: bool) -> tuple[LadderStep, ...]:
    """The steps that can be run.

    lessons            the environment has lessons to tell (`BaseEnv.lessons`)
    strong_extractor   a stronger extractor was named
    """
    left_out = {*(() if lessons else ("told_lesson", "told_bank"))}
    left_out |= set() if strong_extractor else {"strong_extractor"}
    return tuple(step for step in STEPS if not {step.arm, step.than} & left_out)


# (arm, than, recurring) -> the comparison of two arms, a row as `analysis.pairing.against` makes it, with `alike`.
Compare = Callable[[str, str, bool], dict[str, Any] | None]


def climb(
    steps: Sequence[LadderStep], compare: Compare, effect: float, recur: tuple[int, int] = (0, 0)
) -> list[StepResult]:
    """The answers of the steps, in order.

    compare   of two arms, over all tasks or those that recur; None where an arm has not been run
    effect    the difference that counts: a step "holds" where its interval leaves out one of this size
    recur     (episodes that had an earlier task of their type, episodes whose type is known); asked of a ladder of
              which an arm was run
    """
    rows = [compare(step.arm, step.than, step.recurring) or {} if step.arm else {} for step in steps]
    was_run = any(rows)
    correct(rows)
    return [
        _result(step, row, effect) if step.arm or not was_run else _recurrence(step, effect, *recur)
        for step, row in zip(steps, rows, strict=True)
    ]


def _recurrence(step: LadderStep, effect: float, n_recurring: int, n_tasks: int) -> StepResult:
    """Breaks where the effect could not be reached even if a lesson solved every task that had an earlier one."""
    if not n_tasks:
        return StepResult(
            link=step.link,
            arm="",
            than="",
            answer=UNKNOWN,
            why="the tasks have no types, or there was a bank before them",
        )
    counted = f"{n_recurring} of {n_tasks} episodes had an earlier task of their type"
    if n_recurring < effect * n_tasks:
        return StepResult(link=step.link, arm="", than="", answer=BREAKS, why=f"{counted}: {step.broken}")
    return StepResult(link=step.link, arm="", than="", answer=HOLDS, why=counted)


def _result(step: LadderStep, row: dict[str, Any], effect: float) -> StepResult:
    said = {"link": step.link, "arm": step.arm, "than": step.than, "n_seeds": row.get("n_paired_seeds", 0)}
    if row.get("p_holm") is None:
        return StepResult(**said, answer=UNKNOWN, why="not run" if not said["n_seeds"] else "it needs two seeds")
    low, high = row["low"], row["high"]
    said |= {"difference": row["difference"], "low": low, "high": high, "p": row["p_holm"]}
    verdict = comparison_outcome(row)
    no_gain, no_loss = high < effect, low > -effect
    breaks = {HARM: verdict == "worse", REPAIR: verdict == "better", USELESS: no_gain and verdict in ("same", "worse")}
    holds = {HARM: no_loss or verdict == "better", REPAIR: no_gain or verdict == "worse", USELESS: verdict == "better"}
    if verdict in ("undecided", "untested"):
        why = "what broke could turn it round" if verdict == "undecided" else "its seeds are largely one"
        return StepResult(**said, answer=UNKNOWN, why=why)
    if breaks[step.kind]:
        return StepResult(**said, answer=BREAKS, why=step.broken)
    if holds[step.kind]:
        return StepResult(**said, answer=HOLDS, why="")
    sought = -effect if step.kind == HARM else effect
    if low <= 0 <= high and low <= sought <= high:
        return StepResult(**said, answer=UNKNOWN, why=f"the interval holds both 0 and {100 * sought:g} points")
    why = f"the interval leaves out 0, but p is {row['p_holm']:.2g} after Holm's correction for the other steps"
    return StepResult(**said, answer=UNKNOWN, why=why)


def first_break(answers: Sequence[StepResult]) -> StepResult | None:
    """The first link that breaks, in the order of the ladder."""
    return next((each for each in answers if each.answer == BREAKS), None)


def seeds_needed(about: Spread, n_seeds: int, effect: float, n_steps: int, most: int) -> int:
    """The seeds with which a step could show the effect with a chance of 80 % after Holm's correction; at most `most`.

    about     the spread of the difference between the study's two arms, over n_seeds seeds
    n_steps   the number of comparisons
    """
    deviation = about.error * n_seeds**0.5
    enough = (
        seeds
        for seeds in range(max(3, n_seeds), most)
        if least_difference(deviation / seeds**0.5, seeds - 1, LEVEL / n_steps) <= effect
    )
    return next(enough, most)
