"""Finished runs as the paper's tables.

    python -m scripts.tables RUNS... [--table main]... [--format md] [--baseline no_memory] [--partial] [-o FILE]

RUNS are run directories or folders of them. Each env, model and set of tasks gets a table of its own: nothing is
averaged or compared across them. With every success rate stand its seeds, tasks, errors (in no denominator) and the
source of the labels. A run that did not finish is named and left out; --partial counts it and marks the cell with *.
--format csv gives the numbers unrounded, one line a cell. Exit 1 when a cell of the table has no finished run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from results.cells import BLOCK, Cells, make_cells
from results.load import load_runs
from results.published import comparable, reference
from results.render import FORMATS, Text
from results.tables import ARMS, HEADINGS, PLAYERS, TABLES, Table, experiment_of, gaps, is_cell, number, wanted

if TYPE_CHECKING:
    import pandas as pd

TYPE = "type: "
REFERENCE = ["benchmark", "model", "method", "published", "ours", "comparable?", "source"]


def load(paths: list[str]) -> pd.DataFrame:
    """The episodes of the runs, with the arms' names of the tables."""
    return renamed(load_runs(paths))


def renamed(frame: pd.DataFrame) -> pd.DataFrame:
    """The episodes with the arms' names of the tables."""
    frame["arm"] = frame["arm"].replace(ARMS).mask(frame["agent"].isin(PLAYERS), frame["agent"])
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


def build(
    frame: pd.DataFrame, name: str, *, baseline: str | None = None, partial: bool = False
) -> tuple[Cells, list[Text]]:
    """The cells of a table, and its texts: one a block, and the published numbers."""
    table = TABLES[name]
    frame = chosen(frame, table)
    if frame.empty:
        raise UserError(
            f"none of the runs belongs to the table {name}: python main.py experiment={table.experiment} makes them."
        )
    base = baseline or table.baseline
    cells = make_cells(frame, base, partial=partial)
    cells = Cells(table=_sorted(cells.table, table), frame=cells.frame, notes=cells.notes)
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUNS")
    parser.add_argument("--table", action="append", choices=TABLES, help="again for another one (default: main)")
    parser.add_argument("--format", choices=FORMATS, default="md")
    parser.add_argument("--baseline", help="a label or an arm; the table's own where not given")
    parser.add_argument("--partial", action="store_true", help="count runs that did not finish, marked with *")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    try:
        frame, names = load(given.runs), given.table or ["main"]
        if given.format == "csv" and len(names) > 1:
            raise UserError("--format csv writes one table: give one --table.")
        made = [build(frame, name, baseline=given.baseline, partial=given.partial) for name in names]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.format == "csv":
        text = made[0][0].table.to_csv(index=False)
    else:
        texts = [text for _, found in made for text in found]
        text = "\n".join(FORMATS[given.format](each) for each in texts)
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return int(any(note.startswith("missing: ") for _, texts in made for each in texts for note in each.notes))


if __name__ == "__main__":
    sys.exit(main())
