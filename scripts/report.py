"""One HTML file from finished runs: result, tables, plots, configuration and every episode, for any browser, offline.

    python -m scripts.report RUNS... -o FILE.html [--baseline ARM] [--partial] [--table NAME]... [--title TEXT]

RUNS are run directories or folders of them. A run that did not finish is shown, and counted only with --partial.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core.errors import UserError
from results.load import Run, find_runs, frame_of, read_run
from results.report.page import build
from results.tables import TABLES, build_tables, with_table_arms


def report(runs: list[Run], names: list[str], baseline: str | None, partial: bool, title: str) -> str:
    """The page of the runs with the named tables in it."""
    frame = with_table_arms(frame_of(runs))
    texts = [text for name in names for text in build_tables(frame, name, baseline=baseline, partial=partial)[1]]
    return build(runs, frame, texts, baseline=baseline, partial=partial, title=title)


def main(arguments: list[str] | None = None) -> int:
    """Write the file; 1 with a reason when there is nothing to write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUNS")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE.html")
    parser.add_argument("--baseline", help="the arm to compare with (default: no_memory, or vanilla, or the first)")
    parser.add_argument("--partial", action="store_true", help="count runs that have not finished, marked as partial")
    parser.add_argument("--table", action="append", choices=TABLES, help="a table of scripts.tables (default: all)")
    parser.add_argument("--title", default="ReasoningBank report")
    given = parser.parse_args(arguments)
    try:
        runs = [read_run(path) for path in find_runs(given.runs)]
        text = report(runs, given.table or ["all"], given.baseline, given.partial, given.title)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(text, encoding="utf-8")
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"{given.output}: {sum(len(run.rows) for run in runs):,} episodes of {len(runs)} runs, {len(text) / 1e6:.1f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
