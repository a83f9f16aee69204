"""The one table: arms in rows, benchmarks and models in columns; success, difference to the baseline, n and errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cells import BLOCK, Cells, make_cells, place_of_arm, rows_of
from analysis.columns import HEADINGS, broken, seeds, success
from analysis.load import typed
from analysis.notes import labels, learned, limits, qualified, share
from analysis.reach import findable
from analysis.tables import gaps, print_tables, published, tables_of, usual_baseline, whole_name
from analysis.text_table import BETTER, WORSE, TextTable
from analysis.verdict import LEVEL, ONE_TABLE, comparison_outcome, of_banks, orders, unended

if TYPE_CHECKING:
    import pandas as pd

    from core.console import Console

MARKS = {"better": BETTER, "worse": WORSE, "same": ""}  # of an outcome; another one's is its name
MOST_MISSING = 6  # cells whose command is printed
# Sources of labels that a cell need not name: the paper's judge, and an arm that learns nothing.
USUAL = ("llm", "none")


def build_matrix(
    frame: pd.DataFrame,
    *,
    baseline: str | None = None,
    partial: bool = False,
    every_published: bool = False,
    command: str = "",
) -> tuple[Cells, list[TextTable]]:
    """The cells of all runs, and their table: a row an arm, a column for each benchmark, model and set of tasks.

    Nothing is averaged over columns. The arguments are those of `analysis.tables.build_tables`.
    """
    base = baseline or usual_baseline(frame)
    cells = make_cells(frame, base, partial=partial, command=command)
    partial_cells = {row["cell"] for row in rows_of(cells.table) if unended(row)}
    rows = [row | {"base_partial": row.get("base") in partial_cells} for row in rows_of(cells.table)]
    blocks = {tuple(row[key] for key in BLOCK): None for row in rows}
    by_place = {(row["label"], *(row[key] for key in BLOCK)): row for row in rows}
    arms = {row["label"]: None for row in sorted(rows, key=place_of_arm)}
    models = {model for _, model, _ in blocks}
    title = "Success, %: mean over seeds [95 % interval]" + (f", {models.pop()}" if len(models) == 1 else "")
    text = TextTable(
        title=qualified(title, [row for row in rows if row["n"]], counts=False),
        head=["arm", *_headings(list(blocks), rows)],
        rows=[[arm, *(_cell(by_place.get((arm, *block))) for block in blocks)] for arm in arms],
        notes=[*_legend(rows, base), *cells.notes, *missing(frame)],
    )
    reference = published("main", rows, every_published)
    return cells, [text, *reference]


def print_matrix(folder: Path, console: Console) -> None:
    """Print the table of all runs in a folder, as at the end of a sweep."""
    print_tables(build_matrix, folder, console)


def missing(frame: pd.DataFrame) -> list[str]:
    """The commands for the cells without a finished run, of every experiment of this project that a run belongs to."""
    notes = []
    for _, block in frame.groupby(list(BLOCK), sort=False):
        runs = block.drop_duplicates("run_dir")
        names = {typed(command).get("experiment", "") for command in runs["command"]}
        for name in sorted(filter(tables_of, names)):
            notes += [f"missing: {command}" for command in gaps(name, runs)]
    notes = list(dict.fromkeys(notes))
    more = [f"missing: {len(notes) - MOST_MISSING} cells more"] if len(notes) > MOST_MISSING else []
    return notes[:MOST_MISSING] + more


def _headings(blocks: list[tuple[str, ...]], rows: list[dict[str, Any]]) -> list[str]:
    """Benchmark and part, model where there are several, how much was run; the set of tasks where that tells apart."""
    several = len({model for _, model, _ in blocks}) > 1
    made = []
    for block in blocks:
        inside = [row for row in rows if tuple(row[key] for key in BLOCK) == block]
        n_seeds = max(row["n_seeds"] for row in inside)
        passes = f" x {inside[0]['passes']:g} passes" if inside[0]["passes"] > 1 else ""
        size = f"{inside[0]['n_tasks']} tasks{passes} x {n_seeds} seed{'s' * (n_seeds != 1)}"
        made.append([whole_name(inside[0]), *([_short_model(block[1])] if several else []), size])
    return [
        "\n".join([*head, *([f"#{block[2][:4]}"] if made.count(head) > 1 else [])])
        for head, block in zip(made, blocks, strict=True)
    ]


def _cell(row: dict[str, Any] | None) -> str:
    """Success and interval; difference and n below; then tokens, and what its reader must know."""
    if row is None:
        return "-"
    if not row["n"]:
        return success(row)
    lines = [success(row), f"{_difference(row)}n {row['n']}"]
    lines += [f"{times:.1f} x tokens"] if (times := row.get("times_tokens")) is not None else []
    lines += [f"{seeds(row)} seeds"] if row["seeds_missing"] else []
    lines += [f"{broken(row)} broken"] if row["n_infra_error"] or row["n_broken_attempts"] else []
    lines += [f"{row['n_partial']} unfinished"] if row["n_partial"] else []
    lines += [f"labels {said}"] if (said := labels(row)) not in USUAL else []
    lines += [f"no answer stated in {share(row['n_unstated'], row['n'])}"] if row["n_unstated"] else []
    lines += [f"ended by limit {limits(row)}"] if row["limits"] else []
    lines += [f"{row['n_lessons']} lessons"] if row["n_lessons"] else []
    lines += learned(row)
    lines += [of_banks(n).removeprefix(", ")] if (n := row["n_shared_banks"]) else []
    return "\n".join(lines)


def _difference(row: dict[str, Any]) -> str:
    if row["base"] == row["cell"]:
        return "baseline · "
    if row.get("difference") is None:
        return ""
    shown = HEADINGS["difference"][1](row).partition(" ")[0]
    outcome = comparison_outcome(row)
    return " ".join(filter(None, (shown, MARKS.get(outcome, outcome), "· ")))


def _legend(rows: list[dict[str, Any]], baseline: str) -> list[str]:
    """How to read the table: one line for what stands in every cell, one for what only some have."""
    notes = []
    if compared := sum(row["p_holm"] is not None for row in rows):
        many = f"{compared} comparisons of this table" if compared > 1 else "one comparison of this table"
        notes.append(
            f"Below each rate: the difference to {baseline} in points, on the same tasks and seeds. {BETTER} better, "
            f"{WORSE} worse: for these tasks {orders(rows)}, by a paired test that allows for the bank which the tasks "
            f"of a seed share, p < {LEVEL} after Holm's correction for the {many}, also in the worst case of what "
            f"broke. No mark: no difference shown. {ONE_TABLE}"
        )
    notes += findable(rows)
    outcomes = {comparison_outcome(row) for row in rows if row.get("difference") is not None}
    if "undecided" in outcomes:
        notes.append("Undecided: such a p, but not in the worst case of what broke; the notes below say which tasks.")
    if any(row["n_shared_banks"] for row in rows):
        notes.append("Of this bank alone: seeds began from one given bank, so no test here allows for another one.")
    if any(row.get("difference") is not None and row["p_holm"] is None for row in rows):
        one = "one seed, or seeds that repeat each other"
        notes.append(f"Untested: {one}; another bank may come out otherwise, and no test here allows for that.")
    notes.append("n: episodes that count; broken ones are in no rate.")
    sources = {row["label_source"] for row in rows if row["n"]} - {"none"}
    if "llm" in sources:
        where = " where a cell names no others" if len(sources) > 1 else ""
        notes.append(f"The learner's labels are those of the judging model (llm){where}.")
    if any("%" in labels(row) for row in rows):
        notes.append("% right: how many of the judge's labels agree with the environment's evaluation.")
    if any(row.get("times_tokens") is not None for row in rows):
        notes.append("x tokens: how many times the baseline's a task takes, of all models together.")
    if any(row["n_partial"] for row in rows):
        notes.append("Unfinished: runs that did not end, left out; * where they are counted as far as they go.")
    return notes


def _short_model(model: str) -> str:
    """A model's name without the path to its file or its provider."""
    return model.rstrip("/").rpartition("/")[2] or model
