"""Finished runs for other tools: a table of episodes, Inspect logs, Weights & Biases. Each says what it has written."""

from __future__ import annotations

from pathlib import Path

from core.run.metrics import summarise
from core.run.tracking import WandbTracker, logged
from core.types import content_id
from results.inspect_log import write_eval
from results.load import explaining, find_runs, load_runs, read_run


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
        with explaining(path):
            write_eval(run, output)
        print(f"{output}: {len(run.rows)} episodes")


def to_wandb(paths: list[str], project: str, mode: str) -> None:
    for path in find_runs(paths):
        run = read_run(path)
        tracker = WandbTracker(project=project, mode=mode)
        tracker.start(str(path), run.config)
        for place, row in enumerate(run.rows):
            tracker.log(place, logged(row["status"], len(row["lessons"])))
        tracker.finish(run.summary or summarise(run.rows, run.n_tasks))
        print(f"{path}: {len(run.rows)} episodes to wandb ({mode})")
