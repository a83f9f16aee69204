"""The paper's tables from finished runs: their columns, the cells of each, and the command for a missing cell."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cells import BLOCK, REFERENCES, Cells, make_cells, rows_of, short
from analysis.columns import HEADINGS, of_measure, of_type
from analysis.load import load_runs, swept, typed
from analysis.notes import qualified
from analysis.published import reference
from analysis.text_table import TextTable, show
from analysis.verdict import ONE_TABLE, orders
from core.errors import UserError, meant
from core.run.keys import COLUMNS
from core.run.manifest import flat

if TYPE_CHECKING:
    import pandas as pd

    from core.console import Console

EXPERIMENTS = Path(__file__).resolve().parent.parent / "config" / "experiment"
COLUMN = {key: column for column, key in COLUMNS.items()}  # {a key: the column that the episodes' table has of it}
# A workflow chosen without its arm is that arm.
ARMS = {
    "vanilla": "no_memory",
    "reasoningbank_success_only": "success_only",
    "reasoningbank_failure_only": "failure_only",
}
COMPARABLE = "comparable?"
REFERENCE = ["benchmark", "model", "method", "published", "ours", COMPARABLE, "source"]
OPEN = "main"  # the table that also has every run made by hand
ALWAYS = ("method", "seeds", "n", "infra_errors", "labels", "success")
ANSWERS = ("unstated", "limits", "lenient")  # stand in every table in which something was not answered
WHERE = {  # {a column: what some row has to have, or the column is left out}
    **dict.fromkeys(("n_rated", "brier", "ece"), "judge_n_rated"),
    **dict.fromkeys(("lenient", "answered"), "n_unanswered"),
    "unstated": "n_unstated",
    "limits": "limits",
    "validation_tokens": "tokens_validation",
}
RATED = "Brier, ECE: of the judge's confidence that its label is right, over the attempts that have one; 0 is best."
EFFECT = ("difference", "answered", "times_tokens", "n_pairs", "flips", "p", "p_holm", "sd_seeds", "p_tasks")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    columns      names in `analysis.columns.HEADINGS`, after ALWAYS; `effect` is EFFECT, `types` and `measures` are
                 several columns
    experiment   file in config/experiment whose cells it has; "": all cells
    baseline     a label or an arm; without an experiment it is `usual_baseline`
    """

    title: str
    columns: tuple[str, ...]
    experiment: str = ""
    baseline: str = "no_memory"


def columns_named(names: str) -> tuple[str, ...]:
    """Names of columns, with blanks or commas between them. Raises UserError for one that there is not."""
    found = [one for name in names.replace(",", " ").split() for one in (EFFECT if name == "effect" else (name,))]
    known = ("effect", "types", "measures", *HEADINGS)
    if unknown := [name for name in found if name not in known]:
        raise UserError(f"there is no column {unknown[0]}{meant(unknown[0], known)}: {', '.join(known)}")
    return tuple(name for name in found if name not in ALWAYS)


@cache
def tables() -> dict[str, Table]:
    """Every table by its name: those that the experiments' files name, and those of any runs."""
    found = {name: table for experiment in experiments() for name, table in tables_of(experiment).items()}
    return found | {
        "measures": Table(title="Further measures", columns=columns_named("reward measures published")),
        "over_types": Table(
            title="Difference over types of task", columns=columns_named("difference p_holm n_types over_types")
        ),
        "all": every_run(),
    }


def experiments() -> list[str]:
    """The names of this project's experiments, the main table's first."""
    names = (file.stem for file in EXPERIMENTS.glob("*.yaml"))
    return sorted(names, key=lambda name: (name != "main_table", name))


def tables_of(experiment: str) -> dict[str, Table]:
    """The tables that an experiment's file names; {} for one that is not of this project."""
    named = body_of(experiment).get("tables", {}) if experiment in experiments() else {}
    return {
        name: Table(**about | {"columns": columns_named(about["columns"])}, experiment=experiment)
        for name, about in named.items()
    }


def usual_baseline(frame: pd.DataFrame) -> str:
    """no_memory; where no run is of it and all are of one experiment, the baseline of that one's table."""
    found = {typed(command).get("experiment", "") for command in frame["command"].unique()}
    own = [table.baseline for table in tables_of(*found).values()] if len(found) == 1 else []
    return own[0] if own and "no_memory" not in set(frame["arm"]) else "no_memory"


def every_run(columns: tuple[str, ...] = (*EFFECT, "steps", "tokens", "validation_tokens")) -> Table:
    """The table of all cells."""
    return Table(title="Every run", columns=columns)


@cache
def body_of(experiment: str) -> dict[str, Any]:
    """The content of an experiment's file."""
    import yaml

    return yaml.load(
        (EXPERIMENTS / f"{experiment}.yaml").read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )


def wanted(experiment: str, command: str) -> Iterator[dict[str, str]]:
    """The cells of an experiment: {swept key: value}. Values that a run's command overrides replace its own."""
    params = body_of(experiment)["hydra"]["sweeper"]["params"]
    choices = [swept(key, str(typed(command).get(key, values))) for key, values in params.items()]
    for combination in itertools.product(*choices):
        yield dict(zip(params, combination, strict=True))


def is_cell(row: dict[str, Any], cell: dict[str, str], also: Container[str] = ()) -> bool:
    """Whether a row (of cells or of runs) is the wanted cell, judged by the columns that the row has.

    also   keys in which the row may depart from its arm beside those of the cell: see `set_for_all`
    """
    others = [key for word in row["overridden"].split() if (key := word.partition("=")[0]) not in cell]
    return resembles(row, cell) and all(key in also for key in others)


def resembles(row: dict[str, Any], cell: dict[str, str]) -> bool:
    """Whether a row is the wanted cell or departs from it in other settings, which its label names."""
    columns = {COLUMN.get(key, key): value for key, value in cell.items()}
    return all(short(row[column]) == value for column, value in columns.items() if column in row)


def set_for_all(experiment: str, command: str = "") -> set[str]:
    """The keys that an experiment sets in all its cells, beside those that it sweeps, and those that a command sets."""
    own = {key: value for key, value in body_of(experiment).items() if key not in ("hydra", "defaults", "tables")}
    return {*flat(own), *typed(command)}


def fill(experiment: str, command: str, cell: dict[str, str]) -> str:
    """The command for one cell: the given run's command with the cell's values."""
    words = [
        word for word in shlex.split(command) if word.split("=")[0] not in (*cell, "experiment", "-m", "--multirun")
    ]
    return shlex.join(["python", "main.py", f"experiment={experiment}", *words, *(f"{k}={v}" for k, v in cell.items())])


def gaps(experiment: str, runs: pd.DataFrame) -> list[str]:
    """The commands for the cells of an experiment that have no finished run. runs: one row a run of one block."""
    done = [row for row in rows_of(runs) if row["complete"]]
    made = runs["command"].unique() if experiment else ()
    commands = [command for command in made if typed(command).get("experiment") == experiment]
    lacking = [
        fill(experiment, command, cell)
        for command in commands
        for cell in wanted(experiment, command)
        if not any(is_cell(row, cell, set_for_all(experiment, command)) for row in done)
    ]
    return list(dict.fromkeys(lacking))


def load_episodes(paths: list[str]) -> pd.DataFrame:
    """The episodes of the runs, with the arms' names of the tables."""
    return with_table_arms(load_runs(paths))


def with_table_arms(frame: pd.DataFrame) -> pd.DataFrame:
    """The episodes with the column `arm` renamed as in the tables (ARMS, and REFERENCES by their agent)."""
    frame["arm"] = frame["arm"].replace(ARMS).mask(frame["agent"].isin(REFERENCES), frame["agent"])
    return frame


def chosen(frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    """The episodes of the cells that the table wants: of its experiment, of runs made by hand, else of any others.

    The main table also has every run by hand that resembles no cell of its experiment: a workflow of one's own, a
    second baseline.
    """
    if not table.experiment:
        return frame
    cells = [{k: v for k, v in cell.items() if k != "seed"} for cell in wanted(table.experiment, "")]
    runs = rows_of(frame.drop_duplicates("run_dir"))
    if table is not tables()[OPEN]:
        runs = [row for row in runs if any(resembles(row, cell) for cell in cells)]
    made = [typed(row["command"]).get("experiment", "") for row in runs]
    own = ("", table.experiment) if table.experiment in made else made
    dirs = [row["run_dir"] for row, experiment in zip(runs, made, strict=True) if experiment in own]
    return frame[frame["run_dir"].isin(dirs)]


def left_out(frame: pd.DataFrame, kept: pd.DataFrame, experiment: str) -> list[str]:
    """A line on the runs that `chosen` left out."""
    runs = frame[~frame["run_dir"].isin(kept["run_dir"])].drop_duplicates("run_dir")
    arms = ", ".join(f"{arm} ({n})" for arm, n in runs["arm"].value_counts(sort=False).items())
    return [f"left out, no cell of {experiment}: runs of {arms}. --table all shows every run."] if arms else []


def published(name: str, rows: list[dict[str, Any]], every: bool) -> list[TextTable]:
    """The published rows that are comparable with one of ours; every: the others too, each with why it is not."""
    lines = [line for line in reference(name, rows) if every or line[REFERENCE.index(COMPARABLE)].startswith("yes")]
    return [TextTable(title="Published", head=REFERENCE, rows=lines)] if lines else []


def build_tables(
    frame: pd.DataFrame,
    name: str | Table,
    *,
    baseline: str | None = None,
    partial: bool = False,
    every_published: bool = False,
    command: str = "",
) -> tuple[Cells, list[TextTable]]:
    """The cells of a table, given or by its name, and its texts: one a block, and the published numbers.

    baseline, partial, command   as in `analysis.cells.make_cells`; None: the table's own baseline
    every_published              published rows that are not comparable stand there as well, with why
    """
    table, name = (tables()[name], name) if isinstance(name, str) else (name, "all")
    every, frame = frame, chosen(frame, table)
    if frame.empty:
        raise UserError(
            f"none of the runs belongs to the table {name}: python main.py experiment={table.experiment} makes them."
        )
    base = baseline or (table.baseline if table.experiment else usual_baseline(frame))
    cells = make_cells(frame, base, partial=partial, command=command)
    notes = cells.notes + left_out(every, frame, table.experiment)
    cells = replace(cells, table=_sorted(cells.table, table), notes=notes)
    texts = []
    for block, rows in cells.table.groupby(list(BLOCK), sort=False):
        runs = frame[(frame[list(BLOCK)] == list(block)).all(axis=1)].drop_duplicates("run_dir")
        each = rows_of(rows)
        types = [of_type(kind) for kind in sorted({kind for row in each for kind in row["by_type"]})]
        measured = dict.fromkeys(name for row in each for name in row["measures"])
        many = {
            "types": types,
            "measures": [of_measure(name, kind) for name in measured for kind in ("macro", "micro")],
        }
        title = f"{table.title}: {whole_name(each[0])}, {block[1]}, {rows['n_tasks'].iloc[0]} tasks"
        names = dict.fromkeys((*ALWAYS, *ANSWERS, *table.columns))
        names = [name for name in names if name not in WHERE or any(row[WHERE[name]] for row in each)]
        columns = [one for name in names for one in (many[name] if name in many else [HEADINGS[name]])]
        texts.append(
            TextTable(
                title=qualified(title, each, counts=False),
                head=[heading for heading, _ in columns],
                rows=[[show(row) for _, show in columns] for row in each],
                cells=[(row["cell"], row.get("base")) for row in each],
                notes=[
                    *_notes(rows, base),
                    *(RATED for name in names if name == "brier"),
                    *(f"missing: {command}" for command in gaps(table.experiment, runs)),
                ],
            )
        )
    texts[-1].notes.extend(cells.notes)
    return cells, texts + published(name, rows_of(cells.table), every_published)


def print_tables(build: Callable[..., tuple[Cells, list[TextTable]]], folder: Path, console: Console) -> None:
    """Print the tables that `build` makes of a folder's runs; where there is none, a line says why."""
    try:
        _, texts = build(load_episodes([str(folder)]), command=shlex.join(["reasoningbank", "tables", str(folder)]))
    except UserError as error:
        console.print(f"no table: {error}", soft_wrap=True)
        return
    for text in texts:
        show(console, text)


def whole_name(row: dict[str, Any]) -> str:
    """The benchmark's name with its part and version, if it has them."""
    part = None if f"({row['part']})" in row["env"] else row["part"]
    return " ".join(filter(None, (row["env"], part, row["version"])))


def _sorted(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """The rows in the order of the experiment's cells; other cells follow."""
    order = list(wanted(table.experiment, "")) if table.experiment else []
    also = set_for_all(table.experiment) if table.experiment else set()
    ranks = [
        (next((n for n, cell in enumerate(order) if is_cell(row, cell, also)), len(order)), place)
        for place, row in enumerate(rows_of(rows))
    ]
    return rows.iloc[[place for *_, place in sorted(ranks)]].reset_index(drop=True)


def _notes(rows: pd.DataFrame, baseline: str) -> list[str]:
    notes = ["n: episodes that count; broken ones are in no denominator. labels: where the learner's come from."]
    if "difference" in rows and rows["difference"].notna().any():
        notes.append(
            f"difference: to {baseline}, in points, on the same tasks and seeds; p: of no difference for these tasks "
            f"{orders(rows_of(rows))}, allowing for the bank that the tasks of a seed share (none with one seed); "
            "Holm: over this table; sd by seeds: of the differences of the seeds, in points; p by tasks: exact, but of "
            f"these banks alone. {ONE_TABLE}"
        )
    if rows["partial"].any():
        notes.append("* holds runs that did not finish.")
    return notes
