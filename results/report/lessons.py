"""The page's section on what became of the lessons: a funnel an arm, and its numbers."""

from __future__ import annotations

from typing import Any

from core.run.display import percent
from results.cells import Cells
from results.funnel import NO_EFFECT, STEPS_MEAN, funnel_of, texts_of
from results.kinds import STEPS, steps_above
from results.report import words
from results.report.figures import CELLS
from results.report.links import Addresses
from results.studies import Study


def funnel_part(cells: Cells, study: Study, several: bool, addresses: Addresses) -> dict[str, Any] | None:
    """What the page shows of a study's funnels; None where no task was shown a lesson.

    several   the report has more studies than this one
    """
    mine = {cell["cell"]: cell for cell in study.cells}
    rows = [row for row in funnel_of(cells) if row["cell"] in mine]
    if not rows:
        return None
    base = next((cell["label"] for cell in study.cells if cell["baseline"]), "")
    return {
        "title": f"{study.env}, {study.model}" if several else "",
        "arms": [
            _funnel_of_arm(cell, [row for row in rows if row["cell"] == cell["cell"]], base, addresses)
            for cell in study.cells
            if any(row["cell"] == cell["cell"] for row in rows)
        ],
        "base": base,
        "notes": [STEPS_MEAN, NO_EFFECT] if any(row["step"] == "followed" for row in rows) else [STEPS_MEAN],
        "table": texts_of(rows, base)[0],
    }


def _funnel_of_arm(cell: dict[str, Any], rows: list[dict[str, Any]], base: str, addresses: Addresses) -> dict[str, Any]:
    """A funnel: each step's tasks as a share of all, and of these the solved ones; lengths are in percent."""
    total = rows[0]["n"]
    return {
        "label": cell["label"],
        "number": cell["colour"] % CELLS,
        "steps": [
            {
                "name": STEPS[row["step"]][0],
                "depth": len(steps_above(row["step"])),
                "n": row["n"],
                "rate": _percent(row["success"]),
                "without": _percent(row.get("without")),
                "href": addresses.at_step(row["cell"], row["step"]),
                "share": f"{100 * row['n'] / total:.2f}",
                "solved": f"{100 * row['n_success'] / total:.2f}",
            }
            for row in rows
        ],
        "said": words.lessons(rows, base),
    }


def _percent(value: float | None) -> str:
    return percent(value, "").replace(" %", "\u00a0%")  # no line begins with it
