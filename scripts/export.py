"""Export runs to other tools.

reasoningbank export RUNS... --to episodes -o FILE     a CSV table, a row an episode: question, answer, gold ...
reasoningbank export RUNS... --to parquet -o FILE      the same as Parquet; --every-column: all that a table is made of
reasoningbank export RUNS... --to csv [--since 7d] -o FILE    a row of metrics a run (12h, 2w, 2026-01-31)
reasoningbank export RUNS... --to inspect -o FOLDER    an Inspect log (.eval) a run
reasoningbank export BANK --to skill -o FOLDER         a SKILL.md for each domain of a bank's lessons
reasoningbank export BANK --to agents -o AGENTS.md     a marked block in that file, which is replaced the next time
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.export import episodes_to_csv, to_csv, to_inspect, to_parquet
from scripts.command_line import parser, plain_errors, start_module


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__, runs=True)
    options.add_argument("--to", required=True, choices=("episodes", "parquet", "csv", "inspect", "skill", "agents"))
    options.add_argument("--every-column", action="store_true", help="of --to parquet (core/run/columns.py)")
    options.add_argument("--since", metavar="WHEN", help="of --to csv")
    options.add_argument("-o", "--output", type=Path, required=True)
    given = options.parse_args(arguments)
    if given.since and given.to != "csv":
        options.error("--since is for --to csv")
    if given.every_column and given.to != "parquet":
        options.error("--every-column is for --to parquet")
    if given.to in ("skill", "agents"):
        words = ["export", *given.runs, str(given.output), "--format", given.to]
        return start_module("core.memory", "reasoningbank bank", words)
    if given.to == "csv":
        to_csv(given.runs, given.output, given.since)
    elif given.to == "parquet":
        to_parquet(given.runs, given.output, given.every_column)
    else:
        {"episodes": episodes_to_csv, "inspect": to_inspect}[given.to](given.runs, given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
