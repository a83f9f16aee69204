"""A cell against its baseline: the paired difference, of all tasks, of each type, and early and late in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.measure import grid, outcomes, unanswered, unsure
from analysis.stats import late_minus_early, paired, paired_worst, spread
from analysis.verdict import alike

if TYPE_CHECKING:
    import pandas as pd

# The difference and its p in the worst case of what broke; the paired tasks that broke, here and in the baseline.
WORST = ("difference_worst", "p_worst", "n_broke", "n_broke_base")
GAIN = ("gain", "gain_low", "gain_high")  # the difference to the baseline: late in the stream minus early
ANSWERED = tuple(f"answered_{what}" for what in "pairs difference low high least most lenient".split())
OVER_TYPES = ("n_types", "over_types", "over_types_low", "over_types_high")  # the mean of the differences of each type


def against(mine: pd.DataFrame, other: pd.DataFrame, inside: pd.DataFrame) -> dict[str, Any]:
    """The paired difference of a cell (`mine`) to its baseline (`other`): `analysis.stats.paired`, WORST and `luck`.

    inside   those of the cell's episodes that are compared, broken ones too
    """
    *pair, seeds = paired_outcomes(mine, other, inside)
    found, worst = paired(*pair[:2], seeds), paired_worst(*pair, seeds)
    p_worst = None if found["p"] is None else worst["p"]
    n_broke, n_broke_base = (int(each.sum()) for each in pair[2:])
    found |= dict(zip(WORST, (worst["difference"], p_worst, n_broke, n_broke_base), strict=True))
    return found | {"alike": luck(mine, other)}


def luck(mine: pd.DataFrame, other: pd.DataFrame) -> float:
    """The higher `analysis.verdict.alike` of a cell and its baseline, over the seeds that are compared."""
    seeds = distinct_pairs(mine, other)
    return max(alike(cell[cell["seed"].isin(seeds)]) for cell in (mine, other)) if seeds else 0.0


def paired_outcomes(mine: pd.DataFrame, other: pd.DataFrame, inside: pd.DataFrame) -> tuple[Any, ...]:
    """The outcomes of the tasks that a cell and its baseline share, as `analysis.stats.paired_worst` takes them.

    Returns (values, baseline, broke, baseline_broke, seeds): arrays (tasks, seeds), and the seed of each column. Seeds
    that duplicate another one are left out.

    inside   those of the cell's episodes that are compared, broken ones too
    """
    both = [outcomes(cell) for cell in (inside, other)]
    unsures = [outcomes(cell.assign(unsure=unsure(cell)), "unsure") for cell in (inside, other)]
    values, baselines = both[0].align(both[1], join="inner")
    broke = [each.reindex_like(values).eq(True) for each in unsures]
    seeds = values.columns.get_level_values("seed")
    alone = seeds.isin(distinct_pairs(mine, other))
    return *(each.loc[:, alone].to_numpy() for each in (values, baselines, *broke)), seeds[alone]


def among_answers(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    """The difference of a cell (`mine`) to its baseline (`other`), with regard to what was not answered (`unanswered`).

    {ANSWERED: the pairs of task and seed that both answered; their difference and its 95 % interval; the difference of
    all pairs had the baseline solved what it did not answer, had the cell done so, and with success read leniently}
    {} where everything was answered.
    """

    def told(cell: pd.DataFrame, value: float) -> pd.DataFrame:
        return cell.assign(success=cell["success"].mask(unanswered(cell), value))

    def differs(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
        values, baseline, *_, seeds = paired_outcomes(first, second, first)
        return paired(values, baseline, seeds)

    if not any(unanswered(cell).any() for cell in (mine, other)):
        return {}
    both, least, most = (
        differs(told(mine, float("nan")), told(other, float("nan"))),
        differs(mine, told(other, 1.0)),
        differs(told(mine, 1.0), other),
    )
    lenient = differs(*(cell.assign(success=cell["lenient"]) for cell in (mine, other)))
    found = (both["n_pairs"], both["difference"], both["low"], both["high"])
    return dict(zip(ANSWERED, (*found, *(each["difference"] for each in (least, most, lenient))), strict=True))


def distinct_pairs(mine: pd.DataFrame, other: pd.DataFrame) -> list[Any]:
    """The seeds that both cells have, without those in which both duplicate the attempts of another seed."""
    first, second = (cell.drop_duplicates("seed").set_index("seed")["trace"] for cell in (mine, other))
    seeds = first.index.intersection(second.index)
    return list({(first[seed], second[seed]): seed for seed in reversed(seeds)}.values())


def _pairs(mine: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The pairs of episodes of a cell and its baseline, of `distinct_pairs`; `gain` is the difference of success."""
    keys, mine = ["task_id", "visit", "seed"], mine[mine["seed"].isin(distinct_pairs(mine, other))]
    pairs = mine[[*keys, "index", "task_type", "success"]].merge(
        other[[*keys, "success"]], on=keys, suffixes=("", "_base")
    )
    return pairs.assign(gain=pairs["success"] - pairs["success_base"])


def over_types(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    """The paired difference, each type of task counting once, with an interval that allows for which types there are.

    {} where the tasks have one type.
    """
    by_type = grid(_pairs(mine, other), "task_type", "gain").dropna(how="all")
    if len(by_type) < 2:
        return {}
    about = spread(by_type.to_numpy())
    low, high = about.interval if about else (None, None)
    mean = float(by_type.mean().mean())
    return dict(zip(OVER_TYPES, (len(by_type), mean, low and max(low, -1.0), high and min(high, 1.0)), strict=True))


def gain(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, float | None]:
    """How much larger the paired difference is late in the stream than early: the tasks' difficulty cancels out."""
    pairs = _pairs(mine, other)
    found = late_minus_early(grid(pairs, "index", "gain").to_numpy()) if len(pairs) else {}
    return dict(zip(GAIN, found.values(), strict=False))
