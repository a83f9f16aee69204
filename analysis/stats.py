"""Intervals, paired tests and the estimators of test-time scaling: numbers in, numbers out, no file and no run.

Two sources of variance are allowed for: the tasks of one seed share a bank, which may be a lucky one, and an arm may be
good at some tasks in every seed. `spread` estimates both. docs/tables.md says what a reader may conclude.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isnan, lcm, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from core.proportions import wilson

EXTRA = np.array([[0.0], [0.0], [1.0], [1.0]])  # tasks added to a rate: two failures, two successes
# Guesses of a study that has not begun: success, sd of the banks' true differences, likeness of two arms on one task.
GUESSES = {"rate": 0.5, "sd": 0.05, "alike": 0.3}
FINEST = 1000  # steps of a graded score in the permutation test
NOTHING = 1e-9  # a smaller standard error is rounding: it counts as 0


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean over tasks and seeds, with its standard error and degrees of freedom."""

    mean: float
    error: float
    df: float

    def quantile(self, level: float = 0.05) -> float:
        """The quantile of Student's t that is exceeded, on either side, with probability `level`."""
        return -students_quantile(self.df, level / 2)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return self.interval_at(0.05)

    def interval_at(self, level: float) -> tuple[float, float]:
        """The interval of confidence 1 - level: it leaves out 0 where p < level."""
        half = self.quantile(level) * self.error
        return self.mean - half, self.mean + half

    @property
    def p(self) -> float:
        """Two-sided p of Student's t-test (Satterthwaite degrees of freedom) of the hypothesis that the mean is 0."""
        return 2 * students_tail(self.df, -abs(self.mean) / self.error)


def students_tail(df: float, value: float) -> float:
    """The probability that Student's t is at most `value`, which is at most 0.

    mpmath has it too: a table needs no scipy (118 MB), simulations do for their speed.
    """
    try:
        from scipy.special import stdtr
    except ModuleNotFoundError:
        from mpmath import betainc

        return float(betainc(df / 2, 0.5, 0, df / (df + value**2), regularized=True)) / 2
    return float(stdtr(df, value))


def students_quantile(df: float, tail: float) -> float:
    """The value, below 0, that Student's t is at most with probability `tail`. Found without scipy as in the above."""
    try:
        from scipy.special import stdtrit
    except ModuleNotFoundError:
        from mpmath import findroot

        start = NormalDist().inv_cdf(tail)
        bracket = (start * 1000 ** (1 / df), start)  # a t of fewer degrees of freedom lies further out
        return float(findroot(lambda value: students_tail(df, float(value)) - tail, bracket, solver="anderson"))
    return float(stdtrit(df, tail))


def spread(first: np.ndarray, *others: np.ndarray) -> Spread | None:
    """The mean of the first sample minus the means of the others, with its standard error; None if nothing varies.

    Each sample is (tasks, seeds), NaN where no episode counts; the samples share the seeds and no task. The mean is
    taken within each seed, then over the seeds. The variance is the sum of two components: between seeds, and between
    tasks beyond what chance alone gives (two-way analysis of variance); with one seed, only the second can be
    estimated. Degrees of freedom: Satterthwaite's (1946), at least those of the component with the fewest.
    """
    samples = [_columns(sample) for sample in (first, *others)]
    seeds = np.logical_and.reduce([~np.isnan(sample).all(axis=0) for sample in samples])
    samples = [_columns(sample[:, seeds]) for sample in samples]
    n_seeds = int(seeds.sum())
    if not n_seeds or not all(len(sample) for sample in samples):
        return None
    means = np.array([np.nanmean(sample, axis=0) for sample in samples])
    differences = means[0] - means[1:].sum(axis=0)
    between = [(float(differences.var(ddof=1)) / n_seeds, n_seeds - 1)] if n_seeds > 1 else []
    tasks = [_tasks_and_chance(sample) for sample in samples if len(sample) > 1]
    beyond = [part for one, chance in tasks if not between or one[0] > -chance[0] for part in (one, chance)]
    alike = bool(between) and between[0][0] <= NOTHING**2
    for parts in ([] if alike else between + beyond, [one for one, _ in tasks]):  # the second where seeds are alike
        variance = sum(part for part, _ in parts)
        if variance > NOTHING**2:
            df = max(variance**2 / sum(part**2 / many for part, many in parts), min(many for _, many in parts))
            return Spread(mean=float(differences.mean()), error=sqrt(variance), df=df)
    return None


def _tasks_and_chance(sample: np.ndarray) -> tuple[tuple[float, int], tuple[float, int]]:
    """The variance of a mean over tasks, and the negative of the part that chance alone gives, each (variance, df)."""
    n_tasks, n_seeds = sample.shape
    known = ~np.isnan(sample)
    weights = known / known.sum(axis=0) / n_seeds
    centred = np.where(known, sample - np.nanmean(sample, axis=0), 0.0)
    left = np.where(known, centred - (centred.sum(axis=1) / known.sum(axis=1))[:, None], 0.0)
    tasks = float(((weights * centred).sum(axis=1) ** 2).sum()) * n_tasks / (n_tasks - 1)
    within = (n_tasks - 1) * (n_seeds - 1)
    chance = float(((weights * left) ** 2).sum()) * n_tasks * n_seeds / max(within, 1)
    return (tasks, n_tasks - 1), (-chance, max(within, 1))  # of one seed chance is 0


def rate_interval(values: np.ndarray) -> dict[str, Any]:
    """The mean rate and its 95 % interval. values: (tasks, seeds) in [0, 1], NaN where an episode does not count.

    The mean is taken within each seed, then over the seeds; sd is over the seeds. The interval is Wilson's (1927) for
    the effective sample size, the number of independent episodes with the variance of `spread`, and with the quantile
    of `spread`. That variance is taken with two successes and two failures added, so that rates near 0 and 1 have one
    too (Agresti, Coull 1998).
    """
    values = _seeds(_columns(values))
    per_seed = seed_means(values)
    if not per_seed.size:
        return dict.fromkeys(("mean", "sd", "low", "high"))
    mean, n, quantile = float(per_seed.mean()), float((~np.isnan(values)).sum()), 1.959964
    if per_seed.size > 1 or not np.isin(values, (0.0, 1.0)).all():
        padded = np.vstack([values, np.repeat(EXTRA, values.shape[1], axis=1)])
        about = spread(padded)
        alone = about.mean * (1 - about.mean) / (~np.isnan(padded)).sum()  # if every episode were independent
        n, quantile = n * alone / about.error**2, about.quantile()
    low, high = wilson(mean * n, n, quantile)
    return {"mean": mean, "sd": float(per_seed.std(ddof=1)) if per_seed.size > 1 else None, "low": low, "high": high}


def paired(values: np.ndarray, baseline: np.ndarray, seeds: Sequence[Any] | None = None) -> dict[str, Any]:
    """The paired difference of success on the same tasks (rows) and seeds (columns); NaN in either drops the pair.

    seeds   the seed of each column, if a seed has several columns: one for each pass over the tasks

    p and the interval are those of `spread` (a t-test), which allows for the bank that the tasks of a seed share. With
    one seed there is no p, and the interval allows for the variance between tasks only. If all pairs differ by the same
    amount, two tasks won and two lost are added, as for a rate. p_tasks is from the exact permutation test that swaps
    the two arms task by task, all of a task's columns together (for one column: McNemar's test); it holds for these
    banks only and says nothing of other seeds.
    """
    delta = _columns(np.asarray(values, float) - np.asarray(baseline, float))
    known = ~np.isnan(delta)
    found: dict[str, Any] = {"n_pairs": int(known.sum()), "won": int((delta > 0).sum()), "lost": int((delta < 0).sum())}
    by_seed = paired_by_seed(values, baseline, seeds)
    means = seed_means(by_seed)
    found["n_paired_seeds"] = len(means)
    if not len(means):
        return found | dict.fromkeys(("difference", "sd_seeds", "low", "high", "p", "p_tasks"))
    about = paired_spread(by_seed)
    low, high = about.interval
    return found | {
        "difference": float(means.mean()),
        "sd_seeds": float(means.std(ddof=1)) if len(means) > 1 else None,
        "low": max(low, -1.0),
        "high": min(high, 1.0),
        "p": about.p if len(means) > 1 else None,
        "p_tasks": sign_flip(np.nansum(delta, axis=1)),
    }


def paired_by_seed(values: np.ndarray, baseline: np.ndarray, seeds: Sequence[Any] | None = None) -> np.ndarray:
    """The differences of `paired` as (tasks, seeds), without the seeds that have no pair, averaged within each seed."""
    delta = _columns(np.asarray(values, float) - np.asarray(baseline, float))
    return _seeds(_by_seed(delta, np.asarray(range(delta.shape[1]) if seeds is None else seeds)))


def paired_spread(by_seed: np.ndarray) -> Spread:
    """The spread behind p and interval of `paired`, of at least one seed. by_seed: from `paired_by_seed`."""
    return spread(by_seed) or spread(np.vstack([by_seed, np.repeat(EXTRA * 2 - 1, by_seed.shape[1], axis=1)]))


def paired_worst(
    values: np.ndarray,
    baseline: np.ndarray,
    broke: np.ndarray,
    baseline_broke: np.ndarray,
    seeds: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """`paired`, had all that broke gone against the difference: failed in the better arm, solved in the other one.

    broke, baseline_broke   bool, in the shape of the values: which outcomes are not known for what they would have been
    """
    found = paired(values, baseline, seeds)
    if found["difference"] is None or not (np.any(broke) or np.any(baseline_broke)):
        return found
    return paired(*worst_case(values, baseline, broke, baseline_broke, better=found["difference"] > 0), seeds)


def worst_case(
    values: np.ndarray, baseline: np.ndarray, broke: np.ndarray, baseline_broke: np.ndarray, *, better: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Both arms, had all that broke failed in the better one and been solved in the other one. better: the first is."""
    return np.where(broke, float(not better), values), np.where(baseline_broke, float(better), baseline)


def detectable(
    *, n_tasks: int, n_seeds: int, rate: float, sd: float, alike: float, level: float = 0.05, power: float = 0.8
) -> float:
    """The minimum detectable difference: the smallest that `paired` finds significant with probability `power`; <= 1.

    rate    success rate of the baseline
    sd      standard deviation of the true differences between seeds
    alike   correlation of the two arms' outcomes on one task
    level   significance level
    """
    error = sqrt((sd**2 + 2 * rate * (1 - rate) * (1 - alike) / n_tasks) / n_seeds)
    return least_difference(error, n_seeds - 1, level, power)


def least_difference(error: float, df: float, level: float = 0.05, power: float = 0.8) -> float:
    """The smallest difference that a t-test with this standard error finds with probability `power`; at most 1."""
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if not error:
        return 0.0
    reached = t.ppf(1 - level / 2, df)

    def lacking(difference: float) -> float:
        return power - nct.sf(reached, df, difference / error)

    return float(brentq(lacking, 0.0, 1.0)) if lacking(1.0) < 0 else 1.0


def _by_seed(delta: np.ndarray, names: np.ndarray) -> np.ndarray:
    """The differences as (tasks, seeds), averaged over the columns of each seed. names: the seed of each column."""
    columns = [delta[:, names == name] for name in dict.fromkeys(names.tolist())] or [delta]
    counts = [(~np.isnan(column)).sum(axis=1) for column in columns]
    sums = [np.nansum(column, axis=1) for column in columns]
    with np.errstate(invalid="ignore"):
        return np.column_stack([total / count for total, count in zip(sums, counts, strict=True)])


def sign_flip(differences: Iterable[float]) -> float:
    """Two-sided exact p of a sum of differences, under random signs (Fisher's permutation test, 1935).

    All sign patterns are counted, by convolution. With differences of +1 and -1 this is McNemar's exact test. Graded
    scores are taken in steps of their common denominator, of at most FINEST of 1.
    """
    values = np.fromiter(differences, float)
    graded = values[values != np.rint(values)]
    unit = lcm(*(Fraction(value).limit_denominator(FINEST).denominator for value in graded.tolist()))
    whole = np.rint(values * min(unit, FINEST)).astype(int).tolist()
    reached = np.ones(1)  # the chance of each sum, from the lowest to the highest
    for step in (abs(difference) for difference in whole if difference):
        coin = np.zeros(2 * step + 1)
        coin[[0, -1]] = 0.5
        reached = np.convolve(reached, coin)
    sums = np.arange(len(reached)) - len(reached) // 2
    return float(min(1.0, reached[np.abs(sums) >= abs(sum(whole))].sum()))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values (1979), in the order given; None stays None and is not counted as a comparison."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None and not isnan(p))
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        adjusted[place] = least
    return adjusted


def confusion(pairs: Iterable[tuple[bool, bool]]) -> dict[str, Any]:
    """Counts of (judged, true) pairs, agreement, Cohen's kappa (1960), precision and recall; None if undefined."""
    pairs = list(pairs)
    tp, fp = pairs.count((True, True)), pairs.count((True, False))
    fn, tn = pairs.count((False, True)), pairs.count((False, False))
    n = len(pairs)
    counts = {"n": n, "tp": tp, "fp": fp, "fn": fn, "tn": tn}
    if not n:
        return counts | dict.fromkeys(("agreement", "kappa", "precision", "recall"))
    agreement = (tp + tn) / n
    chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
    return counts | {
        "agreement": agreement,
        "kappa": (agreement - chance) / (1 - chance) if chance < 1 else None,
        "precision": tp / (tp + fp) if tp + fp else None,
        "recall": tp / (tp + fn) if tp + fn else None,
    }


def calibration(confidences: Sequence[float], correct: Sequence[bool], bins: int = 10) -> dict[str, Any]:
    """Calibration of confidences as probabilities: {n, brier, ece, bins}; brier and ece are None if n is 0.

    confidences   in [0, 1]: the probability that a label is right, as in a verdict. Where a judge states the
                  probability p of a success, that of the label "failure" is 1 - p.
    correct       whether each label is right
    brier         the mean squared difference of confidence and outcome (Brier 1950): 0 is best; a constant confidence
                  of 0.5 has 0.25
    ece           the expected calibration error (Naeini et al. 2015): the mean distance between confidence and share of
                  right labels, over bins of equal width, weighted by how many are in each
    bins          number of bins; in the result the non-empty ones: {low, high, n, confidence, correct}, the last two
                  means; a bin includes its low end, the last one also 1
    """
    pairs = list(zip(confidences, map(float, correct), strict=True))
    if not pairs:
        return {"n": 0, "brier": None, "ece": None, "bins": []}
    groups: dict[int, list[tuple[float, float]]] = {}
    for pair in pairs:  # rounded, so that 0.7 * 10 does not miss its bin by its last bit
        groups.setdefault(min(int(round(pair[0] * bins, 9)), bins - 1), []).append(pair)
    made = []
    for place, group in sorted(groups.items()):
        confidence, right = np.mean(group, axis=0).tolist()
        ends = {"low": place / bins, "high": (place + 1) / bins}
        made.append({**ends, "n": len(group), "confidence": confidence, "correct": right})
    return {
        "n": len(pairs),
        "brier": float(np.mean([(sure - right) ** 2 for sure, right in pairs])),
        "ece": sum(each["n"] * abs(each["confidence"] - each["correct"]) for each in made) / len(pairs),
        "bins": made,
    }


def cumulative(values: np.ndarray) -> np.ndarray:
    """The success rate up to each task (row) of the stream; a NaN (no episode that counts) leaves it as it was."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nancumsum(values, axis=0) / np.cumsum(~np.isnan(values), axis=0)


def late_minus_early(values: np.ndarray) -> dict[str, float | None]:
    """The rate on the second half of the stream minus that on the first, with an interval: does it learn?

    values: (places of the stream, seeds). The halves hold different tasks, so their difficulty counts too: compare the
    result with the baseline's, or pass the differences to the baseline as values.
    """
    values = _columns(values)
    half = len(values) // 2
    early, late = values[:half], values[len(values) - half :]
    if not half or np.isnan(early).all() or np.isnan(late).all():
        return {"difference": None, "low": None, "high": None}
    about = spread(late, early)
    low, high = about.interval if about else (None, None)
    return {"difference": float(seed_means(late).mean() - seed_means(early).mean()), "low": low, "high": high}


def _columns(values: np.ndarray) -> np.ndarray:
    """The values as (tasks, seeds), without tasks that are NaN in every seed."""
    values = np.asarray(values, float)
    values = values[:, None] if values.ndim == 1 else values
    return values[~np.isnan(values).all(axis=1)]


def _seeds(values: np.ndarray) -> np.ndarray:
    """The values without the seeds (columns) that are NaN in every task."""
    return values[:, ~np.isnan(values).all(axis=0)]


def seed_means(values: np.ndarray) -> np.ndarray:
    """The mean of each seed (column) that has any value."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    return np.where(known, values, 0.0).sum(axis=0)[counts > 0] / counts[counts > 0]
