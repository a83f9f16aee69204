"""Intervals, paired tests and the estimators of test-time scaling: numbers in, numbers out, no file and no run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isnan
from typing import Any

import numpy as np

from core.run.metrics import wilson

DRAWS = 2000  # of a bootstrap


def rate_interval(values: np.ndarray) -> dict[str, Any]:
    """The mean and its 95 % interval. values: (tasks, seeds), NaN where an episode does not count.

    The mean is taken within each seed, then over the seeds; sd is over the seeds. One seed of 0 and 1: Wilson.
    Otherwise a bootstrap that draws tasks with all their seeds, since outcomes of one task are alike over seeds.
    Where all tasks are alike, or there is one, a bootstrap says nothing: Wilson's interval for that many tasks.
    """
    values = _columns(values)
    per_seed = _means(values)
    if not per_seed.size:
        return dict.fromkeys(("mean", "sd", "low", "high"))
    mean, n = float(per_seed.mean()), len(values)
    if values.shape[1] == 1 and np.isin(values, (0.0, 1.0)).all():
        low, high = wilson(round(mean * n), n)
    else:
        low, high = bootstrap([values])
        low, high = (low, high) if low is not None else wilson(mean * n, n)
    return {"mean": mean, "sd": float(per_seed.std(ddof=1)) if per_seed.size > 1 else None, "low": low, "high": high}


def bootstrap(
    samples: Sequence[np.ndarray], *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float] | tuple[None, None]:
    """The percentile interval of the first sample's mean less the others', each drawn anew by tasks (rows).

    Each sample is (tasks, seeds) with NaN where nothing counts; as `rate_interval`, within seeds first.
    (None, None) where the rows of each sample are alike: every draw is the same, which is no certainty.
    """
    total = np.zeros(draws)
    for place, sample in enumerate(map(_columns, samples)):
        known = ~np.isnan(sample)
        weights = _draws(len(sample), draws, seed + place)
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = (weights @ np.where(known, sample, 0.0)) / (weights @ known)
        total += np.nanmean(rates, axis=1) * (1 if place == 0 else -1)
    low, high = np.nanpercentile(total, (2.5, 97.5))
    return (None, None) if np.isclose(low, high, rtol=0, atol=1e-12) else (float(low), float(high))


def paired(values: np.ndarray, baseline: np.ndarray, seeds: Sequence[Any] | None = None) -> dict[str, Any]:
    """A difference of success on the same tasks (rows) and seeds (columns): NaN in either one drops the pair.

    seeds   the seed of each column, where a seed has several: one for each pass over the tasks
    p: for one column McNemar's exact test; for several the exact permutation test that swaps the two arms task by task,
    all of a task together. p_seeds swaps seed by seed: it alone allows for tasks of one stream that depend on each
    other, and it cannot be under 2 / 2 ** n_paired_seeds. The interval is None where all tasks differ by the same.
    """
    delta = _columns(np.asarray(values, float) - np.asarray(baseline, float))
    known = ~np.isnan(delta)
    found: dict[str, Any] = {"n_pairs": int(known.sum()), "won": int((delta > 0).sum()), "lost": int((delta < 0).sum())}
    names = np.asarray(range(delta.shape[1]) if seeds is None else seeds)
    columns = [names == name for name in dict.fromkeys(names.tolist())]
    by_seed = [np.nansum(delta[:, mine]) for mine in columns if known[:, mine].any()]
    found["n_paired_seeds"] = len(by_seed)
    if not by_seed:
        return found | dict.fromkeys(("difference", "low", "high", "p", "p_seeds"))
    low, high = bootstrap([delta])
    return found | {
        "difference": float(_means(delta).mean()),
        "low": low,
        "high": high,
        "p": sign_flip(np.nansum(delta, axis=1)),
        "p_seeds": sign_flip(by_seed) if len(by_seed) > 1 else None,
    }


def sign_flip(differences: Iterable[float]) -> float:
    """Two-sided exact p of a sum of whole-numbered differences, if the sign of each were a coin's (Fisher 1935).

    All sign patterns are counted, by convolution. With differences of +1 and -1 this is McNemar's exact test.
    """
    whole = [round(difference) for difference in differences]
    reached = np.ones(1)  # the chance of each sum, from the lowest to the highest
    for step in (abs(difference) for difference in whole if difference):
        coin = np.zeros(2 * step + 1)
        coin[[0, -1]] = 0.5
        reached = np.convolve(reached, coin)
    sums = np.arange(len(reached)) - len(reached) // 2
    return float(min(1.0, reached[np.abs(sums) >= abs(sum(whole))].sum()))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values (1979), in the order given; None stays None and counts for nothing."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None and not isnan(p))
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        adjusted[place] = least
    return adjusted


def confusion(pairs: Iterable[tuple[bool, bool]]) -> dict[str, Any]:
    """Judged against true: counts, agreement, Cohen's kappa (1960); None where undefined."""
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


def cumulative(values: np.ndarray) -> np.ndarray:
    """The success rate up to each task (row) of the stream; NaN (what does not count) carries the rate on."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nancumsum(values, axis=0) / np.cumsum(~np.isnan(values), axis=0)


def late_minus_early(values: np.ndarray) -> dict[str, float | None]:
    """The rate on the second half of the stream less that on the first, with an interval: does it learn?

    values: (places of the stream, seeds). The halves hold other tasks, so hardness counts too: set it against the
    baseline's, or give this the differences to the baseline.
    """
    values = _columns(values)
    half = len(values) // 2
    early, late = values[:half], values[len(values) - half :]
    if not half or np.isnan(early).all() or np.isnan(late).all():
        return dict.fromkeys(("difference", "low", "high"))
    low, high = bootstrap([late, early])
    return {"difference": float(_means(late).mean() - _means(early).mean()), "low": low, "high": high}


@lru_cache(maxsize=8)
def _draws(n: int, draws: int, seed: int) -> np.ndarray:
    """(draws, n): how often each of n tasks was drawn. The same for the same numbers."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(float)


def _columns(values: np.ndarray) -> np.ndarray:
    """(tasks, seeds) without the tasks of which nothing counts."""
    values = np.asarray(values, float)
    values = values[:, None] if values.ndim == 1 else values
    return values[~np.isnan(values).all(axis=1)]


def _means(values: np.ndarray) -> np.ndarray:
    """The mean of each seed that has any value."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    return np.where(known, values, 0.0).sum(axis=0)[counts > 0] / counts[counts > 0]
