"""Compare two runs over the same tasks: numbers, configurations, and every task that only one of them solved.

    reasoningbank compare A B [--all]
    reasoningbank compare A.eval B.eval [--metric NAME]    logs of Inspect, or lm-evaluation-harness's samples (.jsonl)
    reasoningbank compare RUNS... --gate cost=0.15 [--baseline no_memory] [--arm reasoningbank]...

The difference is B minus A. Only tasks that broke in neither run are compared; --all lists the others too. Two runs
have one seed, so their p is about these two banks only and says nothing about the method.

--gate compares each arm (or only those of --arm) of the finished runs in RUNS, or in folders of them, with the
baseline. An arm passes cost=0.15 if
  - its cost per success is at least 15 % lower. This is the cost in USD of agent, judge, extractor, selector and the
    bank's own calls, without embeddings, over every task, including failed and broken ones (their last try), divided by
    the number of solved tasks, over all seeds that both arms have; and
  - its success rate is equal or better: the mean difference on the same tasks and seeds is not below 0.
Both use the measured numbers; the 95 % interval of the difference is printed beside it, and need not lie above 0.
Exit status 0: every arm passes; 1: some arm fails; 2: the gate cannot decide (a cost is unknown or zero, the baseline
solved no task, or an arm that passes would not, had what broke gone the other way).
At the end, what scaling adds is printed: each arm with several attempts minus reasoningbank.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from analysis import notes
from analysis.cells import make_cells
from analysis.columns import HEADINGS
from analysis.foreign_logs import is_foreign
from analysis.gate import GateResult, gate, lifts
from analysis.load import frame_of
from analysis.measure import measure
from analysis.pairing import against
from analysis.runs import Run
from analysis.tables import load_episodes
from analysis.text_table import TextTable, show
from analysis.verdict import UNTESTED
from core.console import Console
from core.errors import UserError
from core.run.keys import differences
from scripts.command_line import parser, plain_errors
from scripts.show import clean, console, one_run

if TYPE_CHECKING:
    import pandas as pd

TWO_TESTS = "The interval is Student's and p is exact: where only one of them leaves out no difference, none is shown."
FACTS = (
    "n infra_errors labels success unstated limits reward steps steps_won steps_lost tokens tokens_per_success cost "
    "lessons hit_rate late_early agreement kappa"
).split()


def numbers(out: Console, frames: list[pd.DataFrame]) -> None:
    """What stands in the tables, for both."""
    cells = [measure(each) | {"label": name, "n_partial": 0, "partial": False} for name, each in zip("AB", frames)]
    rows = [[heading, *map(write, cells)] for heading, write in (HEADINGS[fact] for fact in FACTS)]
    show(out, TextTable(title="", head=["", "A", "B"], rows=rows))
    for note in (*notes.broken(cells), *notes.fallbacks(cells)):
        out.print(note)


def pairs(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """A row for each task that both met: index in A, task_id, and both statuses, success, steps and tokens."""
    columns = ["index", "task_id", "visit", "task_type", "status", "success", "steps", "tokens"]
    both = a[columns].merge(b[columns], on=["task_id", "visit"], suffixes=("_a", "_b"))
    return both.sort_values("index_a").reset_index(drop=True)


def asked_otherwise(a: Run, b: Run) -> list[str]:
    """The ids under which two runs ask another question, such as those of two worlds or of two files of questions."""
    first, second = ({row["task_id"]: row["query"] for row in run.rows} for run in (a, b))
    return sorted(id for id in first.keys() & second.keys() if first[id] != second[id])


def effect(out: Console, frames: list[pd.DataFrame]) -> None:
    """The paired difference, what it would be in the worst case of what broke, and its test."""
    a, b = (frame.assign(seed=0) for frame in frames)  # two runs, whatever their seeds
    found = against(b, a, b)
    if found["difference"] is None:
        return
    test = "McNemar's exact p" if b["visit"].max() == 0 else "exact permutation task by task, p"
    ends = "" if found["low"] is None else f"  95 % {100 * found['low']:+.1f} to {100 * found['high']:+.1f}"
    out.print(
        f"B - A: {100 * found['difference']:+.1f} points over {found['n_pairs']} pairs{ends}, "
        f"{found['won']} gained and {found['lost']} lost, {test} = {found['p_tasks']:.4f}"
    )
    if found["n_broke"] or found["n_broke_base"]:
        out.print(f"if everything that broke had gone against it: {100 * found['difference_worst']:+.1f} points")
    out.print(f"{TWO_TESTS} They hold only for these tasks in this order and these banks. Untested: {UNTESTED}")


def tasks(out: Console, both: pd.DataFrame, every: bool) -> None:
    """Every task, or those that only one of the runs solved."""
    known = both.dropna(subset=["success_a", "success_b"])
    flips = known[known["success_a"] != known["success_b"]]
    heads = ("place", "task", "A", "B", "steps A", "steps B", "")
    table = Table(*heads, title="" if every else "flips", title_justify="left")
    marks = {(0.0, 1.0): Text("gained", "green"), (1.0, 0.0): Text("lost", "red")}
    for row in (both if every else flips).itertuples():
        cells = (row.index_a, clean(row.task_id), row.status_a, row.status_b, row.steps_a, row.steps_b)
        table.add_row(*map(str, cells), marks.get((row.success_a, row.success_b), ""))
    out.print(table)


def compare(out: Console, a: Run, b: Run, every: bool) -> None:
    """Everything, for a person."""
    for name, run in (("A", a), ("B", b)):
        state = "" if run.complete else f"   not finished: {len(run.rows)} of {run.n_tasks}"
        out.print(f"{name}  {run.path}{state}")
    if not a.rows or not b.rows:
        raise UserError("there is nothing to compare: a run has no finished episode.")
    frames = [frame_of([run]) for run in (a, b)]
    numbers(out, frames)
    changed = differences({"env": a.config.get("env")}, {"env": b.config.get("env")})
    if changed:
        out.print(f"The environments differ, so an id may stand for another task: {'; '.join(changed)}")
    if other := asked_otherwise(a, b):
        out.print(f"{len(other)} ids ask another question in A than in B, and are not compared: {', '.join(other[:5])}")
        frames = [frame[~frame["task_id"].isin(other)] for frame in frames]
    both = pairs(*frames)
    if both.empty:
        raise UserError("the runs have no task in common.")
    effect(out, frames)
    left = sum(map(len, frames)) - 2 * len(both)
    if left:
        out.print(f"{left} episodes have no partner in the other run")
    out.print("\nconfiguration, A -> B")
    for line in differences(a.config, b.config):
        out.print(f"  {line}")
    tasks(out, both, every)


def compare_logs(out: Console, paths: list[str], metric: str | None) -> None:
    """Two logs of another harness, paired by id and question of their samples."""
    from analysis import foreign_logs

    a, b = (foreign_logs.read(Path(path), metric) for path in paths)
    found = foreign_logs.compare(a, b)
    for name, log in (("A", a), ("B", b)):
        out.print(f"{name}  {log.path}   {log.metric}")
    left = {"only in A": found["n_only_a"], "only in B": found["n_only_b"], "without a score": found["n_unscored"]}
    if said := ", ".join(f"{n} {what}" for what, n in left.items() if n):
        out.print(f"not compared: {said}")
    if found["difference"] is None:
        raise UserError("no sample has a score in both logs.")
    out.print(
        f"B - A: {100 * found['difference']:+.1f} points ({100 * found['mean_a']:.1f} and {100 * found['mean_b']:.1f}) "
        f"over {found['n_pairs']} samples  95 % {100 * found['low']:+.1f} to {100 * found['high']:+.1f}, "
        f"{found['won']} higher and {found['lost']} lower, exact permutation sample by sample, "
        f"p = {found['p_tasks']:.4f}"
    )
    out.print(f"{TWO_TESTS} They hold only for these samples and these two runs. Untested: {UNTESTED}")


def hold(out: Console, frame: pd.DataFrame, fall: float, baseline: str, arms: list[str] | None) -> bool:
    """Whether the gate holds for every arm; tells the numbers of each."""
    cells = make_cells(frame, baseline)
    held = gate(cells, fall, arms)
    heads = ["", "success % [95 %]", "difference [95 %]", "USD / success", "of the baseline's", f"gate cost={fall:g}"]
    rows = [[*gate_line(each), "holds" if each.holds else "does not hold"] for each in held]
    show(out, TextTable(title=f"against {baseline}: {held[0].base_cost:.5f} USD / success", head=heads, rows=rows))
    for row in lifts(frame):
        shown = HEADINGS["difference"][1](row)
        out.print(f"lift of {row['label']} over reasoningbank: {shown} points over {row['n_pairs']:.0f} pairs")
    for note in cells.notes:
        out.print(f"- {note}")
    return all(each.holds for each in held)


def gate_line(held: GateResult) -> list[str]:
    """label, success, difference, cost per success, its change."""
    shown = [HEADINGS[name][1](held.row) for name in ("method", "success", "difference")]
    if held.change is None:
        return [*shown, "no success", "-"]
    return [*shown, f"{held.cost:.5f}", f"{100 * held.change:+.1f} %"]


def gate_of(text: str) -> float:
    """The number of cost=NUMBER."""
    key, _, number = text.partition("=")
    try:
        if key == "cost" and 0 <= (fall := float(number)) < 1:
            return fall
    except ValueError:
        pass
    raise ArgumentTypeError(f"{text}: give cost=FRACTION, from 0 to less than 1, e.g. cost=0.15")


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    options.add_argument("--all", action="store_true", help="every task, not only those that flipped")
    options.add_argument("--metric", metavar="NAME", help="of logs of other harnesses, where they have several scores")
    options.add_argument("--gate", type=gate_of, metavar="cost=FRACTION", help="exit 1 where it does not hold")
    options.add_argument(
        "--baseline", default="no_memory", help="of the gate: a label or an arm (default: %(default)s)"
    )
    options.add_argument("--arm", action="append", help="of the gate: only this one; again for another")
    given = options.parse_args(arguments)
    if given.gate is not None:
        return int(not hold(console(), load_episodes(given.runs), given.gate, given.baseline, given.arm))
    if len(given.runs) == 2 and all(map(is_foreign, given.runs)):
        compare_logs(console(), given.runs, given.metric)
        return 0
    if len(given.runs) != 2:
        raise UserError("give two runs, A and B, or --gate cost=FRACTION for the arms of many.")
    compare(console(), *map(one_run, given.runs), given.all)
    return 0


if __name__ == "__main__":
    sys.exit(main())
