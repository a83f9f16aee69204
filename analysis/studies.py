"""Runs put in order for the page and the plots: studies of comparable cells, and a name for each run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.cells import BLOCK, Cells, make_cells, place_of_arm, rows_of
from analysis.runs import Run
from analysis.tables import usual_baseline

if TYPE_CHECKING:
    import pandas as pd

AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass(frozen=True, kw_only=True)
class Study:
    """The cells over the same tasks of one environment by one model, the baseline first; a dictionary a cell.

    `cells` are rows of analysis.cells' table with `baseline` (is it), `complete` and `colour` (a number, in every study
    the same for arms of one label) beside; after the baseline the arms stand in the paper's order.
    """

    env: str
    model: str
    n_tasks: int
    cells: tuple[dict[str, Any], ...]
    frame: pd.DataFrame  # the episodes that count

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The cells that have a number."""
        return [cell for cell in self.cells if cell["n"]]

    def episodes(self, cell: dict[str, Any]) -> pd.DataFrame:
        """The episodes of a cell that count."""
        return self.frame[self.frame["cell"] == cell["cell"]]


def compared(frame: pd.DataFrame, baseline: str | None = None, partial: bool = False) -> Cells:
    """The cells of the episodes, compared with the baseline, or with the usual one."""
    return make_cells(frame, baseline or usual_baseline(frame), partial=partial)


def studies(cells: Cells) -> list[Study]:
    """The cells by what may be compared."""
    made = []
    rows = sorted(rows_of(cells.table), key=lambda row: (row["cell"] != row["base"], *place_of_arm(row)))
    colours = list(dict.fromkeys(row["label"] for row in rows))
    for (env, model, tasks), block in cells.table.groupby(list(BLOCK), sort=False):
        mine = [row for row in rows if (row["env"], row["model"], row["task_set"]) == (env, model, tasks)]
        for row in mine:
            row |= {"baseline": row["cell"] == row["base"], "complete": row["n_partial"] == 0}
            row["colour"] = colours.index(row["label"])
        inside = cells.frame[cells.frame["cell"].isin(block["cell"])]
        about = {"env": env, "model": str(model), "n_tasks": mine[0]["n_tasks"]}
        made.append(Study(**about, cells=tuple(mine), frame=inside))
    return made


def cell_names(cells: Cells) -> dict[str, str]:
    """{cell: a name that no other cell of the report has}, in the paper's order of arms."""
    where = [key for key in ("env", "model") if cells.table[key].nunique() > 1]
    rows = sorted(rows_of(cells.table), key=lambda row: (*(str(row[key]) for key in where), *place_of_arm(row)))
    names = [" · ".join([*(str(row[key]) for key in where), row["label"]]) for row in rows]
    unique = [f"{name} #{row['cell'][:4]}" if names.count(name) > 1 else name for row, name in zip(rows, names)]
    return dict(zip((row["cell"] for row in rows), unique, strict=True))


def run_labels(runs: list[AnyRun], cells: Cells) -> list[tuple[AnyRun, str]]:
    """Every run with a name that no other run of the report has, in the order of the cells' names."""
    names = cell_names(cells)
    place = list(names).index
    ordered = sorted(runs, key=lambda run: (place(run.cell), run.config["seed"], str(run.path)))
    labelled = [(run, f"{names[run.cell]} · seed {run.config['seed']}") for run in ordered]
    counts, seen = Counter(label for _, label in labelled), Counter()
    unique = []
    for run, label in labelled:
        label += f" · {run.path.name}" if counts[label] > 1 else ""
        seen[label] += 1
        unique.append((run, label if seen[label] == 1 else f"{label} ({seen[label]})"))
    return unique


def slug(text: str) -> str:
    """A text as it stands in a link."""
    return re.sub(r"[^a-z0-9_.=]+", "-", text.lower()).strip("-") or "run"
