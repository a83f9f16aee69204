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
from core.types import content_id
from results.inspect_log import write_eval
from results.load import Run, find_runs, load_runs, read_run


def to_parquet(paths: list[str], output: Path) -> None:
    frame = load_runs(paths)
    for column in ("k", "r", "top_k"):  # numbers that some runs do not have
        frame[column] = frame[column].astype("Int64")
    frame.to_parquet(output, index=False)
    print(f"{output}: {len(frame)} episodes of {frame['run_dir'].nunique()} runs")


def to_inspect(paths: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[Path] = set()
    for path in find_runs(paths):
        run, place = read_run(path), path.resolve()
        output = folder / f"{place.parent.name}_{place.name}.eval"
        if output in taken:  # runs of the same name in other folders
            output = folder / f"{place.parent.name}_{place.name}_{content_id(str(place))}.eval"
        taken.add(output)
        write_eval(run, output)
        print(f"{output}: {len(run.rows)} episodes")


def to_wandb(paths: list[str], project: str, mode: str) -> None:
    from core.run.tracking import WandbTracker, logged

    for path in find_runs(paths):
        run = read_run(path)
        tracker = WandbTracker(project=project, mode=mode)
        tracker.start(str(path), run.config)
        for row in run.rows:
            tracker.log(row["index"], logged(row["status"], len(row["lessons"])))
        tracker.finish(_summary(run))
        print(f"{path}: {len(run.rows)} episodes to wandb ({mode})")


def _summary(run: Run) -> dict:
    from core.run.metrics import summarise

    return run.summary or summarise(run.rows, run.n_tasks)


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
