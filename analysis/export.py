"""Finished runs for other tools: a table of episodes or of runs, Inspect logs. Each says what it has written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.inspect_log import write_eval
from analysis.load import load_runs
from analysis.runs import explaining, find_runs, read_run
from core.escaping import spreadsheet
from core.memory.moment import since
from core.models.reply_text import without_surrogates
from core.run.arms import named
from core.run.columns import episode_columns
from core.run.files import TIMINGS, lines_of
from core.run.metrics import VALID, summarise
from core.run.records import answer_of, status_of
from core.types import content_id


def to_parquet(paths: list[str], output: Path, every_column: bool = False) -> None:
    """A row an episode: what people look at (`episode_rows`), or every column that a table is made of."""
    import pandas as pd

    if every_column:
        frame = load_runs(paths)
        for column in ("k", "r", "top_k"):  # numbers that some runs do not have
            frame[column] = frame[column].astype("Int64")
    else:
        frame = pd.DataFrame(episode_rows(paths))
    frame.to_parquet(output, index=False)
    print(f"{output}: {len(frame)} episodes")


def episodes_to_csv(paths: list[str], output: Path) -> None:
    import pandas as pd

    rows = list(episode_rows(paths))
    pd.DataFrame(rows).map(spreadsheet).to_csv(output, index=False)
    print(f"{output}: {len(rows)} episodes")


def episode_rows(paths: list[str]) -> Iterator[dict[str, Any]]:
    """{column: value} of each episode: what was asked, answered and right, by which arm, what was shown and spent."""
    for path in find_runs(paths):
        run = read_run(path)
        for row in run.rows:
            facts, chosen = episode_columns(row), answer_of(row)
            yield {
                "run": str(path),
                "arm": named(run.arm or "run", run.overridden),
                "seed": run.config["seed"],
                "task_id": facts["task_id"],
                "task_type": facts["task_type"],
                "question": without_surrogates(row["query"]),
                "answer": without_surrogates(chosen["answer"] or ""),
                "gold": without_surrogates(chosen["gold"] or ""),
                "correct": None if status_of(row) not in VALID else facts["status"] == "success",
                "judged": facts["verdict"],
                "lessons_shown": facts["lessons_shown"],
                "lessons_learned": facts["n_lessons"],
                "steps": facts["steps"],
                "tokens": facts["tokens"],
                "error": facts["error"],
            }


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
            ended = max((line["ended"] for line in lines_of(path, TIMINGS)), default=None)
        at = None if ended is None else datetime.fromtimestamp(ended, UTC)
        if start is None or (at is not None and at >= start):
            about = {"run": str(path), "ended": at and at.isoformat(timespec="seconds")}
            about |= {"arm": named(run.arm or "run", run.overridden), "seed": run.config["seed"]}
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
