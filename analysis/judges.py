"""Judges against the truth: the verdicts of one configuration on stored attempts, as counts with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from analysis.runs import Run
from analysis.stats import calibration, confusion, rate_interval
from core.run.records import evaluated
from core.types import UNJUDGED

Item = TypeVar("Item")
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class JudgedAttempt:
    """One attempt, judged.

    column      what tells the attempts at one task apart: the run, and the attempt's number in it
    label       success | failure; None: the judge broke, or gave none
    confidence  in the label; None: the judge states none
    success     the environment's own evaluation
    """

    task_id: str
    task_type: str
    column: tuple[str, int, int]
    label: str | None
    confidence: float | None
    success: bool

    @property
    def pair(self) -> tuple[bool, bool]:
        """(judged a success, is one)."""
        return self.label == "success", self.success

    @property
    def right(self) -> bool:
        return self.pair[0] == self.pair[1]


def judged_in(run: Run) -> Iterator[JudgedAttempt]:
    """The judged attempts of a run, without those that broke, and those whose outcome is not known.

    A judge that broke is there without a label; where none was asked there is nothing.
    """
    visits: dict[str, int] = {}
    for row in run.rows:
        visit = visits[row["task_id"]] = visits.get(row["task_id"], -1) + 1
        if row["status"] == "infra_error" or not evaluated(row):
            continue
        judge_broke = any(error.startswith("judge:") for error in row["learning_errors"])
        for attempt, verdict in zip(row["trajectories"], row["verdicts"], strict=True):
            asked = verdict["source"] != UNJUDGED.source or judge_broke
            if asked and attempt["ended_by"] != "infra_error":
                yield JudgedAttempt(
                    task_id=row["task_id"],
                    task_type=row["task_type"],
                    column=(str(run.path), visit, attempt["sample"]),
                    label=verdict["label"],
                    confidence=verdict["confidence"],
                    success=bool(attempt["success"]),
                )


def rated(attempts: Sequence[JudgedAttempt]) -> dict[str, Any]:
    """`confusion` and `calibration` of the attempts, each figure with its 95 % interval {figure}_low and {figure}_high.

    n counts the attempts with a label, n_none those without. The intervals of agreement, precision and recall are
    `rate_interval`'s (Wilson's, with the effective number of independent attempts: those at a task go together); those
    of kappa, Brier and ECE are quantiles of a bootstrap over tasks, and None where nothing varies between them.
    """
    known = [each for each in attempts if each.label is not None]
    found = confusion(each.pair for each in known) | {"n_none": len(attempts) - len(known)}
    for name, counts in (
        ("agreement", known),
        ("precision", [each for each in known if each.pair[0]]),
        ("recall", [each for each in known if each.success]),
    ):
        values = [(each, each.right) for each in counts]
        about = rate_interval(as_matrix(values)) if values else {"low": None, "high": None}
        found |= {f"{name}_low": about["low"], f"{name}_high": about["high"]}
    sure = [each for each in known if each.confidence is not None]
    found |= {name: calibrated(sure)[name] for name in ("brier", "ece")} | {"n_confident": len(sure)}
    found |= _bootstrapped("kappa", known, lambda drawn: confusion(each.pair for each in drawn)["kappa"])
    for name in ("brier", "ece"):
        found |= _bootstrapped(name, sure, lambda drawn, name=name: calibrated(drawn)[name])
    return found


def calibrated(attempts: Iterable[JudgedAttempt]) -> dict[str, Any]:
    """`calibration` of attempts whose judge states a confidence."""
    attempts = list(attempts)
    return calibration([each.confidence for each in attempts], [each.right for each in attempts])


def as_matrix(values: Sequence[tuple[JudgedAttempt, bool]]) -> np.ndarray:
    """The values as (tasks, columns), NaN where there is none."""
    tasks = {each.task_id: None for each, _ in values}
    columns = {each.column: None for each, _ in values}
    rows, places = ({name: n for n, name in enumerate(names)} for names in (tasks, columns))
    found = np.full((len(rows), len(places)), np.nan)
    for each, value in values:
        found[rows[each.task_id], places[each.column]] = float(value)
    return found


def _bootstrapped(
    name: str, attempts: Sequence[JudgedAttempt], figure: Callable[[list[JudgedAttempt]], float | None]
) -> dict[str, float | None]:
    """{name_low, name_high}: quantiles of the figure over samples of the tasks."""
    tasks = [each.task_id for each in attempts]
    none = {f"{name}_low": None, f"{name}_high": None}
    if len({*tasks}) < 2:
        return none
    drawn = [value for sample in resampled(attempts, tasks, RESAMPLES) if (value := figure(sample)) is not None]
    if not drawn:
        return none
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    if low == high:  # a sample in which nothing varies says nothing of what would
        return none
    return {f"{name}_low": low, f"{name}_high": high}


def resampled(items: Sequence[Item], names: Sequence[str], n: int) -> Iterator[list[Item]]:
    """n samples of as many names as there are, drawn with replacement; the items of one name stay together."""
    groups: dict[str, list[Item]] = {}
    for item, name in zip(items, names, strict=True):
        groups.setdefault(name, []).append(item)
    every, rng = list(groups.values()), np.random.default_rng(0)
    for _ in range(n):
        yield [item for place in rng.integers(len(every), size=len(every)) for item in every[place]]
