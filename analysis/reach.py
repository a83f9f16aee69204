"""What a study of a size could find: the same sentence before a sweep, in its table and from `reasoningbank power`."""

from __future__ import annotations

from typing import Any

from analysis.stats import GUESSES, detectable
from analysis.verdict import LEVEL, comparison_outcome
from core.errors import extra_for

NOTHING = "no difference, however large,"  # is found with a chance of 80 %


def size_or_none(least: float) -> str:
    """A size from `least_points` as text; "none" where it is the largest that there is, and not found as often."""
    return "none" if least > 99.5 else f"{least:.1f}"


def least_points(n_tasks: int, n_seeds: int, n_compared: int = 1, seen: float = 0.0, **guesses: float) -> float:
    """The least difference, in points of success, that is found with a chance of 80 % after Holm's hardest step.

    seen   sd of the measured differences of the seeds, where it is known: it counts if it is more than by the guesses
    """
    level, about = LEVEL / max(n_compared, 1), GUESSES | guesses
    by_chance = 2 * about["rate"] * (1 - about["rate"]) * (1 - about["alike"]) / n_tasks
    about["sd"] = max(about["sd"], max(seen**2 - by_chance, 0.0) ** 0.5)
    return 100 * detectable(n_tasks=n_tasks, n_seeds=n_seeds, level=level, **about)


def could_find(n_tasks: int, n_seeds: int, n_compared: int = 1, seen: float = 0.0) -> str:
    """A clause without a full stop. n_compared: arms that are compared with the baseline; seen: see above."""
    if n_seeds < 2:
        return f"with one seed nothing is tested; {could_find(n_tasks, 5, n_compared)}"
    least = least_points(n_tasks, n_seeds, n_compared, seen=seen)
    what = NOTHING if size_or_none(least) == "none" else f"a difference of {max(1, round(least))} points or more"
    after = f" after correction for {n_compared} comparisons" if n_compared > 1 else ""
    return f"{n_tasks} tasks x {n_seeds} seeds find {what} with a chance of 80 %{after}"


def findable(rows: list[dict[str, Any]]) -> list[str]:
    """Where no difference is shown: how large one that is found would have to be, if seeds differ as they do there."""
    sizes: dict[tuple[int, int, int], float] = {}
    for row in rows:
        if row.get("difference") is not None and comparison_outcome(row) == "same":
            size = row["n_tasks"], int(row["n_paired_seeds"]), int(row.get("n_compared", 1))
            sizes[size] = max(sizes.get(size, 0.0), row["sd_seeds"])
    try:
        could = [could_find(*size, seen) for size, seen in sizes.items()]
    except ModuleNotFoundError as error:
        could = [f"how large it would be, is not computed here: {extra_for(error) or error}"]
    supposed = "for seeds that differ as these do, and at least as reasoningbank power guesses"
    return [f"Where no difference is shown there may be one: {each.rstrip('.')}, {supposed}." for each in could]
