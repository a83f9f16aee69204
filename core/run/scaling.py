"""What test-time scaling gained (MaTTS, section 3.3 of the paper): pure functions from episode rows to numbers."""

from __future__ import annotations

from math import comb
from statistics import fmean
from typing import Any

from core.run.records import outcomes_of


def scaling(rows: list[dict]) -> dict[str, Any]:
    """Of rows without infra errors: {} where every task had one attempt, else by what made several of them."""
    scaled = [row for row in rows if row["selection"]]
    if not scaled:
        return {}
    sequential = [row for row in scaled if row["selection"]["by"] in ("last", "kept")]
    return of_rounds(sequential) if sequential else of_attempts(scaled)


def of_attempts(rows: list[dict]) -> dict[str, Any]:
    """Side by side. Attempts that broke are in no denominator.

    select            how answers were selected, where there was a choice
    pass_at_1         mean over a task's attempts: what one attempt at random gives
    best_of_n         of the selected attempt: the run's success rate
    pass_at_k_oracle  any attempt: what a selector that knew the truth would reach; never what the run scores
    """
    whole = [[outcome for outcome in outcomes_of(row) if outcome != "infra_error"] for row in rows]
    tasks = [(len(outcomes), outcomes.count("success")) for outcomes in whole]
    return {
        "kind": "parallel",
        "k": max(len(row["trajectories"]) for row in rows),
        "select": "+".join(sorted({row["selection"]["by"] for row in rows} - {"only"})) or "only",
        "pass_at_1": mean([pass_at_k(n, won, 1) for n, won in tasks]),
        "best_of_n": mean([float(row["status"] == "success") for row in rows]),
        "pass_at_k_oracle": mean([pass_at_k(n, won, n) for n, won in tasks]),
        "n_infra_error_attempts": sum(outcomes_of(row).count("infra_error") for row in rows),
        "n_selections_unparsed": sum(not row["selection"]["parsed"] for row in rows),
    }


def of_rounds(rows: list[dict]) -> dict[str, Any]:
    """One after another: the success rate had the run stopped after each round, and what the checks changed."""
    rounds = max(len(row["trajectories"]) for row in rows)
    won = [_by_round(row) for row in rows]
    return {
        "kind": "sequential",
        "r": rounds - 1,
        "success_by_round": [mean([float(task[min(n, len(task) - 1)]) for task in won]) for n in range(rounds)],
        "n_corrected": sum(task[-1] and not task[0] for task in won),
        "n_spoiled": sum(task[0] and not task[-1] for task in won),
    }


def _by_round(row: dict) -> list[bool]:
    """Whether the answer after each round was right; a round without one leaves it, where the run keeps answers."""
    kept = row["selection"]["by"] == "kept"
    found: list[bool] = []
    for made in row["trajectories"]:
        found.append(
            found[-1] if kept and found and not states_answer(made["answer"], made["info"]) else made["success"]
        )
    return found


def states_answer(answer: str | None, info: dict) -> bool:
    """Whether an attempt says what its answer is. An env that reads answers out of prose tells in `info.stated`."""
    return answer is not None and bool(info.get("stated", True))


def pass_at_k(n: int, won: int, k: int) -> float | None:
    """Chance that one of k attempts wins, from `won` of n, without bias (Chen et al. 2021); None for fewer than k."""
    return None if n < k else 1.0 - comb(n - won, k) / comb(n, k)


def mean(values: list[float]) -> float | None:
    """The mean, rounded to 4 digits; None of nothing."""
    return round(fmean(values), 4) if values else None
