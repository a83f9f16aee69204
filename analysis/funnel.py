"""The funnel of learning from memory: shown a lesson -> of the right kind -> followed -> solved; success at each step.

Whether a task is shown a lesson at its start, and of which kind, is settled before it is tried: there the difference
to the same tasks without memory says whether such lessons helped. Whether it followed one is known only afterwards, and
an agent that would have done the same by itself counts as following: there a difference is no effect, and has no p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.cells import BLOCK, Cells, make_cells, rows_of
from analysis.columns import HEADINGS, number
from analysis.funnel_steps import STEPS, at_steps, steps_above
from analysis.measure import grid
from analysis.pairing import against
from analysis.stats import rate_interval
from analysis.tables import usual_baseline
from analysis.text_table import TextTable
from analysis.verdict import ONE_TABLE, correct, unended
from core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

ALWAYS = ("all", "shown", "relevant")  # steps that have a row even without a task
TESTED = ("relevant", "irrelevant")  # steps with a p: did such lessons help, or hurt? (The main table tests all tasks.)
NOT_SHOWN = "a lesson that was retrieved and found no room in the prompt was not shown"
STEPS_MEAN = (
    "right kind: the lesson came from a task of the same type, or is filed under it. followed: the answer did what one "
    "of these lessons says, by a rule of the environment."
)
NO_EFFECT = (
    "An answer that would have been the same without the lesson counts as followed too. So what followed and what did "
    "not differ in more than the lesson: there is no p, and the difference there is not what memory is worth."
)


def build_funnel(
    frame: pd.DataFrame,
    *,
    baseline: str | None = None,
    partial: bool = False,
    every_published: bool = False,
    command: str = "",
) -> tuple[Cells, list[TextTable]]:
    """(cells, whose table has a row for each step of each arm; a text for each benchmark, model and set of tasks).

    The arguments are those of `analysis.tables.build_tables`. Raises UserError where no task was shown a lesson.
    """
    import pandas as pd

    base = baseline or usual_baseline(frame)
    cells = make_cells(frame, base, partial=partial, command=command)
    rows = funnel_of(cells)
    if not rows:
        raise UserError("no task of these runs that counts was shown a lesson at its start, so there is no funnel.")
    texts = texts_of(rows, base)
    texts[-1].notes.extend(cells.notes)
    return replace(cells, table=pd.DataFrame(rows)), texts


def funnel_of(cells: Cells) -> list[dict[str, Any]]:
    """A row for each step of each cell that showed lessons: counts, success, and the difference to its baseline.

    `of` are the tasks of the step that it is a part of; `without` is the baseline's success on the same tasks and
    seeds; p_holm is over all p of these rows, p_worst_holm over all p_worst.
    """
    table = {row["cell"]: row for row in rows_of(cells.table)}
    rows = [found for row in table.values() if row["n"] and row["tasks_shown"] for found in _steps(cells, row, table)]
    correct(rows)
    return rows


def _steps(cells: Cells, row: dict[str, Any], table: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    mine = cells.episodes(row["cell"])
    base = table.get(row["base"]) if row["base"] != row["cell"] else None
    other = None if base is None else cells.episodes(base["cell"])
    by_step, every = at_steps(mine[mine["success"].notna()]), at_steps(mine)
    about = {key: row[key] for key in ("cell", "base", "label", *BLOCK, "n_tasks", "partial", "scope")}
    about |= {"n_partial": 0, "going_on": unended(row) or bool(base and unended(base))}
    for step, inside in by_step.items():
        if not len(inside) and step not in ALWAYS:
            continue
        n_of, n_success = len(by_step[STEPS[step][1] or step]), int(inside["success"].sum())
        counts = {"n": len(inside), "of": n_of, "n_success": n_success}
        rate = rate_interval(grid(inside).to_numpy()) if len(inside) else {}
        compared = _compared(mine, other, every[step]) if other is not None and len(inside) else {}
        if step not in TESTED or about["going_on"]:
            compared |= {"p": None, "p_worst": None}
        yield about | {"step": step, **counts, "success": rate.pop("mean", None), **rate, **compared}


def _compared(mine: pd.DataFrame, other: pd.DataFrame, inside: pd.DataFrame) -> dict[str, Any]:
    keys = ["task_id", "visit", "seed"]
    pairs = inside[inside["success"].notna()][keys].merge(other[[*keys, "success"]], on=keys).dropna()
    if not len(pairs):
        return {}
    effect = against(mine, other, inside)
    ends = {f"difference_{end}": effect.pop(end) for end in ("low", "high")}
    return {"without": rate_interval(grid(pairs).to_numpy())["mean"], **effect, **ends}


def texts_of(rows: list[dict[str, Any]], base: str) -> list[TextTable]:
    """The rows as tables, one a block."""
    blocks: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        blocks.setdefault(tuple(row[key] for key in BLOCK), []).append(row)
    return [
        TextTable(
            title=f"From lesson to result: {block[0]}, {block[1]}, {inside[0]['n_tasks']} tasks",
            head=["tasks", "n", "solved", *(heading for heading, _ in COLUMNS)],
            rows=[list(map(str, _line(row))) for row in inside],
            notes=notes_of(inside, base),
        )
        for block, inside in blocks.items()
    ]


COLUMNS = (
    HEADINGS["success"],
    ("baseline %", number("without", 1, 100)),
    *(HEADINGS[name] for name in ("difference", "n_pairs", "p", "p_holm")),
)


def _line(row: dict[str, Any]) -> list[Any]:
    count = f"{row['n']}" if row["step"] == "all" else f"{row['n']} of {row['of']}"
    name = row["label"] if row["step"] == "all" else "· " * len(steps_above(row["step"])) + STEPS[row["step"]][0]
    return [name, count, row["n_success"], *(show(row) for _, show in COLUMNS)]


def notes_of(rows: list[dict[str, Any]], base: str) -> list[str]:
    """How to read the rows of one block."""
    steps = {row["step"] for row in rows}
    notes = [f"n: episodes that count, of those at the step before; {NOT_SHOWN}. {STEPS_MEAN}"]
    if steps & {"followed", "not_followed"}:
        notes.append(NO_EFFECT)
    elif "followed_unknown" in steps:
        notes.append(
            "Whether a lesson was followed is not known: the environment has no rule for it or none that fits."
        )
    if any(row.get("difference") is not None for row in rows):
        notes.append(
            f"baseline: {base} on the same tasks and seeds; difference: to it, in points; p allows for the bank "
            "that the tasks of a seed share (none with one seed); only lessons of the right kind, and of another, are "
            f"tested; Holm: over this table. {ONE_TABLE}"
        )
    if any(row["partial"] for row in rows):
        notes.append("* holds runs that did not finish.")
    if any(row["going_on"] for row in rows):
        notes.append("Nothing is tested while runs have not finished, or seeds of the sweep are missing.")
    return notes
