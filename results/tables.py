"""The paper's tables from finished runs: what stands in each, which cells it wants, the command for a missing one."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from results.cells import BLOCK, Cells, make_cells, short
from results.columns import HEADINGS, number
from results.load import load_runs
from results.published import comparable, reference
from results.render import Text

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENTS = Path(__file__).resolve().parent.parent / "config" / "experiment"
COLUMN = {"retrieval.top_k": "top_k"}  # a swept key that the episodes' table has under another name
# A workflow chosen without its arm is that arm.
ARMS = {
    "vanilla": "no_memory",
    "reasoningbank_success_only": "success_only",
    "reasoningbank_failure_only": "failure_only",
}
REFERENCE_AGENTS = ("gold", "random")  # agents without a model: the ceiling and the floor, arms of their own
TYPE = "type: "
REFERENCE = ["benchmark", "model", "method", "published", "ours", "comparable?", "source"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """experiment names the file whose cells it wants; "" takes every cell there is. baseline: a label or an arm."""

    title: str
    experiment: str = ""
    baseline: str = "no_memory"
    columns: tuple[str, ...]


ALWAYS = ("method", "seeds", "n", "infra_errors", "labels", "success")
EFFECT = ("difference", "flips", "p", "p_holm", "p_seeds")
TABLES = {
    "main": Table(
        title="Main table", experiment="main_table", columns=(*ALWAYS, *EFFECT, "steps", "tokens", "published")
    ),
    "learning": Table(
        title="Does it learn?",
        experiment="main_table",
        columns=(*ALWAYS, "late_early", "gain", "lessons", "hit_rate", "steps_won", "steps_lost", "agreement", "kappa"),
    ),
    "cost": Table(
        title="What it costs",
        experiment="main_table",
        columns=(*ALWAYS, "steps", "tokens", "tokens_per_success", "cost", "cost_per_success"),
    ),
    "types": Table(title="Success by task type, %", experiment="main_table", columns=(*ALWAYS, "types")),
    "matts_scaling": Table(
        title="MaTTS, parallel",
        experiment="matts_scaling",
        baseline="matts_parallel k=1",
        columns=(*ALWAYS, "avg_at_k", "pass_at", *EFFECT, "tokens"),
    ),
    "matts_scaling_sequential": Table(
        title="MaTTS, sequential",
        experiment="matts_scaling_sequential",
        baseline="matts_sequential r=0",
        columns=(*ALWAYS, *EFFECT, "tokens"),
    ),
    "pass_at_k": Table(
        title="Pass@k",
        experiment="pass_at_k",
        baseline="matts_parallel_no_memory",
        columns=(*ALWAYS, "n_attempts", "avg_at_k", "best_of_n", "pass_at"),
    ),
    "top_k": Table(
        title="Experiences retrieved", experiment="top_k", baseline="top_k=1", columns=(*ALWAYS, *EFFECT, "tokens")
    ),
    "learn_from": Table(
        title="Lessons from successes, or from failures too",
        experiment="learn_from",
        columns=(*ALWAYS, *EFFECT, "lessons", "published"),
    ),
    "judge": Table(
        title="Labels of the judge, or of the environment",
        experiment="judge",
        baseline="judge=llm",
        columns=(*ALWAYS, *EFFECT, "judge_n", "agreement", "kappa", "confusion"),
    ),
    "retrieval": Table(
        title="Retrieval policies",
        experiment="retrieval",
        baseline="retrieval=cosine",
        columns=(*ALWAYS, *EFFECT, "hit_rate"),
    ),
    "all": Table(title="Every run", columns=(*ALWAYS, *EFFECT, "steps", "tokens")),
}


def wanted(experiment: str, command: str) -> Iterator[dict[str, str]]:
    """The cells that an experiment makes, by swept key. What a run's command narrowed is narrowed."""
    import yaml

    text = (EXPERIMENTS / f"{experiment}.yaml").read_text(encoding="utf-8")
    params = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
    typed = dict(word.split("=", 1) for word in shlex.split(command) if "=" in word)
    choices = [swept(key, str(typed.get(key, values))) for key, values in params.items()]
    for combination in itertools.product(*choices):
        yield dict(zip(params, combination, strict=True))


def swept(key: str, values: str) -> list[str]:
    """The values of a sweep in Hydra's grammar: "1,2", "range(0,3)", or the only one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"{key}={values}")
    if override.is_sweep_override():
        return [text.replace("'", "") for text in override.sweep_string_iterator()]
    return [override.get_value_element_as_str()]


def is_cell(row: dict[str, Any], cell: dict[str, str]) -> bool:
    """Whether a row (of cells or of runs) is a wanted cell, as far as it has its columns."""
    columns = {COLUMN.get(key, key): value for key, value in cell.items()}
    return all(short(row[column]) == value for column, value in columns.items() if column in row)


def fill(experiment: str, command: str, cell: dict[str, str]) -> str:
    """The command for one cell, with all else as the given run had it."""
    words = [
        word for word in shlex.split(command) if word.split("=")[0] not in (*cell, "experiment", "-m", "--multirun")
    ]
    return shlex.join(["python", "main.py", f"experiment={experiment}", *words, *(f"{k}={v}" for k, v in cell.items())])


def experiment_of(command: str) -> str:
    """The experiment that a command names, or ""."""
    return dict(word.split("=", 1) for word in shlex.split(command) if "=" in word).get("experiment", "")


def gaps(experiment: str, runs: pd.DataFrame) -> list[str]:
    """The commands for the cells of an experiment that have no finished run. runs: one row a run of one block."""
    commands: list[str] = []
    for command in dict.fromkeys(runs["command"]):
        for cell in wanted(experiment, command) if experiment and experiment_of(command) == experiment else ():
            done = [row for row in runs.to_dict("records") if row["complete"] and is_cell(row, cell)]
            if not done and (text := fill(experiment, command, cell)) not in commands:
                commands.append(text)
    return commands


def load_episodes(paths: list[str]) -> pd.DataFrame:
    """The episodes of the runs, with the arms' names of the tables."""
    return with_table_arms(load_runs(paths))


def with_table_arms(frame: pd.DataFrame) -> pd.DataFrame:
    """The episodes with the arms' names of the tables."""
    frame["arm"] = frame["arm"].replace(ARMS).mask(frame["agent"].isin(REFERENCE_AGENTS), frame["agent"])
    return frame


def chosen(frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    """The episodes of the cells that the table wants: of its experiment, of runs made by hand, else of any others."""
    if not table.experiment:
        return frame
    cells = [{k: v for k, v in cell.items() if k != "seed"} for cell in wanted(table.experiment, "")]
    runs = [row for row in frame.drop_duplicates("run_dir").to_dict("records") if any(is_cell(row, c) for c in cells)]
    made = [experiment_of(row["command"]) for row in runs]
    own = ("", table.experiment) if table.experiment in made else made
    dirs = [row["run_dir"] for row, experiment in zip(runs, made, strict=True) if experiment in own]
    return frame[frame["run_dir"].isin(dirs)]


def left_out(frame: pd.DataFrame, kept: pd.DataFrame, experiment: str) -> list[str]:
    """A line on the runs that `chosen` left out."""
    runs = frame[~frame["run_dir"].isin(kept["run_dir"])].drop_duplicates("run_dir")
    arms = ", ".join(f"{arm} ({n})" for arm, n in runs["arm"].value_counts(sort=False).items())
    return [f"left out, no cell of {experiment}: runs of {arms}. --table all shows every run."] if arms else []


def build_tables(
    frame: pd.DataFrame, name: str, *, baseline: str | None = None, partial: bool = False
) -> tuple[Cells, list[Text]]:
    """The cells of a table, and its texts: one a block, and the published numbers."""
    table = TABLES[name]
    every, frame = frame, chosen(frame, table)
    if frame.empty:
        raise UserError(
            f"none of the runs belongs to the table {name}: python main.py experiment={table.experiment} makes them."
        )
    base = baseline or table.baseline
    cells = make_cells(frame, base, partial=partial)
    notes = cells.notes + left_out(every, frame, table.experiment)
    cells = Cells(table=_sorted(cells.table, table), frame=cells.frame, notes=notes)
    texts = []
    for block, rows in cells.table.groupby(list(BLOCK), sort=False):
        runs = frame[(frame[list(BLOCK)] == list(block)).all(axis=1)].drop_duplicates("run_dir")
        records = rows.to_dict("records")
        columns = [name for column in table.columns for name in (_types(records) if column == "types" else [column])]
        lines = [[_cell(column, row) for column in columns] for row in records]
        texts.append(
            Text(
                title=f"{table.title}: {block[0]}, {block[1]}, {rows['n_tasks'].iloc[0]} tasks",
                head=[_heading(column) for column in columns],
                rows=lines,
                notes=_notes(rows, base) + [f"missing: {command}" for command in gaps(table.experiment, runs)],
            )
        )
    if lines := reference(name, cells.table.to_dict("records")):
        texts.append(Text(title="Published", head=REFERENCE, rows=lines))
    texts[-1].notes.extend(cells.notes)
    return cells, texts


def _sorted(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """In the order of the experiment."""
    order = list(wanted(table.experiment, "")) if table.experiment else []
    records = rows.to_dict("records")
    rank = [next((n for n, cell in enumerate(order) if is_cell(row, cell)), len(order)) for row in records]
    return rows.iloc[sorted(range(len(rank)), key=lambda place: (rank[place], records[place]["label"]))].reset_index(
        drop=True
    )


def _types(rows: list[dict]) -> list[str]:
    return sorted({f"{TYPE}{kind}" for row in rows for kind in row["by_type"]})


def _cell(column: str, row: dict) -> str:
    if column.startswith(TYPE):
        return number("rate", 1, 100)({"rate": row["by_type"].get(column.removeprefix(TYPE))})
    return comparable(row) if column == "published" else HEADINGS[column][1](row)


def _heading(column: str) -> str:
    return "published" if column == "published" else HEADINGS.get(column, (column.removeprefix(TYPE),))[0]


def _notes(rows: pd.DataFrame, baseline: str) -> list[str]:
    notes = ["n: episodes that count; infra errors are in no denominator. labels: where the learner's come from."]
    if "difference" in rows and rows["difference"].notna().any():
        notes.append(
            f"difference: to {baseline}, in points, on the same tasks and seeds; p: exact, McNemar's for one seed and "
            "pass, for several a permutation task by task; p by seeds: one seed by seed; Holm: over this table."
        )
    if rows["partial"].any():
        notes.append("* holds runs that did not finish.")
    return notes
