"""Whether memory pays: the cost per success at an equal or better success rate; and what scaling adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.cells import BLOCK, Cells, make_cells, rows_of
from analysis.measure import measure
from analysis.pairing import paired_outcomes
from analysis.stats import paired, worst_case
from core.errors import UserError
from core.run.arms import NUMBERS

if TYPE_CHECKING:
    import pandas as pd

SLACK = 1e-9  # tolerance for rounding, if a cost falls by exactly the required share


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """An arm compared with the baseline, over the seeds that both have.

    row       its row of the cells, with the paired difference of success
    cost      USD per success; None without a success
    change    relative change of the cost to the baseline's: -0.2 is a fifth less; None without a success
    holds     whether the arm passes the gate: the cost falls enough and the success rate is not lower
    """

    row: dict[str, Any]
    cost: float | None
    base_cost: float
    change: float | None
    holds: bool


def gate(cells: Cells, fall: float, arms: list[str] | None = None) -> list[GateResult]:
    """Each of the arms (None: every one but the baseline) against the baseline that the cells were compared with.

    fall   the share by which the cost per success must fall, at a success rate that is not lower, for an arm to hold

    Raises UserError where a cost is unknown, the baseline has none to fall from, or what broke decides.
    """
    if cells.table.groupby(list(BLOCK)).ngroups > 1:
        raise UserError("the runs are of several environments, models or sets of tasks: give those of one.")
    rows = rows_of(cells.table)
    others = [row for row in rows if row["base"] is not None and row["base"] != row["cell"]]
    if not others:
        raise UserError(" ".join(["there is no arm to compare with the baseline.", *cells.notes]))
    names_of = {row["label"]: {row["label"], *([row["arm"]] if numbers_only(row) else [])} for row in others}
    if unknown := [arm for arm in arms or () if not any(arm in names for names in names_of.values())]:
        raise UserError(f"there is no run of {', '.join(unknown)}: choose from {', '.join(names_of)}.")
    wanted = [row for row in others if arms is None or names_of[row["label"]] & set(arms)]
    if unpaired := [row["label"] for row in wanted if row["difference"] is None]:
        raise UserError(f"no finished run of {', '.join(unpaired)} has tasks and seeds in common with the baseline.")
    labels = {row["cell"]: row["label"] for row in rows}
    return [_held(cells, row, labels[row["base"]], fall) for row in wanted]


def numbers_only(row: dict[str, Any]) -> bool:
    """Whether a cell departs from its arm in numbers alone, such as k, so that the arm's name means it."""
    return all(word.partition("=")[0] in NUMBERS for word in row["overridden"].split())


def _held(cells: Cells, row: dict[str, Any], base: str, fall: float) -> GateResult:
    mine, other = cells.episodes(row["cell"]), cells.episodes(row["base"])
    shared = set(mine["seed"]) & set(other["seed"])
    base_cost = _cost(other[other["seed"].isin(shared)], base)
    if not base_cost:
        why = "has no success" if base_cost is None else "costs nothing"
        raise UserError(f"{base} {why}: there is no cost per success that could fall.")
    cost = _cost(mine[mine["seed"].isin(shared)], row["label"])
    change = None if cost is None else cost / base_cost - 1
    holds = change is not None and change <= SLACK - fall and row["difference"] >= -SLACK
    *pair, seeds = paired_outcomes(mine, other, mine)
    if holds and paired(*worst_case(*pair, better=True), seeds)["difference"] < -SLACK:
        raise UserError(
            f"{row['label']} would solve less than {base} had the tasks that broke ({int(row['n_broke'])} of its own, "
            f"{int(row['n_broke_base'])} of the baseline's) gone the other way: repeat the commands of their runs."
        )
    return GateResult(row=row, cost=cost, base_cost=base_cost, change=change, holds=holds)


def _cost(episodes: pd.DataFrame, label: str) -> float | None:
    """Cost per success in USD; None without a success."""
    numbers = measure(episodes)
    if not numbers["n_success"]:
        return None
    if numbers["cost_per_success"] is None:
        raise UserError(f"the cost of {label} is unknown: give its models a price (llm.price_per_mtok) and run again.")
    return numbers["cost_per_success"]


def lifts(frame: pd.DataFrame, over: str = "reasoningbank") -> list[dict[str, Any]]:
    """The rows of the cells with several attempts or rounds a task, compared with the method that has one."""
    rows = rows_of(make_cells(frame, over).table)
    scaled = [row for row in rows if (row["k"] or 1) > 1 or (row["r"] or 0) > 0]
    return [row for row in scaled if row["difference"] is not None]
