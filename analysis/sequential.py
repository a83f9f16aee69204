"""A study that grows seed by seed and looks after each, at a level that counts the looks: numbers in, numbers out.

A group-sequential test of the tables' own statistic (`analysis.stats.paired`). The level is spent over the seeds as Lan
and DeMets (1983) do, with their spending function in the manner of O'Brien and Fleming (1979): early looks ask for very
much, the last one for nearly what a single test asks for. The boundaries are found by simulation, because Student's t
of three or four seeds has far heavier tails than the normal distribution of the published boundaries, and heavier ones
still where most banks are a little worse than nothing and a few much better (or the other way round). p and the
interval are the repeated ones of Jennison and Turnbull (2000, chapter 9): they hold wherever a study stops, also if it
goes on past a boundary, or stops for another reason. docs/statistics.md says how well they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from analysis.stats import Spread, paired_by_seed, paired_spread, seed_means, worst_case
from analysis.verdict import LEVEL, VERDICTS, comparison_outcome
from core.errors import UserError

DRAWS = 2_000_000  # simulated seed means of the boundaries: 200 000 studies of 10 seeds
FEW = 100  # where fewer simulated studies cross a boundary, it is not taken from them alone
FORECASTS = 2000  # simulated continuations of a study, for its conditional power
LUCK = 0.91  # share of skewed luck in the variance of a seed's mean: as of 500 tasks and banks of sd 10 points
STUDIES = 20_000  # simulated studies of each true difference, for the detectable one
FUTILE = 0.10  # conditional power below which more seeds will show neither the planned effect nor the one seen
SEED = 46  # of the simulations: the same design has the same boundaries everywhere


@dataclass(frozen=True, kw_only=True)
class Interim:
    """What a study shows after n_seeds seeds; None where there is nothing to tell, or no test yet.

    n_seeds            seeds with at least one pair
    difference         mean paired difference of success (`analysis.stats.paired`), and in the worst case of what broke
    nominal_p          p of `paired` at this look, as if there were no other
    p                  the repeated p: the smallest overall level at which this look crosses its boundary; and p_worst
    low, high          the repeated confidence interval, of confidence 1 - level: it leaves out 0 where p < level
    conditional_power  the chance of crossing a boundary at a later look, if the true difference is the planned effect,
                       or what was seen so far where that is larger
    worst_seed         the seed's difference that is furthest from the mean's side: of a mean above 0 the lowest one
    verdict            better | worse | undecided | same | untested (`analysis.verdict.comparison_outcome`)
    outcome            clear (better or worse) | futile | most (no seeds are left) | go on
    """

    n_seeds: int
    difference: float | None = None
    difference_worst: float | None = None
    nominal_p: float | None = None
    p: float | None = None
    p_worst: float | None = None
    low: float | None = None
    high: float | None = None
    conditional_power: float | None = None
    worst_seed: float | None = None
    verdict: str
    outcome: str


@dataclass(frozen=True)
class Design:
    """A study of two arms that grows from `first` to `most` seeds, with a look after each.

    first   seeds at the first look; at least 2
    most    seeds at the last look
    level   the chance that a study without a difference is ever called better or worse, over all looks
    effect  the planned difference of success rates, in (0, 1]: what "more seeds will not show it" speaks of, unless a
            larger one was seen
    skewed  whether the level holds also if the banks' luck is skewed as an exponential distribution is; False: if the
            means of the seeds are normal, for which the boundaries are wider open
    """

    first: int = 3
    most: int = 10
    level: float = LEVEL
    effect: float = 0.10
    skewed: bool = True

    def __post_init__(self) -> None:
        if not 2 <= self.first <= self.most:
            raise UserError(f"a study from {self.first} to {self.most} seeds: it needs 2 <= first <= most.")
        if not 0 < self.level < 1 or not 0 < self.effect <= 1:
            raise UserError("the level of a study lies between 0 and 1, its planned effect above 0 and at most at 1.")

    def nominal(self, n_seeds: int) -> float:
        """The boundary after n_seeds seeds: p of `paired` must be below it. 0 before the first look."""
        return self._nominal[min(n_seeds, self.most) - self.first] if n_seeds >= self.first else 0.0

    def look(
        self,
        values: np.ndarray,
        baseline: np.ndarray,
        seeds: Sequence[Any] | None = None,
        *,
        broke: np.ndarray | None = None,
        baseline_broke: np.ndarray | None = None,
        alike: float = 0.0,
        n_run: int | None = None,
    ) -> Interim:
        """What the seeds so far show.

        values, baseline, seeds   as in `analysis.stats.paired`: (tasks, seeds), NaN where an episode does not count
        broke, baseline_broke     as in `analysis.stats.paired_worst`; default: nothing broke
        alike                     the share of attempts that repeat another seed's, as in `analysis.verdict.scope`: with
                                  too high a share there is no verdict
        n_run                     seeds that were run, with those left out because they repeat another one word for
                                  word; default: those of the columns
        """
        by_seed = paired_by_seed(values, baseline, seeds)
        n_seeds, n_given = by_seed.shape[1], (*np.shape(values), 1)[1] if seeds is None else len(set(seeds))
        left = max(self.most - (n_run or n_given), 0)  # a seed that broke altogether is not made good for
        stop = "go on" if left else "most"
        if not n_seeds:
            return Interim(n_seeds=0, verdict="untested", outcome=stop)
        means, about = seed_means(by_seed), paired_spread(by_seed)
        difference = float(means.mean())
        found = {"n_seeds": n_seeds, "difference": difference, "nominal_p": about.p if n_seeds > 1 else None}
        found["worst_seed"] = float(means.max() if difference < 0 else means.min())
        if n_seeds < self.first:
            return Interim(**found, verdict="untested", outcome=stop)
        found |= {"p": self._repeated(about.p, n_seeds)} | self._interval(about, n_seeds)
        worst = {"difference_worst": difference, "p_worst": found["p"]}
        if np.any(broke) or np.any(baseline_broke):
            broken = (np.zeros(np.shape(values), bool) if each is None else each for each in (broke, baseline_broke))
            of_worst = paired_by_seed(*worst_case(values, baseline, *broken, better=difference > 0), seeds)
            worst["difference_worst"] = float(seed_means(of_worst).mean())
            worst["p_worst"] = self._repeated(paired_spread(of_worst).p, n_seeds)
        tested = {"p_holm": found["p"], "p_worst_holm": worst["p_worst"], "alike": alike}  # the design's p corrects it
        verdict = comparison_outcome(found | worst | tested, self.level)
        power = self._conditional_power(about, n_seeds, left) if left else None
        if verdict in VERDICTS:
            stop = "clear"
        elif power is not None and power < FUTILE:
            stop = "futile"
        return Interim(**found, **worst, conditional_power=power, verdict=verdict, outcome=stop)

    def detectable(self, n_tasks: int, rate: float, sd: float, alike: float) -> list[tuple[int, float]]:
        """For each look (seeds, the smallest difference that is found by then with probability 0.8), at most 1.

        The arguments are those of `analysis.stats.detectable`, which says the same of a study without looks. Stops for
        futility are not allowed for.
        """
        error = sqrt(sd**2 + 2 * rate * (1 - rate) * (1 - alike) / n_tasks)
        found = zip(range(self.first, self.most + 1), _detectable(self.first, self._reached), strict=True)
        return [(n_seeds, min(in_errors * error, 1.0)) for n_seeds, in_errors in found]

    @property
    def _nominal(self) -> tuple[float, ...]:
        return nominal_levels(self.first, self.most, self.level, self._kind)

    @property
    def _kind(self) -> str:
        return "skewed" if self.skewed else "t"

    @property
    def _reached(self) -> tuple[float, ...]:
        """What Student's t must exceed at each look."""
        from scipy.special import stdtrit

        n_seeds = np.arange(self.first, self.most + 1)
        return tuple((-stdtrit(n_seeds - 1, np.array(self._nominal) / 2)).tolist())

    def _interval(self, about: Spread, n_seeds: int) -> dict[str, float]:
        low, high = about.interval_at(self.nominal(n_seeds))
        return {"low": max(low, -1.0), "high": min(high, 1.0)}

    def _repeated(self, p: float, n_seeds: int) -> float:
        """The overall level whose boundary at this look is p."""
        from scipy.special import ndtr, ndtri

        levels, nominal = _table(self.first, self.most, self.level, self._kind)
        boundary = nominal[:, min(n_seeds, self.most) - self.first]
        return float(2 * ndtr(-np.interp(-ndtri(p / 2), boundary, levels)))

    def _conditional_power(self, about: Spread, n_seeds: int, left: int) -> float:
        """The chance of crossing a boundary with one of the seeds that are left, if the effect is the planned one.

        Or the mean so far, where that is larger: seeds drawn at a smaller one would add variance that is not
        there, and end a study whose gain nobody can miss. It has that mean's direction, in which the chance is larger.
        The means of the seeds to come are drawn from a normal distribution with the standard deviation that the error
        so far gives; each later look has its t.
        """
        looks = np.arange(n_seeds + 1, min(n_seeds + left, self.most) + 1)
        deviation = about.error * sqrt(n_seeds)
        to_come = max(self.effect, abs(about.mean)) + deviation * _normal(left, FORECASTS)[: len(looks)]
        sums = n_seeds * abs(about.mean) + to_come.cumsum(axis=0)
        squares = (n_seeds - 1) * deviation**2 + n_seeds * about.mean**2 + (to_come**2).cumsum(axis=0)
        reached = np.array(self._reached)[looks - self.first]
        return float((np.abs(_student(sums, squares, looks)) > reached[:, None]).any(axis=0).mean())


def spent(level: float | np.ndarray, share: float | np.ndarray) -> np.ndarray:
    """The level spent when this share of the seeds is there: Lan and DeMets' function in O'Brien and Fleming's manner.

    Their function is of a one-sided test. Each side has half the level, as in the published two-sided boundaries.
    """
    from scipy.special import ndtr, ndtri

    return 4 * ndtr(ndtri(np.asarray(level) / 4) / np.sqrt(share))


def nominal_levels(first: int, most: int, level: float, kind: str = "t") -> tuple[float, ...]:
    """The nominal level of each look, from `first` to `most` seeds: the looks together have the overall level.

    kind   t: p is from Student's t with one degree of freedom less than there are seeds, as in `paired`, and the means
           of the seeds are normal; skewed: the same, with exponential luck in the means; normal: the means are normal
           and their variance is known, for which such boundaries are published
    """
    from scipy.special import ndtr

    levels, nominal = _table(first, most, level, kind)
    place = int(np.argmin(np.abs(2 * ndtr(-levels) - level)))
    return tuple((2 * ndtr(-nominal[place])).tolist())


@lru_cache(maxsize=16)
def _table(first: int, most: int, level: float, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Overall levels, the given one among them, and the nominal levels of each look, (levels, looks), falling.

    Both are given as the standard normal quantile that is exceeded on either side with that probability, in which one
    is nearly linear in the other.
    """
    from scipy.special import ndtri

    own, step = float(-ndtri(level / 2)), 0.25
    others = np.arange(0.0, 6.5, step)
    levels = np.sort(np.append(others[np.abs(others - own) > step / 2], own))
    null = _null(first, most, kind)
    nominal = np.array([_boundary(z, first, most, kind, *null) for z in levels])
    return levels, np.maximum.accumulate(nominal, axis=0)  # the few crossings of a simulation may be out of order


def _boundary(z: float, first: int, most: int, kind: str, statistics: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The nominal levels of each look for one overall level, both as normal quantiles: see `_table`."""
    from scipy.special import ndtr, ndtri, stdtr, stdtrit

    looks = np.arange(first, most + 1)
    new = np.diff(spent(2 * ndtr(-z), looks / most), prepend=0.0)
    alive = np.ones(statistics.shape[1], bool)
    found = []
    for size, order, n_seeds, increment in zip(statistics, orders, looks, new, strict=True):

        def level_of(reached: float, df: int = n_seeds - 1) -> float:
            return 2 * (ndtr(-reached) if kind == "normal" else stdtr(df, -reached))

        many = int(increment * len(alive))
        if not found and kind != "skewed":
            nominal = increment  # exactly
        elif many >= FEW:
            nominal = level_of(size[order[alive[order]][:many][-1]])
        else:  # as far out as the simulation reaches, the tails are taken to be in proportion
            nominal = increment * level_of(size[order[FEW - 1]]) * len(alive) / FEW
        if kind != "skewed":  # that some have crossed a boundary before opens this one, if anything
            nominal = increment if many < FEW else max(nominal, increment)
        reached = -ndtri(nominal / 2) if kind == "normal" else -stdtrit(n_seeds - 1, nominal / 2)
        alive &= size < reached
        found.append(-ndtri(nominal / 2))
    return np.array(found)


@lru_cache(maxsize=2)
def _null(first: int, most: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The size of the statistic at each look of studies without a difference, (looks, studies); its order, falling."""
    means = _normal(most, DRAWS // most)
    if kind == "skewed":
        luck = np.random.default_rng([SEED, most, 1]).standard_exponential(means.shape) - 1
        means = sqrt(LUCK) * luck + sqrt(1 - LUCK) * means
    looks, sums = np.arange(first, most + 1), means.cumsum(axis=0)[first - 1 :]
    if kind == "normal":
        statistics = np.abs(sums) / np.sqrt(looks)[:, None]
    else:
        statistics = np.abs(_student(sums, (means**2).cumsum(axis=0)[first - 1 :], looks))
    return statistics, np.argsort(-statistics, axis=1).astype(np.int32)


@lru_cache(maxsize=16)
def _detectable(first: int, reached: tuple[float, ...], power: float = 0.8) -> tuple[float, ...]:
    """For each look, the difference that is found by then with this power, in standard deviations of a seed's mean."""
    looks = np.arange(first, first + len(reached))
    means = _normal(int(looks[-1]), STUDIES)
    differences = np.geomspace(0.1, 200.0, 80)
    powers = np.array([_crossed(means + difference, looks, np.array(reached)) for difference in differences])
    return tuple(float(np.exp(np.interp(power, by_then, np.log(differences)))) for by_then in powers.T)


def _crossed(means: np.ndarray, looks: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """The share of studies that crossed a boundary at each look or before. means: (seeds, studies)."""
    sums, squares = (part.cumsum(axis=0)[looks[0] - 1 :] for part in (means, means**2))
    crossed = np.abs(_student(sums, squares, looks)) > reached[:, None]
    return np.logical_or.accumulate(crossed, axis=0).mean(axis=1)


def _student(sums: np.ndarray, squares: np.ndarray, n_seeds: np.ndarray) -> np.ndarray:
    """Student's t at each look, (looks, studies), from the sums of the seeds' means and of their squares."""
    n_seeds = n_seeds[:, None]
    variance = (squares - sums**2 / n_seeds) / (n_seeds - 1)
    return sums / np.sqrt(n_seeds * np.maximum(variance, np.finfo(float).tiny))


@lru_cache(maxsize=16)
def _normal(n_seeds: int, many: int) -> np.ndarray:
    """Standard normal draws (seeds, studies), the same each time."""
    return np.random.default_rng([SEED, n_seeds]).standard_normal((n_seeds, many))
