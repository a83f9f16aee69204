"""Runs for other tools.

    python -m scripts.export RUNS... --to parquet -o FILE      one table, a row an episode (columns: results.load)
    python -m scripts.export RUNS... --to inspect -o FOLDER    an Inspect log (.eval) a run
    python -m scripts.export RUNS... --to wandb [--project P] [--online]     Weights & Biases, after the fact

wandb writes into each run's directory unless --online is given; `wandb sync` sends it later. Needs the extra `wandb`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from results.export import to_inspect, to_parquet, to_wandb
from scripts.command_line import parser, plain_errors


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__, runs=True)
    options.add_argument("--to", required=True, choices=("parquet", "inspect", "wandb"))
    options.add_argument("-o", "--output", type=Path)
    options.add_argument("--project", default="reasoningbank")
    options.add_argument("--online", action="store_true")
    given = options.parse_args(arguments)
    if given.to == "wandb":
        to_wandb(given.runs, given.project, "online" if given.online else "offline")
    elif given.output is None:
        options.error(f"--to {given.to} needs -o")
    elif given.to == "parquet":
        to_parquet(given.runs, given.output)
    else:
        to_inspect(given.runs, given.output)


if __name__ == "__main__":
    sys.exit(main())
