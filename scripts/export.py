"""Export runs to other tools.

    reasoningbank export RUNS... --to parquet -o FILE      one table, a row an episode (columns: analysis.load)
    reasoningbank export RUNS... --to csv [--since 7d] -o FILE    a row of metrics a run (12h, 2w, 2026-01-31)
    reasoningbank export RUNS... --to inspect -o FOLDER    an Inspect log (.eval) a run
    reasoningbank export RUNS... --to wandb [--project P] [--online]     Weights & Biases, after the fact
    reasoningbank export RUNS... --to mlflow [--project P] [--uri URI]   MLflow, as tracker=mlflow
    reasoningbank export RUNS... --to trackio [--project P]              Trackio, as tracker=trackio

Without --online, wandb writes into each run's directory, and `wandb sync` sends it later. Each tool needs its package.
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.export import to_csv, to_inspect, to_parquet, to_service
from scripts.command_line import parser, plain_errors

SERVICES = {"wandb": ("project", "mode"), "mlflow": ("project", "uri"), "trackio": ("project",)}  # and their options


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__, runs=True)
    options.add_argument("--to", required=True, choices=("parquet", "csv", "inspect", *SERVICES))
    options.add_argument("--since", metavar="WHEN", help="of --to csv")
    options.add_argument("-o", "--output", type=Path)
    options.add_argument("--project")
    options.add_argument("--online", dest="mode", action="store_const", const="online")
    options.add_argument("--uri")
    given = options.parse_args(arguments)
    if given.since and given.to != "csv":
        options.error("--since is for --to csv")
    if given.to in SERVICES:
        keys = {key: value for key in SERVICES[given.to] if (value := getattr(given, key)) is not None}
        to_service(given.runs, given.to, keys)
    elif given.output is None:
        options.error(f"--to {given.to} needs -o")
    elif given.to == "csv":
        to_csv(given.runs, given.output, given.since)
    elif given.to == "parquet":
        to_parquet(given.runs, given.output)
    else:
        to_inspect(given.runs, given.output)


if __name__ == "__main__":
    sys.exit(main())
