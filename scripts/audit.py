"""Check runs against the design's invariants, from their records alone, and grade what they learned.

    python -m scripts.audit RUNS... [--most 5] [--json]

Exit 1 when an invariant is broken in any run, 2 when a run cannot be read. What is worth a look breaks nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

from results.audit import BROKEN
from results.lesson_quality import WORTH_A_LOOK, audit
from results.load import Run, find_runs, read_run
from scripts.command_line import parser, plain_errors


def show(console: Console, report: dict[str, Any], run: Run, most: int) -> None:
    """One run for a person."""
    state = f"{len(run.rows)} of {run.n_tasks} episodes" + ("" if run.complete else ", not finished")
    console.print(f"\n[bold]{report['run']}[/bold]  {state}")
    purpose = {check.__name__: (check.__doc__ or "").strip() for check in (*BROKEN, *WORTH_A_LOOK)}
    for check in BROKEN:
        if check.__name__ not in report["broken"]:
            console.print(f"  [green]ok[/green]      {check.__name__}")
    for kind, mark in (("broken", "[red]BROKEN[/red]"), ("look", "[yellow]look[/yellow]  ")):
        for name, lines in report[kind].items():
            console.print(f"  {mark}  {name}: {len(lines)}   {purpose[name]}")
            more = [f"and {len(lines) - most} more"] if len(lines) > most else []
            for line in (*lines[:most], *more):
                console.print(f"            {line}", markup=False)
    grade = {name: value for name, value in report["grade"].items() if value is not None}
    shown = (f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in grade.items())
    console.print("  grade   " + ", ".join(shown))


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    options.add_argument("--most", type=int, default=5, help="lines of a check")
    options.add_argument("--json", action="store_true", help="everything, for machines")
    given = options.parse_args(arguments)
    console, broken = Console(soft_wrap=True, highlight=False), False
    for path in find_runs(given.runs):
        run = read_run(path)
        report = audit(run)
        broken |= bool(report["broken"])
        print(json.dumps(report, ensure_ascii=False)) if given.json else show(console, report, run, given.most)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
