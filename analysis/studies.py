"""Runs put in order for the page and the plots: studies of comparable cells, and a name for each run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.cells import BLOCK, Cells, make_cells, measure, place_of_arm, records
from analysis.load import Run
from core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

BASELINES = ("no_memory", "vanilla")  # taken by themselves, the first that is there


@dataclass(frozen=True, kw_only=True)
class Study:
    """The cells over the same tasks of one environment by one model, the baseline first; a dictionary a cell.

    `cells` are rows of analysis.cells' table with `baseline` (is it), `complete` and `colour` (a number, in every study
    the same for arms of one label) beside; after the baseline the arms stand in the paper's order.
    `n_compared` is how many comparisons Holm's correction was made for: those of all studies together.
    """

    env: str
    model: str
    n_tasks: int
    cells: tuple[dict[str, Any], ...]
    n_compared: int
    frame: pd.DataFrame  # the episodes that count

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The cells that have a number."""
        return [cell for cell in self.cells if cell["n"]]

    def episodes(self, cell: dict[str, Any]) -> pd.DataFrame:
        """The episodes of a cell that count."""
        return self.frame[self.frame["cell"] == cell["cell"]]


def compared(frame: pd.DataFrame, baseline: str | None = None, partial: bool = False) -> Cells:
    """The cells of the episodes, compared with the baseline, or with what is one by its name."""
    arms = list(dict.fromkeys(frame["arm"]))
    return make_cells(frame, baseline or next((name for name in BASELINES if name in arms), arms[0]), partial=partial)


def studies(cells: Cells) -> list[Study]:
    """The cells by what may be compared."""
    found = []
    n_compared = int(cells.table["p"].notna().sum())
    rows = sorted(records(cells.table), key=lambda row: (row["cell"] != row["base"], *place_of_arm(row)))
    colours = list(dict.fromkeys(row["label"] for row in rows))
    for (env, model, tasks), block in cells.table.groupby(list(BLOCK), sort=False):
        mine = [row for row in rows if (row["env"], row["model"], row["task_set"]) == (env, model, tasks)]
        for row in mine:
            row |= {"baseline": row["cell"] == row["base"], "complete": row["n_partial"] == 0}
            row["colour"] = colours.index(row["label"])
        inside = cells.frame[cells.frame["cell"].isin(block["cell"])]
        about = {"env": env, "model": str(model), "n_tasks": mine[0]["n_tasks"]}
        found.append(Study(**about, cells=tuple(mine), n_compared=n_compared, frame=inside))
    return found


def cell_names(cells: Cells) -> dict[str, str]:
    """{cell: a name that no other cell of the report has}, in the paper's order of arms."""
    where = [key for key in ("env", "model") if cells.table[key].nunique() > 1]
    rows = sorted(records(cells.table), key=lambda row: (*(str(row[key]) for key in where), *place_of_arm(row)))
    names = [" · ".join([*(str(row[key]) for key in where), row["label"]]) for row in rows]
    named = [f"{name} #{row['cell'][:4]}" if names.count(name) > 1 else name for row, name in zip(rows, names)]
    return dict(zip((row["cell"] for row in rows), named, strict=True))


def run_labels(runs: list[Run], cells: Cells) -> list[tuple[Run, str]]:
    """Every run with a name that no other run of the report has, in the order of the cells' names."""
    names = cell_names(cells)
    place = list(names).index
    ordered = sorted(runs, key=lambda run: (place(run.cell), run.config["seed"], str(run.path)))
    named = [(run, f"{names[run.cell]} · seed {run.config['seed']}") for run in ordered]
    counts, seen = Counter(label for _, label in named), Counter()
    unique = []
    for run, label in named:
        label += f" · {run.path.name}" if counts[label] > 1 else ""
        seen[label] += 1
        unique.append((run, label if seen[label] == 1 else f"{label} ({seen[label]})"))
    return unique


def slug(text: str) -> str:
    """A text as it stands in a link."""
    return re.sub(r"[^a-z0-9_.=]+", "-", text.lower()).strip("-") or "run"


# Whether memory pays: the cost per success at an equal or better success rate; and what scaling adds.

SLACK = 1e-9  # of floating point, where a cost falls by just as much as was asked


@dataclass(frozen=True, kw_only=True)
class Held:
    """An arm held against the baseline, over the seeds that both have.

    change   of the cost per success, as a part of the baseline's: -0.2 is a fifth less; None without a success
    row      its row of the cells, with the paired difference of success
    """

    row: dict[str, Any]
    cost: float | None
    base_cost: float
    change: float | None
    holds: bool


def gate(cells: Cells, fall: float, arms: list[str] | None = None) -> list[Held]:
    """Each of the arms (None: every one but the baseline) against the baseline that the cells were compared with.

    fall   the part by which the cost per success must fall, at a success rate that is not lower, for an arm to hold

    Raises UserError where a cost is unknown, or the baseline has none to fall from.
    """
    if cells.table.groupby(list(BLOCK)).ngroups > 1:
        raise UserError("the runs are of several environments, models or sets of tasks: give those of one.")
    rows = records(cells.table)
    others = [row for row in rows if row["base"] is not None and row["base"] != row["cell"]]
    if not others:
        raise UserError(" ".join(["there is nothing to hold against the baseline.", *cells.notes]))
    called = {row["label"]: {row["label"], *([] if row["overridden"] else [row["arm"]])} for row in others}
    if unknown := [arm for arm in arms or () if not any(arm in names for names in called.values())]:
        raise UserError(
            f"there is no run of {', '.join(unknown)}: to hold against the baseline are {', '.join(called)}."
        )
    wanted = [row for row in others if arms is None or called[row["label"]] & set(arms)]
    if unpaired := [row["label"] for row in wanted if row["difference"] is None]:
        raise UserError(f"no finished run of {', '.join(unpaired)} has tasks and seeds in common with the baseline.")
    names = {row["cell"]: row["label"] for row in rows}
    return [_held(cells, row, names[row["base"]], fall) for row in wanted]


def _held(cells: Cells, row: dict[str, Any], base: str, fall: float) -> Held:
    mine, other = cells.episodes(row["cell"]), cells.episodes(row["base"])
    shared = set(mine["seed"]) & set(other["seed"])
    base_cost = _cost(other[other["seed"].isin(shared)], base)
    if not base_cost:
        why = "has no success" if base_cost is None else "costs nothing"
        raise UserError(f"{base} {why}: there is no cost per success that could fall.")
    cost = _cost(mine[mine["seed"].isin(shared)], row["label"])
    change = None if cost is None else cost / base_cost - 1
    holds = change is not None and change <= SLACK - fall and row["difference"] >= -SLACK
    return Held(row=row, cost=cost, base_cost=base_cost, change=change, holds=holds)


def _cost(episodes: pd.DataFrame, label: str) -> float | None:
    """USD for a success; None without one."""
    found = measure(episodes)
    if not found["n_success"]:
        return None
    if found["cost_per_success"] is None:
        raise UserError(f"what {label} cost is unknown: give its models a price (llm.price_per_mtok) and run it again.")
    return found["cost_per_success"]


def lifts(frame: pd.DataFrame, over: str = "reasoningbank") -> list[dict[str, Any]]:
    """The rows of the cells with several attempts or rounds a task, compared with the method that has one."""
    rows = records(make_cells(frame, over).table)
    scaled = [row for row in rows if (row["k"] or 1) > 1 or (row["r"] or 0) > 0]
    return [row for row in scaled if row["difference"] is not None]
