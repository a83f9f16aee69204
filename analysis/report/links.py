"""From a number in a table to the episodes behind it: addresses of the page's list of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from analysis.cells import Cells
from analysis.columns import HEADINGS
from analysis.runs import Run
from analysis.studies import cell_names, slug
from analysis.text_table import TextTable

# Which of an arm's episodes stand behind a column, by the names of `SHOW` in list.js: those in the rate are "counted".
SHOWN = {
    **dict.fromkeys("n success sd reward steps tokens cost tokens_per_success cost_per_success".split(), "counted"),
    **dict.fromkeys("late_early avg_at_k best_of_n pass_at n_attempts".split(), "counted"),
    **dict.fromkeys("method seeds labels".split(), "all"),
    **dict.fromkeys("judge_n agreement kappa n_rated brier ece".split(), "judged"),
    "infra_errors": "infra_error",
    "steps_won": "success",
    "steps_lost": "failure",
    "lessons": "taught",
    "hit_rate": "retrieved",
    "confusion": "wrong",
}
# The same of two arms side by side: the tasks and seeds that both have, or those in which they differ.
SIDE_BY_SIDE = dict.fromkeys("difference n_pairs p p_holm sd_seeds gain".split(), "pairs") | {
    "flips": "changed",
    "p_tasks": "changed",
}
SHOW = {HEADINGS[name][0]: kind for name, kind in SHOWN.items()}
SHOW_SIDE_BY_SIDE = {HEADINGS[name][0]: kind for name, kind in SIDE_BY_SIDE.items()}


class Addresses:
    """Where the list of episodes shows a cell: its only run, or a group of its runs, one of each seed.

    keys     the runs' own, in the order of `labelled`
    groups   [{key, label, runs: [number]}]: for the page's index; empty where no cell has more than one run
    """

    def __init__(self, labelled: Sequence[tuple[Run, str]], keys: list[str], cells: Cells) -> None:
        numbers = {str(run.path): number for number, (run, _) in enumerate(labelled)}
        dirs = cells.frame[cells.frame["index"] >= 0].groupby("cell", sort=False)["run_dir"].unique().to_dict()
        runs = {cell: sorted(numbers[path] for path in dirs[cell]) for cell in cell_names(cells) if cell in dirs}
        several = any(len(each) > 1 for each in runs.values())
        self._of = {cell: keys[first] for cell, (first, *_) in runs.items()}
        self.groups: list[dict[str, Any]] = []
        for cell, name in cell_names(cells).items() if several else ():
            if cell in runs:
                key, n = f"{slug(name)}-all", len(runs[cell])
                self._of[cell] = f"{key}-{len(self.groups)}" if key in self._of.values() else key
                label = f"{name} · {n} seeds" if n > 1 else f"{name} · 1 seed"
                self.groups.append({"key": self._of[cell], "label": label, "runs": runs[cell]})

    def at_step(self, cell: str, step: str) -> str | None:
        """The address of a cell's episodes at a step of the funnel (analysis/funnel_steps.py)."""
        mine = self._of.get(cell)
        return mine and _address(mine, show="counted" if step == "all" else f"step_{step}")

    def of(self, cell: str, base: str | None, heading: str, types: Sequence[str] = ()) -> str | None:
        """The address of the episodes behind a cell's number under a heading; None where there is none."""
        mine, other = self._of.get(cell), self._of.get(base or "")
        if mine is None:
            return None
        if heading in SHOW:
            return _address(mine, show=SHOW[heading])
        if heading in SHOW_SIDE_BY_SIDE and other and base != cell:
            return _address(f"{other}~{mine}", show=SHOW_SIDE_BY_SIDE[heading])
        return _address(mine, show="counted", type=heading) if heading in types else None


def _address(where: str, **filters: str) -> str:
    """As `linkTo` in app.js writes it."""
    return f"#{where}/?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in filters.items())


def linked(table: TextTable, addresses: Addresses, types: Sequence[str]) -> list[list[tuple[str, str | None]]]:
    """The rows of a table with an address beside each text, None where there is none."""
    rows = []
    for place, row in enumerate(table.rows):
        owner = table.cells[place] if table.cells else None
        hrefs = [owner and text != "-" and addresses.of(*owner, head, types) for head, text in zip(table.head, row)]
        rows.append([(text, href or None) for text, href in zip(row, hrefs, strict=True)])
    return rows
