"""Runs put in order for the page and the plots: studies of comparable cells, and a name for each run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.cells import BLOCK, Cells, make_cells, records
from results.load import Run

if TYPE_CHECKING:
    import pandas as pd

BASELINES = ("no_memory", "vanilla")  # taken by themselves, the first that is there


@dataclass(frozen=True, kw_only=True)
class Study:
    """The cells over the same tasks of one environment by one model, the baseline first; a dictionary a cell.

    `cells` are rows of results.cells' table with `baseline` (is it), `complete` and `colour` (a number) beside.
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
    for (env, model, _), block in cells.table.groupby(list(BLOCK), sort=False):
        rows = sorted(records(block), key=lambda row: row["cell"] != row["base"])
        for colour, row in enumerate(rows):
            row |= {"baseline": row["cell"] == row["base"], "complete": row["n_partial"] == 0, "colour": colour}
        inside = cells.frame[cells.frame["cell"].isin(block["cell"])]
        about = {"env": env, "model": str(model), "n_tasks": rows[0]["n_tasks"]}
        found.append(Study(**about, cells=tuple(rows), n_compared=n_compared, frame=inside))
    return found


def run_labels(runs: list[Run], cells: Cells) -> list[tuple[Run, str]]:
    """Every run with a name that no other run of the report has, in the order of the table."""
    place = {row["cell"]: (number, row) for number, row in enumerate(cells.table.to_dict("records"))}
    where = [key for key in ("env", "model") if cells.table[key].nunique() > 1]
    named = []
    for run in sorted(runs, key=lambda run: (place[run.cell][0], run.config["seed"], str(run.path))):
        row = place[run.cell][1]
        named.append((run, " · ".join([*(str(row[key]) for key in where), row["label"], f"seed {run.config['seed']}"])))
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
