"""Do the p-values, intervals and verdicts of the tables hold what they say?

    python -m benchmarks.null_simulation [--studies 2000] [--tasks 40,140,500] [--seeds 3,5,10] [--sd 0,5,10]
    python -m benchmarks.null_simulation --worlds [--studies 2000]      or with --quick a little of both

Made-up studies: a task's hardness is drawn from Beta(1.5, 1.5), squeezed into 25 to 75 %; each seed's bank changes the
success rate of all its tasks by a normal draw of mean `gain` and standard deviation `sd` (points); every outcome is a
coin of its own. null: the share of studies without a gain in which p is under 0.05, and p_tasks, which knows of no
bank. covered: the share of 95 % intervals that hold the true difference, without and with a gain of 10 points, and of
those of the arm's own rate. power: the share of the studies with that gain in which p is under 0.05.

--worlds: 100 tasks, 5 seeds and banks of sd 5 points, if the world says nothing else, and no effect of the kind that is
claimed. p: the share of studies in which p is under 0.05; verdict: in which the tables would say better or worse.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from analysis.stats import paired, paired_worst, rate_interval, spread
from analysis.verdict import VERDICTS, comparison_outcome
from benchmarks.lines import Lines, lines_parser

GAIN = 0.1
MOST = 7.0  # per cent of 2000 studies with a false claim at a level of 5: four standard errors above it
N_TYPES, BY_TYPE, BY_ORDER = 6, 0.2, 0.05  # types of task; standard deviations of what they and an order are worth
BREAKS = 0.4  # chance that an attempt which is about to fail breaks instead
# Arm, baseline, for each whether it is not known what the outcome would have been; `analysis.verdict.alike` if not 0.
Study = tuple[np.ndarray, ...]
Rng = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Size:
    """The tasks and seeds of a study, and the standard deviation of what a bank is worth."""

    n_tasks: int = 100
    n_seeds: int = 5
    sd: float = 0.05

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_tasks, self.n_seeds

    @property
    def of_seeds(self) -> tuple[int, int]:
        return 1, self.n_seeds


SIZE = Size()  # of a world that says nothing else


def studies(n: int, n_tasks: int, n_seeds: int, sd: float, gain: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """n studies: (arm, baseline), each (tasks, seeds) of 0 and 1."""
    rng = np.random.default_rng([n_tasks, n_seeds, round(1000 * sd), round(1000 * gain)])
    for _ in range(n):
        hard = 0.25 + 0.5 * rng.beta(1.5, 1.5, size=(n_tasks, 1))
        better = np.clip(hard + rng.normal(gain, sd, size=(1, n_seeds)), 0, 1)
        shape = (n_tasks, n_seeds)
        yield (rng.random(shape) < better).astype(float), (rng.random(shape) < hard).astype(float)


def measured(n: int, n_tasks: int, n_seeds: int, sd: float) -> dict[str, float]:
    """The shares of one cell of the table, see the top of the file."""
    null = [paired(*study) for study in studies(n, n_tasks, n_seeds, sd, 0.0)]
    gain = [(paired(*study), rate_interval(study[0])) for study in studies(n, n_tasks, n_seeds, sd, GAIN)]

    def share(holds: Iterator[bool]) -> float:
        return 100 * sum(holds) / n

    return {
        "null p": share(_below(each["p"]) for each in null),
        "null p_tasks": share(_below(each["p_tasks"]) for each in null),
        "covered": share(_holds(each, 0.0) for each in null),
        "covered, gain": share(_holds(each, GAIN) for each, _ in gain),
        "rate covered": share(_holds(rate, 0.5 + GAIN) for _, rate in gain),
        "power": share(_below(each["p"]) for each, _ in gain),
    }


def _below(p: float | None) -> bool:
    return p is not None and p < 0.05


def _holds(found: dict, truth: float) -> bool:
    return found["low"] is not None and found["low"] <= truth <= found["high"]


def hardness(rng: Rng, size: Size) -> np.ndarray:
    """The success rate of each task without memory, (tasks, 1)."""
    return 0.25 + 0.5 * rng.beta(1.5, 1.5, size=(size.n_tasks, 1))


def outcomes(rng: Rng, shift: np.ndarray | float, size: Size = SIZE, room: float = 1.0) -> Study:
    """A study in which seeds have banks and nothing breaks.

    shift   what the arm's success rate is higher by
    room    what all rates without memory are multiplied by, for a shift that has no room above them
    """
    hard = room * hardness(rng, size)
    rates = np.clip(hard + shift + rng.normal(0, size.sd, size.of_seeds), 0, 1), hard
    arm, baseline = ((rng.random(size.shape) < rate).astype(float) for rate in rates)
    return arm, baseline, np.zeros(arm.shape, bool), np.zeros(arm.shape, bool)


def by_type(rng: Rng, of_these: bool, gain: float = 0.0, size: Size = SIZE) -> Study:
    """The arm is better at some types of task and worse at others; of_these: by the gain on the average of these."""
    effects = rng.normal(0, BY_TYPE, N_TYPES)[np.arange(size.n_tasks) % N_TYPES]
    return outcomes(rng, gain + (effects - effects.mean() * of_these)[:, None], size)


def breaking(rng: Rng, tries: int = 1, gain: float = 0.0, size: Size = SIZE) -> Study:
    """Attempts of the arm break where they would fail; tries: 2 if a broken task is tried again, with equal chances."""
    hard = hardness(rng, size)
    luck = gain + rng.normal(0, size.sd, size.of_seeds)
    arm, unsure = np.full(size.shape, np.nan), np.zeros(size.shape, bool)
    for _ in range(tries):
        solved = rng.random(arm.shape) < np.clip(hard + luck, 0, 1)
        broke = ~solved & (rng.random(arm.shape) < BREAKS)
        arm = np.where(np.isnan(arm) & ~broke, solved, arm)
        unsure |= np.isnan(arm)
    return arm, (rng.random(arm.shape) < hard).astype(float), unsure, np.zeros(arm.shape, bool)


def breaking_attempts(rng: Rng, k: int = 3) -> Study:
    """Each arm takes one of k attempts by chance; those of one break where they would fail."""
    hard = hardness(rng, SIZE)
    rate = np.clip(hard + rng.normal(0, SIZE.sd, SIZE.of_seeds), 0, 1)
    solved = rng.random((k, *SIZE.shape)) < rate
    broke = ~solved & (rng.random(solved.shape) < BREAKS)
    first = np.argmax(~broke, axis=0)  # by chance, as attempts are alike
    arm = np.where(broke.all(axis=0), np.nan, np.take_along_axis(solved, first[None], axis=0)[0])
    return arm, (rng.random(arm.shape) < hard).astype(float), broke.any(axis=0), np.zeros(arm.shape, bool)


def breaking_by_chance(rng: Rng, gain: float, size: Size = SIZE) -> Study:
    """Two per cent of both arms' tasks break, whatever they would have been."""
    arm, baseline, *_ = outcomes(rng, gain, size)
    broke, base_broke = (rng.random(arm.shape) < 0.02 for _ in range(2))
    return np.where(broke, np.nan, arm), np.where(base_broke, np.nan, baseline), broke, base_broke


def alike(rng: Rng, share: float) -> Study:
    """Seeds of which this share of the attempts are those of the first seed."""
    arm, baseline, *none = outcomes(rng, 0.0)
    same = rng.random((2, *arm.shape)) < share
    pair = (np.where(one, each[:, :1], each) for one, each in zip(same, (arm, baseline), strict=True))
    return *pair, *none, (same[0, :, 1:].any(axis=1).sum() + same[0, :, 1:].sum()) / arm.size


def skewed(rng: Rng, gain: float = 0.0, size: Size = Size(sd=0.1)) -> Study:
    """Most banks are a little worse than the gain, and some are much better."""
    luck = gain + rng.exponential(size.sd, size.of_seeds) - size.sd
    return outcomes(rng, luck, replace(size, sd=0.0))


def collapsing(rng: Rng, gain: float = 0.0, size: Size = SIZE) -> Study:
    """One bank in ten costs 45 points, and the others are worth 5, beside the gain that is the mean of all."""
    luck = np.where(rng.random(size.of_seeds) < 0.1, -9.0, 1.0) * 0.05
    return outcomes(rng, gain + luck, replace(size, sd=0.0))


def by_order(rng: Rng, gain: float = 0.0, size: Size = SIZE) -> Study:
    """Each seed has an order of the tasks of its own, which is worth something."""
    return outcomes(rng, gain + rng.normal(0, BY_ORDER, size.of_seeds), size)


HERE = "these tasks, this order"
WORLDS: dict[str, tuple[str, Callable[[Rng], Study]]] = {  # {name: (what is claimed, one study)}
    "nothing but banks": (HERE, lambda rng: outcomes(rng, 0.0)),
    "two seeds": (HERE, lambda rng: outcomes(rng, 0.0, Size(n_seeds=2))),
    "banks with skewed luck, sd 10": (HERE, skewed),
    "seeds 90 % alike": (HERE, lambda rng: alike(rng, 0.9)),
    "seeds 15 % alike": (HERE, lambda rng: alike(rng, 0.15)),
    "effects by type, sd 20, none on the mean of these": (HERE, lambda rng: by_type(rng, True)),
    "2 % of both arms break by chance": (HERE, lambda rng: breaking_by_chance(rng, 0.0)),
    "the same, with a gain of 10 points": ("power", lambda rng: breaking_by_chance(rng, GAIN)),
    "the arm breaks where it fails (40 %)": (HERE, breaking),
    "the same, and is tried again": (HERE, lambda rng: breaking(rng, 2)),
    "the same in each of three attempts": (HERE, breaking_attempts),
    "an order is worth sd 5, a new one for each seed": ("these tasks, any order", by_order),
    "an order is worth sd 5, one for all seeds": (
        "any order: not claimed",
        lambda rng: outcomes(rng, rng.normal(0, BY_ORDER)),
    ),
    "one bank in ten collapses": ("the mean of all banks: not claimed", collapsing),
    "effects by type, sd 20 over six types": ("other types: not claimed", lambda rng: by_type(rng, False)),
}


def verdict_shares(world: str, n: int) -> dict[str, float]:
    """{p, verdict}: in per cent of n studies of a world, see the top of the file."""
    rng, draw = np.random.default_rng([*world.encode()]), WORLDS[world][1]
    found = [_row(draw(rng)) for _ in range(n)]
    given = sum(comparison_outcome(row) in VERDICTS for row in found)
    return {"p": 100 * sum(_below(row["p"]) for row in found) / n, "verdict": 100 * given / n}


def _row(study: Study) -> dict:
    """A table's row of one comparison."""
    found, worst = paired(*study[:2]), paired_worst(*study[:4])
    worst = {"p_worst_holm": worst["p"], "difference_worst": worst["difference"]}
    return found | worst | {"p_holm": found["p"], "alike": study[4] if len(study) > 4 else 0}


def over_types(n: int) -> float:
    """The share of studies with effects by type, in per cent, in which the interval over the types leaves out 0."""
    rng, out = np.random.default_rng(0), 0
    for _ in range(n):
        arm, baseline, *_ = by_type(rng, False)
        means = [(arm - baseline)[kind::N_TYPES].mean(axis=0) for kind in range(N_TYPES)]
        low, high = spread(np.array(means)).interval
        out += not low <= 0 <= high
    return 100 * out / n


def until_found(n: int, least: int, most: int) -> float:
    """The share of studies, in per cent, in which p gets under 0.05 at some number of seeds, from least to most."""
    rng = np.random.default_rng([least, most])
    grown = (outcomes(rng, 0.0, Size(n_seeds=most)) for _ in range(n))
    return (
        100
        * sum(
            any(_below(paired(arm[:, :seeds], base[:, :seeds])["p"]) for seeds in range(least, most + 1))
            for arm, base, *_ in grown
        )
        / n
    )


def best_alone(n: int, n_arms: int) -> float:
    """The share of studies, in per cent, in which the best of n_arms, tabled alone, has p under 0.05."""
    rng = np.random.default_rng(n_arms)
    found = 0
    for _ in range(n):
        hard = hardness(rng, SIZE)
        luck = rng.normal(0, SIZE.sd, size=(n_arms, *SIZE.of_seeds))
        base = (rng.random(SIZE.shape) < hard).astype(float)
        arms = (rng.random((n_arms, *SIZE.shape)) < np.clip(hard + luck, 0, 1)).astype(float)
        found += any(_below(paired(arm, base)["p"]) for arm in arms)
    return 100 * found / n


def worlds(lines: Lines, n: int) -> None:
    """The shares of all worlds, and what looking again and choosing cost."""
    for name, (claim, _) in WORLDS.items():
        found = verdict_shares(name, n)
        if claim == "power":
            lines.add(f"verdict, {name}", found["verdict"], 0, "%", least=True)
        elif "not claimed" not in claim:
            lines.add(f"verdict, {name}", found["verdict"], MOST, "%", note=f"p < 0.05: {found['p']:.1f}; {claim}")
        else:
            lines.add(f"p, {name}", found["p"], 100, "%", note=claim)
    lines.add("effects by type, interval over the types", over_types(n), MOST, "%", note="other types")
    for least, most in ((3, 10), (5, 10)):
        lines.add(f"seeds added until p < 0.05, {least} to {most}", until_found(n, least, most), 100, "%")
    lines.add("the best of five arms, tabled alone", best_alone(n, 5), 100, "%")


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--studies", type=int, default=2000)
    options.add_argument("--tasks", type=numbers, default=[40, 140, 500])
    options.add_argument("--seeds", type=numbers, default=[3, 5, 10])
    options.add_argument("--sd", type=numbers, default=[0, 5, 10], help="between seeds, in points")
    options.add_argument("--worlds", action="store_true", help="the worlds in which a verdict could be wrong")
    given, lines = options.parse_args(), Lines()
    if given.quick:
        given.tasks, given.seeds, given.sd, given.worlds = [140], [5], [5], True
        given.studies //= 4
    if given.quick or not given.worlds:
        for n_tasks, n_seeds, sd in itertools.product(given.tasks, given.seeds, given.sd):
            at = f"{n_tasks} tasks, {n_seeds} seeds, sd {sd}"
            for name, share in measured(given.studies, n_tasks, n_seeds, sd / 100).items():
                most = {"null p": MOST, "null p_tasks": 100}.get(name)  # the others are the better the higher
                lines.add(f"{name}, {at}", share, most or 0, "%", least=most is None)
    if given.worlds:
        worlds(lines, given.studies)
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
