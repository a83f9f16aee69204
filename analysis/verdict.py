"""What may be said of a row's paired difference to its baseline: the outcome, of what it holds, and why none is given.

One rule decides every verdict, in tables, matrix and report: Holm's p over the table, which must also hold in the worst
case of what broke. An error of a provider or an engine that comes where an attempt is about to fail makes an arm look
better, and nothing in the records can tell that from bad luck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.stats import holm

if TYPE_CHECKING:
    import pandas as pd

ALIKE = 1 / 3  # share of an arm's attempts that repeat another seed's, above which its seeds share their bank's luck
LEVEL = 0.05  # significance level: a difference counts as one where Holm's p over the table is below it
WORST_OF = (("p_worst_holm", "p_holm"), ("difference_worst", "difference"))
# Of the p of a table: it stands below each one with a comparison.
ONE_TABLE = "p allows neither for arms that this table leaves out nor for looking again while a sweep grows."
VERDICTS = ("better", "worse")
OUTCOME_WORDS = {
    "better": "better",
    "worse": "worse",
    "undecided": "undecided by what broke",
    "same": "no difference shown",
    "untested": "not tested",
    "unfinished": "not finished",
}
UNTESTED = "one seed; another bank may come out otherwise, and no test here allows for that."


def comparison_outcome(row: dict[str, Any], level: float = LEVEL) -> str:
    """The outcome of a row's comparison with its baseline: better | worse | undecided | same | untested | unfinished.

    It is "undecided" if the worst case of what broke (`analysis.stats.paired_worst`) turns the difference round, or
    takes p over the level; "untested" with one seed, or with seeds that are largely one (`alike`); "unfinished" while
    seeds of the row or of its baseline have not ended (`unended`, `base_partial`).
    """
    if row["p_holm"] is None or row.get("alike", 0) > ALIKE:
        return "untested"
    if unended(row) or row.get("base_partial"):
        return "unfinished"
    if row["p_holm"] >= level:
        return "same"
    p_worst, worst = (row.get(name, row[usual]) for name, usual in WORST_OF)  # no worst case where nothing broke
    lost = p_worst >= level or row["difference"] * worst <= 0
    return "undecided" if lost else "better" if row["difference"] > 0 else "worse"


def unended(row: dict[str, Any]) -> bool:
    """Whether some of a row's seeds were begun, or asked for, and have not ended, counted as far as they go or not.

    Those that ended may have ended because of how they went, and testing at every look would find a difference by
    chance.
    """
    return bool(row.get("partial") or row.get("n_partial") or row.get("seeds_missing"))


def correct(rows: list[dict[str, Any]]) -> None:
    """Add to the compared rows of a table Holm's `p_holm`, of p, and `p_worst_holm`, and the number of comparisons."""
    for name in ("p", "p_worst"):
        for row, p in zip(rows, holm([row.get(name) for row in rows]), strict=True):
            row |= {name: row.get(name), f"{name}_holm": p}
    n_compared = sum(row["p"] is not None for row in rows)
    for row in rows:
        row["n_compared"] = n_compared


def reason(row: dict[str, Any]) -> str:
    """Why a difference that looks like one has no verdict, as a clause; "" where that needs no explanation."""
    outcome = comparison_outcome(row)
    if outcome == "undecided":
        worst = f"{_points(row['difference_worst'])} points (Holm's p = {row['p_worst_holm']:.3f})"
        return f"{_had(row)}, the difference would be {worst}"
    if outcome == "same" and row["p"] < LEVEL and row.get("n_compared", 1) > 1:
        return (
            f"the interval leaves out 0, but it and p = {row['p']:.3f} are of this comparison alone; the verdict goes "
            f"by Holm's p = {row['p_holm']:.3f}, as with {row['n_compared']} comparisons one has such a p by chance "
            "more often"
        )
    return ""


def _had(row: dict[str, Any]) -> str:
    """What the worst case supposes, of both arms."""
    ends = ("failed", "been solved") if row["difference"] > 0 else ("been solved", "failed")
    sides = zip(("its own", "the baseline's"), (row["n_broke"], row["n_broke_base"]), ends, strict=True)
    said = [f"{whose} {int(n)} task{'s' * (n != 1)} that broke {end}" for whose, n, end in sides if n]
    return "had " + (" and ".join(said) or "what broke in the table's other arms gone against them")


def over_types(row: dict[str, Any]) -> str:
    """The difference with each type of task counting once, and its interval; "" where there is none."""
    if row.get("over_types_low") is None:
        return ""
    ends = " to ".join(_points(row[f"over_types_{end}"]) for end in ("low", "high"))
    return f"over the {row['n_types']:.0f} types, each counting once, {_points(row['over_types'])} points, 95 % {ends}"


def scope(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    """Of what the comparison of a cell with its baseline speaks, from their runs: {n_orders, n_banks, scope}.

    n_orders   different orders of the tasks over the seeds
    n_banks    banks that were given to more than one seed: what is found may be their luck; 0: each seed has its own
    scope      both in words
    """
    n_orders = mine["task_order"].nunique()
    shared = [n for cell in (mine, other) if (n := shared_banks(cell))]
    orders = "in this order" if n_orders == 1 else f"in {n_orders} orders"
    banks = "" if not shared else of_banks(max(shared))
    return {
        "n_orders": n_orders,
        "n_banks": max(shared, default=0),
        "scope": f"for these tasks {orders}{banks}",
    }


def alike(episodes: pd.DataFrame) -> float:
    """The share of a cell's episodes that are word for word those of another seed; 0 for a cell without lessons.

    Such seeds have in part the same bank, and so the same luck, of which the variance between them tells nothing.
    """
    return float(episodes.duplicated(["said", "visit"], keep=False).mean()) if episodes["n_retrieved"].any() else 0.0


def orders(rows: list[dict[str, Any]]) -> str:
    """The orders of tasks that the compared rows of a table speak of, in words."""
    known = {row["n_orders"] for row in rows if row.get("n_orders")}
    if known == {1}:
        return "in this order"
    return (
        "in the orders of these seeds" if 1 not in known else "in these orders (one, where the tasks were not shuffled)"
    )


def shared_banks(episodes: pd.DataFrame) -> int:
    """How many banks were given to the runs of a cell, if some of its seeds share one; else 0."""
    runs = episodes.drop_duplicates("run_dir")
    n_given, n_seeds = runs["given_bank"].nunique(), runs["seed"].nunique()
    return n_given if n_given < n_seeds else 0


def of_banks(n: int) -> str:
    """The words for a result of given banks that seeds share."""
    return ", of this bank alone" if n == 1 else f", of these {n} banks alone"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"
