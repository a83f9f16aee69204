"""Published claims on types of tasks (from a report that has no data) beside the results of our runs on such tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.cells import Cells
from analysis.published import Published, load
from analysis.text_table import TextTable

if TYPE_CHECKING:
    import pandas as pd

WORDS = {  # {name of a claimed number in published.json: how it is written}
    "solved": "{0:g} of {1} solved",
    "failed_attempts": "{0:g} attempts, all failed",
    "fewer_attempts": "{0:g} % fewer attempts",
}


def beside_claims(cells: Cells, rows: list[dict[str, Any]]) -> TextTable:
    """One row per task type: solved, attempts and steps of each arm, and the claims on this type in published.json.

    rows   the cells of one benchmark, model and set of tasks
    """
    base = rows[0].get("base")
    episodes = {row["cell"]: cells.episodes(row["cell"]).sort_values(["seed", "index"]) for row in rows}
    types = list(dict.fromkeys(kind for found in episodes.values() for kind in _counted(found)["task_type"]))
    claims = [claim for claim in load() if claim.env == rows[0]["env"] and "job" in claim.values]
    arms = list(dict.fromkeys(claim.values["arm"] for claim in claims))
    lines = []
    for kind in types:
        of_kind = {cell: found[found["task_type"] == kind] for cell, found in episodes.items()}
        ours = [_ours(of_kind[row["cell"]], None if row["cell"] == base else of_kind.get(base)) for row in rows]
        lines.append([kind, *ours, *(claimed(claims, arm, kind) for arm in arms)])
    sources = {claim.source: claim.note for claim in claims}
    return TextTable(
        title=f"Beside what is claimed: {rows[0]['env']}, {rows[0]['model']}",
        head=["job", *(row["label"] for row in rows), *(f"claimed\n{arm}" for arm in arms)],
        rows=lines,
        notes=[
            "solved / n: over all seeds. attempts: rounds until the first that is solved, all where none is, and "
            "steps of a round: means over seeds. A round is another variant of the job: no lesson is from itself. "
            "A seed with a broken round has no number of attempts.",
            *(f"claimed: {source}: {note}." for source, note in sources.items()),
        ],
    )


def claimed(claims: list[Published], arm: str, kind: str) -> str:
    """The claimed numbers of an arm on a task type, as text; "-" if there is none."""
    mine = [claim for claim in claims if (claim.values["arm"], claim.values["job"]) == (arm, kind)]
    said = [(name, value, claim.n_tasks) for claim in mine for name, value in claim.values.items() if name in WORDS]
    return "\n".join(WORDS[name].format(value, n_tasks) for name, value, n_tasks in said) or "-"


def _counted(episodes: pd.DataFrame) -> pd.DataFrame:
    return episodes[episodes["success"].notna()]


def _ours(mine: pd.DataFrame, base: pd.DataFrame | None) -> str:
    counted = _counted(mine)
    if not len(counted):
        return "-"
    attempts, others = attempts_of(mine), {} if base is None else attempts_of(base)
    shared = attempts.keys() & others.keys()
    before = sum(others[seed] for seed in shared)
    fewer = round(100 * (1 - sum(attempts[seed] for seed in shared) / before)) if shared else 0
    change = f" ({abs(fewer)} % {'fewer' if fewer > 0 else 'more'})" if fewer else ""
    steps = counted.groupby("seed")["steps"].mean().mean()
    average = f"{sum(attempts.values()) / len(attempts):.1f}" if attempts else "-"
    return f"{counted['success'].sum():.0f} / {len(counted)}\n{average} attempts{change}\n{steps:.1f} steps"


def attempts_of(episodes: pd.DataFrame) -> dict[Any, int]:
    """{seed: number of rounds up to the first solved one; all rounds if none is solved}.

    episodes   those of one task type, in the order of the stream

    A seed with a broken round has no number: that round might have been the first solved one, or one more failure.
    """
    found = {}
    for seed, rounds in episodes.groupby("seed"):
        outcomes = rounds["success"].tolist()
        if rounds["success"].notna().all():
            found[seed] = outcomes.index(1.0) + 1 if 1.0 in outcomes else len(outcomes)
    return found
