"""A fair comparison in daily use: for a share of tasks, drawn by a keyed coin, memory is not shown (`run --holdout`,
and `server.holdout` for the server and the hooks).

The coin falls before the outcome is known and independently of it, so tasks with and without memory differ in nothing
else, as in a randomised trial. The interval may be looked at after every task, and the comparison stopped whenever one
likes: with a chance of 95 % it holds the true difference at every look. It is the asymptotic confidence sequence of
Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (Annals of Statistics 52, 2024) of the augmented inverse-probability
scores of a trial; `python -m benchmarks.holdout_simulation` counts how often it errs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.errors import UserError

LEVEL = 0.05  # the chance that any of all the looks leaves out the true difference
FIRST = 10  # runs of each kind before anything is said: the sequence holds for many runs, not for few
TUNED_FOR = 100  # runs for which the interval is narrowest
SMOOTHED = 2.0  # further runs, at the middle, in the mean of each kind: their variance is not taken for 0 too soon
PLANNED = 0.10  # the difference of success of which `more_runs` speaks


def check_share(option: str, holdout: float) -> None:
    """Raises UserError unless it is a share of the tasks; option: how it was given."""
    if not isinstance(holdout, int | float) or not 0 < holdout < 1:
        raise UserError(f"{option}{holdout}: give a share between 0 and 1, e.g. 0.2.")


def shows(key: str, task: str, number: int, holdout: float) -> bool:
    """Whether memory is shown to a task. The same for the same key, task and number.

    key       drawn once for each bank, so that nobody can choose tasks by how the coin will fall
    number    how many runs of this task there were before
    holdout   the share of tasks to which it is not shown
    """
    drawn = hashlib.blake2b(f"{number}\x1f{task}".encode(), key=key.encode()[:64], digest_size=8).digest()
    return int.from_bytes(drawn, "big") / 2**64 >= holdout


@dataclass(frozen=True, kw_only=True)
class Compared:
    """With memory minus without it. low, high: the interval; None before FIRST runs of each kind.

    n_shown, n_held   runs of each kind
    with_memory, without_memory   their means
    """

    n_shown: int
    n_held: int
    with_memory: float | None
    without_memory: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None


def compare(shown: Sequence[bool], values: Sequence[float], holdouts: Sequence[float], *, rates: bool) -> Compared:
    """What the runs show, in the order in which they were made.

    shown      whether memory was shown
    values     what is compared: 0 or 1 (rates), or numbers such as logarithms of seconds
    holdouts   the share held out at the time of each run, in (0, 1)
    """
    kinds = {kind: [value for value, each in zip(values, shown, strict=True) if each is kind] for kind in (True, False)}
    means = {kind: fmean(own) if own else None for kind, own in kinds.items()}
    found = Compared(
        n_shown=len(kinds[True]), n_held=len(kinds[False]), with_memory=means[True], without_memory=means[False]
    )
    if min(found.n_shown, found.n_held) < FIRST:
        return found
    n, total, variance = len(values), 0.0, 0.0
    for holdout in dict.fromkeys(holdouts):  # apart: the tasks of another time may be easier, or vary more
        runs = [(kind, value) for kind, value, each in zip(shown, values, holdouts, strict=True) if each == holdout]
        scores, spread = _of_share(runs, holdout, values, rates)
        total += scores
        variance += spread * len(runs) / n
    difference, half = total / n, math.sqrt(variance) * _half_width(n)
    return Compared(**vars(found) | {"difference": difference, "low": difference - half, "high": difference + half})


def _of_share(
    runs: Sequence[tuple[bool, float]], holdout: float, everyone: Sequence[float], rates: bool
) -> tuple[float, float]:
    """(sum of the scores, their variance) of the runs, (was memory shown, value), at one share held out."""
    middle = 0.5 if rates else fmean(everyone)
    sums, counts = {True: SMOOTHED * middle, False: SMOOTHED * middle}, {True: SMOOTHED, False: SMOOTHED}
    total = 0.0
    for is_shown, value in runs:
        expected = {kind: sums[kind] / counts[kind] for kind in sums}  # from the runs before this one alone
        weight = 1 / (1 - holdout) if is_shown else -1 / holdout
        total += expected[True] - expected[False] + weight * (value - expected[is_shown])
        sums[is_shown] += value
        counts[is_shown] += 1
    own = {kind: [value for is_shown, value in runs if is_shown is kind] for kind in sums}
    spread = {kind: _variance(own[kind], sums[kind] / counts[kind], everyone, rates) for kind in sums}
    return total, spread[True] / (1 - holdout) + spread[False] / holdout


def more_runs(found: Compared, holdout: float) -> int | None:
    """How many runs more a difference of PLANNED in success would need, at a share held out; 0: it would show now.

    None before FIRST runs of each kind. It supposes that both kinds go on as they went so far.
    """
    if found.low is None or found.with_memory is None or found.without_memory is None:
        return None
    variance = sum(
        max(mean * (1 - mean), 0.05) / share
        for mean, share in ((found.with_memory, 1 - holdout), (found.without_memory, holdout))
    )
    n = done = found.n_shown + found.n_held
    while math.sqrt(variance) * _half_width(n) > PLANNED and n < 10**6:
        n = math.ceil(n * 1.02)
    return n - done


def _half_width(n: int) -> float:
    """Half of the interval's width after n runs, in standard deviations of a score."""
    rho = (-2 * math.log(LEVEL) + math.log(1 - 2 * math.log(LEVEL))) / TUNED_FOR
    grown = n * rho + 1
    return math.sqrt(2 * grown / (n**2 * rho) * math.log(math.sqrt(grown) / LEVEL))


def _variance(own: Sequence[float], mean: float, everyone: Sequence[float], rates: bool) -> float:
    if rates:
        return mean * (1 - mean)
    middle = fmean(everyone)
    prior = SMOOTHED * fmean((value - middle) ** 2 for value in everyone)
    return (sum((value - mean) ** 2 for value in own) + prior) / (len(own) + SMOOTHED - 1)
