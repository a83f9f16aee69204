"""Two runs over the same tasks, side by side: numbers, what differs in the configuration, and every task that flipped.

    python -m scripts.compare A B [--all]

The difference is B less A. Only tasks that neither run's errors took are paired; --all lists the others too.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from core.errors import UserError
from core.run.records import differences
from results.cells import measure
from results.load import Run, find_runs, frame_of, read_run
from results.stats import paired
from results.tables import HEADINGS
from scripts.show import clean, console

if TYPE_CHECKING:
    import pandas as pd

FACTS = (
    "n infra_errors labels success reward steps steps_won steps_lost tokens tokens_per_success cost lessons hit_rate "
    "late_early agreement kappa"
).split()


def one_run(path: str) -> Run:
    """The one run at a path. Raises UserError for a folder of several."""
    found = find_runs([path])
    if len(found) > 1:
        raise UserError(f"{path} holds {len(found)} runs: give one, or take scripts/tables.py for several.")
    return read_run(found[0])


def side_by_side(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """A row for each task that both met: index in A, task_id, and both statuses, success, steps and tokens."""
    columns = ["index", "task_id", "visit", "task_type", "status", "success", "steps", "tokens"]
    both = a[columns].merge(b[columns], on=["task_id", "visit"], suffixes=("_a", "_b"))
    return both.sort_values("index_a").reset_index(drop=True)


def flips(both: pd.DataFrame) -> pd.DataFrame:
    """The tasks that only one of the runs solved."""
    known = both[both["success_a"].notna() & both["success_b"].notna()]
    return known[known["success_a"] != known["success_b"]]


def numbers(out: Console, a: pd.DataFrame, b: pd.DataFrame) -> None:
    """What stands in the tables, for both."""
    table = Table(title="", show_edge=False)
    for heading in ("", "A", "B"):
        table.add_column(heading, justify="left" if not heading else "right")
    mine = [measure(each[each["index"] >= 0]) | {"label": "", "n_partial": 0, "partial": False} for each in (a, b)]
    for fact in FACTS:
        heading, show = HEADINGS[fact]
        table.add_row(heading.replace("[", r"\["), *(show(row).replace("[", r"\[") for row in mine))
    out.print(table)


def report(out: Console, a: Run, b: Run, every: bool) -> None:
    """Everything, for a person."""
    for name, run in (("A", a), ("B", b)):
        state = "" if run.complete else f"   not finished: {len(run.rows)} of {run.n_tasks}"
        out.print(f"{name}  {run.path}{state}", highlight=False, markup=False)
    if not a.rows or not b.rows:
        raise UserError("there is nothing to compare: a run has no finished episode.")
    frames = frame_of([a]), frame_of([b])
    numbers(out, *frames)
    both = side_by_side(*frames)
    if both.empty:
        raise UserError("the runs have no task in common.")
    ours, theirs = (both.pivot(index="task_id", columns="visit", values=f"success_{run}") for run in "ba")
    found = paired(ours.to_numpy(), theirs.to_numpy(), [0] * ours.shape[1])
    if found["difference"] is not None:
        test = "McNemar's exact p" if ours.shape[1] == 1 else "exact permutation task by task, p"
        ends = "" if found["low"] is None else f"  95 % {100 * found['low']:+.1f} to {100 * found['high']:+.1f}"
        out.print(
            f"\nB - A: {100 * found['difference']:+.1f} points over {found['n_pairs']} pairs{ends}, "
            f"{found['won']} gained and {found['lost']} lost, {test} = {found['p_tasks']:.4f}",
            highlight=False,
        )
    left = sum(len(frame) for frame in frames) - 2 * len(both)
    if left:
        out.print(f"{left} episodes have no partner in the other run", highlight=False)
    out.print("\nconfiguration, A -> B", highlight=False)
    for line in differences(a.config, b.config):
        out.print(f"  {line}", markup=False, highlight=False)
    shown = both if every else flips(both)
    heads = ("place", "task", "A", "B", "steps A", "steps B", "")
    table = Table(*heads, title="" if every else "flips", title_justify="left")
    marks = {(0.0, 1.0): "[green]gained[/green]", (1.0, 0.0): "[red]lost[/red]"}
    for row in shown.itertuples():
        mark = marks.get((row.success_a, row.success_b), "")
        cells = (
            row.index_a,
            clean(row.task_id).replace("[", r"\["),
            row.status_a,
            row.status_b,
            row.steps_a,
            row.steps_b,
        )
        table.add_row(*map(str, cells), mark)
    out.print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--all", action="store_true", help="every task, not only those that flipped")
    given = parser.parse_args(arguments)
    try:
        report(console(), one_run(given.a), one_run(given.b), given.all)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
