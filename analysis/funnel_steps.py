"""The steps of the funnel of learning from memory: was a task shown a lesson, of the right kind, and did it follow it?

`core.run.columns.lesson_step` says at which of them an episode is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# The steps of the funnel: {name: (what its tasks are called, the step that they are a part of)}.
STEPS = {
    "all": ("all tasks", ""),
    "shown": ("shown a lesson", "all"),
    "relevant": ("of the right kind", "shown"),
    "followed": ("followed", "relevant"),
    "not_followed": ("not followed", "relevant"),
    "followed_unknown": ("followed or not: not known", "relevant"),
    "irrelevant": ("of another kind", "shown"),
    "kind_unknown": ("kind not known", "shown"),
    "none": ("shown none", "all"),
}


def steps_above(step: str) -> list[str]:
    """The steps that a step is a part of, from all tasks on."""
    before = STEPS[step][1]
    return [*steps_above(before), before] if before else []


def steps_within(step: str) -> list[str]:
    """A step and those that are a part of it."""
    return [each for each in STEPS if step in (each, *steps_above(each))]


def at_steps(episodes: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The episodes at each step of the funnel, by its name in `STEPS`."""
    return {step: episodes[episodes["lesson_step"].isin(steps_within(step))] for step in STEPS}


def lesson_counts(episodes: pd.DataFrame) -> dict[str, int]:
    """How many episodes are at each step of the funnel, as tasks_STEP; how many of those that followed succeeded."""
    by_step = at_steps(episodes)
    counts = {f"tasks_{step}": len(inside) for step, inside in by_step.items()}
    return counts | {"followed_won": int(by_step["followed"]["success"].sum())}
