"""Finished runs for other tools: a table of episodes or of runs, Inspect logs. Each says what it has written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from analysis.inspect_log import write_eval
from analysis.load import load_runs
from analysis.runs import explaining, find_runs, read_run
from core.escaping import spreadsheet
from core.memory.moment import since
from core.run.arms import named
from core.run.files import TIMINGS, lines_of
from core.run.metrics import summarise
from core.types import content_id


def to_parquet(paths: list[str], output: Path) -> None:
    frame = load_runs(paths)
    for column in ("k", "r", "top_k"):  # numbers that some runs do not have
        frame[column] = frame[column].astype("Int64")
    frame.to_parquet(output, index=False)
    print(f"{output}: {len(frame)} episodes of {frame['run_dir'].nunique()} runs")


RUN_METRICS = (  # of summary.json
    "n n_success success_rate mean_steps cost_usd cost_usd_per_success wall_s wall_s_per_success lessons_per_100 "
    "shown_per_task n_infra_error judge_agreement label_source"
).split()


def to_csv(paths: list[str], output: Path, begin: str | None = None) -> None:
    """A row of metrics a run, of those whose last episode ended since a time such as 7d; None: of all."""
    import pandas as pd

    start = None if begin is None else since(begin)

    rows = []
    for path in find_runs(paths):
        run = read_run(path)
        with explaining(path):
            found = run.summary or summarise(run.rows, run.n_tasks)
            ended = max((line["ended"] for line in lines_of(path, TIMINGS)), default=0.0)
        at, name = datetime.fromtimestamp(ended, UTC), named(run.arm or "run", run.overridden)
        if start is None or at >= start:
            about = {
                "run": str(path),
                "ended": at.isoformat(timespec="seconds"),
                "arm": name,
                "seed": run.config["seed"],
            }
            rows.append(about | {key: found.get(key) for key in RUN_METRICS})
    frame = pd.DataFrame(rows, columns=["run", "ended", "arm", "seed", *RUN_METRICS])
    frame.map(spreadsheet).to_csv(output, index=False)
    print(f"{output}: {len(rows)} runs")


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
