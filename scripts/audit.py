"""Check runs against the design's invariants, from their records alone, and grade what they learned.

    reasoningbank audit RUNS... [--most 5] [-v] [--json]

Each check of a run ends as `BROKEN`, worth a `look`, `ok`, or `not checked`, with the reason; -v also names the checks
that are ok, and prints the grades of the lessons. The last line is a summary. Exit status 1: an invariant is broken in
some run; 2: a run cannot be read. Several runs are also compared with each other.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.text import Text

from analysis.audit import BROKEN, WORTH_A_LOOK, audit_folder, together
from analysis.runs import Run, find_runs
from core.console import Console
from scripts.command_line import parser, plain_errors


def show(console: Console, report: dict[str, Any], run: Run, most: int, verbose: bool) -> None:
    """One run for a person. verbose: name each check that is ok, and print the grades."""
    state = f"{len(run.rows)} of {run.n_tasks} episodes" + ("" if run.complete else ", not finished")
    console.print(Text.assemble("\n", (report["run"], "bold"), f"  {state}"))
    purpose = {"checksums": "Every file of lines is as the run left it."}
    purpose |= {check.__name__: (check.__doc__ or "").strip() for check in (*BROKEN, *WORTH_A_LOOK)}
    for name in report["ok"] if verbose else [f"{len(report['ok'])} checks"]:
        console.print(Text.assemble("  ", ("ok", "green"), f"      {name}"))
    for name, why in report["unchecked"].items():
        console.print(Text.assemble("  ", ("not checked", "yellow"), f"  {name}: {why}"))
    for kind, mark in (("broken", ("BROKEN", "red")), ("look", ("look  ", "yellow"))):
        for name, lines in report[kind].items():
            console.print(Text.assemble("  ", mark, f"  {name}: {len(lines)}   {purpose[name]}"))
            show_lines(console, lines, most)
    if not verbose:
        return
    grade = {name: value for name, value in report["grade"].items() if value is not None}
    shown = (f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in grade.items())
    console.print("  grade   " + ", ".join(shown))


def show_lines(console: Console, lines: list[str], most: int) -> None:
    """The first of a check's lines."""
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    for line in (*lines[:most], *more):
        console.print(f"            {line}")


def verdict(reports: list[dict[str, Any]], found: dict[str, list[str]]) -> str:
    """What an audit comes to, in one sentence. found: by all runs together."""

    def named(kind: str) -> list[str]:
        return list(dict.fromkeys(name for report in reports for name in report[kind]))

    runs = f"{len(reports)} run{'s' * (len(reports) != 1)}"
    looks = list(dict.fromkeys([*named("look"), *found]))
    aside = f"; worth a look: {', '.join(looks)}" if looks else ""
    if not named("broken"):
        unchecked = f" ({len(named('unchecked'))} checks could not be made)" if named("unchecked") else ""
        return f"No invariant is broken in {runs}{unchecked}{aside}."
    n = sum(bool(report["broken"]) for report in reports)
    return f"BROKEN in {n} of {runs}: {', '.join(named('broken'))}. Do not report their numbers{aside}."


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    options.add_argument("--most", type=int, default=5, help="lines of a check")
    options.add_argument("--json", action="store_true", help="everything, for machines")
    options.add_argument("-v", "--verbose", action="store_true", help="also what is ok, and the grades")
    given = options.parse_args(arguments)
    console, runs, reports = Console(soft_wrap=True), [], []
    for path in find_runs(given.runs):
        run, report = audit_folder(path)
        runs.append(run)
        reports.append(report)
        if given.json:
            print(json.dumps(report, ensure_ascii=False))
        else:
            show(console, report, run, given.most, given.verbose)
    found = together(runs)
    if given.json and len(runs) > 1:
        print(json.dumps({"together": found}, ensure_ascii=False))
    elif found:
        console.print(Text("\nthe runs together", "bold"))
        for name, lines in found.items():
            console.print(Text.assemble("  ", ("look", "yellow"), f"    {name}: {len(lines)}"))
            show_lines(console, lines, given.most)
    if not given.json:
        console.print(f"\n{verdict(reports, found)}")
    return int(any(report["broken"] for report in reports))


if __name__ == "__main__":
    sys.exit(main())
