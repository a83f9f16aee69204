"""Check runs against the design's invariants, from their records alone, and grade what they learned.

    python -m scripts.audit RUNS... [--most 5] [--json]

Exit 1 when an invariant is broken in any run, 2 when a run cannot be read. What is worth a look breaks nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console

from core.errors import UserError
from results.audit import BROKEN
from results.lesson_quality import WORTH_A_LOOK, audit
from results.load import Run, find_runs, read_run


def show(console: Console, report: dict[str, Any], run: Run, most: int) -> None:
    """One run for a person."""
    state = f"{len(run.rows)} of {run.n_tasks} episodes" + ("" if run.complete else ", not finished")
    console.print(f"\n[bold]{report['run']}[/bold]  {state}", highlight=False)
    purpose = {check.__name__: (check.__doc__ or "").strip() for check in (*BROKEN, *WORTH_A_LOOK)}
    for check in BROKEN:
        if check.__name__ not in report["broken"]:
            console.print(f"  [green]ok[/green]      {check.__name__}", highlight=False)
    for kind, mark in (("broken", "[red]BROKEN[/red]"), ("look", "[yellow]look[/yellow]  ")):
        for name, lines in report[kind].items():
            console.print(f"  {mark}  {name}: {len(lines)}   {purpose[name]}", highlight=False)
            for line in lines[:most]:
                console.print(f"            {line}", markup=False, highlight=False)
            if len(lines) > most:
                console.print(f"            and {len(lines) - most} more", highlight=False)
    shown = (
        f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in report["grade"].items() if v is not None
    )
    console.print("  grade   " + ", ".join(shown), highlight=False)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUNS")
    parser.add_argument("--most", type=int, default=5, help="lines of a check")
    parser.add_argument("--json", action="store_true", help="everything, for machines")
    given = parser.parse_args(arguments)
    console, broken = Console(soft_wrap=True), False
    try:
        for path in find_runs(given.runs):
            run = read_run(path)
            report = audit(run)
            broken |= bool(report["broken"])
            print(json.dumps(report, ensure_ascii=False)) if given.json else show(console, report, run, given.most)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
