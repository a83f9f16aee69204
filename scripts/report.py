"""One HTML file from finished runs: result, tables, plots, configuration and every episode, for any browser, offline.

    python -m scripts.report RUNS... -o FILE.html [--baseline ARM] [--partial] [--table NAME]... [--title TEXT]

RUNS are run directories or folders of them. A run that did not finish is shown, and counted only with --partial.
"""

from __future__ import annotations

import sys
from pathlib import Path

from results.load import find_runs, frame_of, read_run
from results.report.page import build
from results.tables import TABLES, build_tables, with_table_arms
from scripts.command_line import parser, plain_errors


@plain_errors(status=1)
def main(arguments: list[str] | None = None) -> None:
    """Write the file; 1 with a reason when there is nothing to write."""
    options = parser(__doc__, runs=True)
    options.add_argument("-o", "--output", required=True, type=Path, metavar="FILE.html")
    options.add_argument("--baseline", help="the arm to compare with (default: no_memory, or vanilla, or the first)")
    options.add_argument("--partial", action="store_true", help="count runs that have not finished, marked as partial")
    options.add_argument("--table", action="append", choices=TABLES, help="a table of scripts.tables (default: all)")
    options.add_argument("--title", default="ReasoningBank report")
    given = options.parse_args(arguments)
    runs = [read_run(path) for path in find_runs(given.runs)]
    frame, compared = with_table_arms(frame_of(runs)), {"baseline": given.baseline, "partial": given.partial}
    tables = [table for name in given.table or ["all"] for table in build_tables(frame, name, **compared)[1]]
    text = build(runs, frame, tables, title=given.title, **compared)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(text, encoding="utf-8")
    n_episodes = sum(len(run.rows) for run in runs)
    print(f"{given.output}: {n_episodes:,} episodes of {len(runs)} runs, {len(text) / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
