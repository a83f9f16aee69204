"""Runs for other tools.

    python -m scripts.export RUNS... --to parquet -o FILE      one table, a row an episode (columns: results.load)
    python -m scripts.export RUNS... --to inspect -o FOLDER    an Inspect log (.eval) a run
    python -m scripts.export RUNS... --to wandb [--project P] [--online]     Weights & Biases, after the fact

wandb writes into each run's directory unless --online is given; `wandb sync` sends it later. Needs the extra `wandb`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core.errors import UserError
from results.export import to_inspect, to_parquet, to_wandb


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUNS")
    parser.add_argument("--to", required=True, choices=("parquet", "inspect", "wandb"))
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--project", default="reasoningbank")
    parser.add_argument("--online", action="store_true")
    given = parser.parse_args(arguments)
    if given.to != "wandb" and given.output is None:
        parser.error(f"--to {given.to} needs -o")
    try:
        if given.to == "parquet":
            to_parquet(given.runs, given.output)
        elif given.to == "inspect":
            to_inspect(given.runs, given.output)
        else:
            to_wandb(given.runs, given.project, "online" if given.online else "offline")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
