"""Does a study that looks after each seed hold its level, and what does looking save?

    python -m benchmarks.sequential_simulation [--studies 4000] [--tasks 40,140,500] [--sd 0,5,10] [--normal]

Made-up studies as in benchmarks/null_simulation.py, of 3 to 10 seeds (`analysis.sequential.Design`), without a gain and
with the planned one of 10 points; with banks alone also with gains of 30, 50 and 70. --normal: with the boundaries for
normal luck. The columns, in per cent if they name no other unit:

false      studies without a gain that are ever called better or worse, had they gone on past each stop for futility
power      studies with the gain that stop because it is clear
seeds      mean number at the stop: without the gain, with it; and that of the fixed design which has the same power
           (between two whole numbers by interpolation)
cost       mean number of seeds in per cent of the fixed design's: without the gain, with it
futile     studies that stop because more seeds will not show it: without the gain, with it, with gains of 30, 50, 70
covered    intervals at the stop that hold the true difference: without the gain, with it. Where attempts break as they
           fail, what is left is no sample of the difference, and nothing is said

Last, where a placebo solves 20 points more than the baseline, as the arm does: the studies that are called better than
the baseline, and those of which it is also said that the lessons' content helps.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator

import numpy as np

from analysis.sequential import Design, Interim
from analysis.verdict import VERDICTS
from benchmarks.lines import Lines, lines_parser
from benchmarks.null_simulation import (
    MOST,
    Rng,
    Size,
    Study,
    breaking,
    breaking_by_chance,
    by_order,
    by_type,
    collapsing,
    hardness,
    numbers,
    outcomes,
    skewed,
)

WORLDS: dict[str, Callable[[Rng, float, Size], Study]] = {  # beside banks alone: one study of this gain and size
    "banks with skewed luck": skewed,
    "one bank in ten collapses": collapsing,
    "an order worth sd 5 for each seed": by_order,
    "effects by type, sd 20": lambda rng, gain, size: by_type(rng, True, gain, size),
    "2 % of both arms break": breaking_by_chance,
    "the arm breaks where it fails": lambda rng, gain, size: breaking(rng, 1, gain, size),
}
NO_SAMPLE = "the arm breaks where it fails"
LARGE = (0.3, 0.5, 0.7)  # gains that a study must not take for none
HEADS = "world,tasks,sd,false,power,seeds,,fixed,cost,,futile,,,,,covered,".split(",")


def looks(study: Study, design: Design) -> list[Interim]:
    """What the study shows after each seed, whatever it said before."""
    return [_look(study, design, n) for n in range(design.first, design.most + 1)]


def _look(study: Study, design: Design, n_seeds: int) -> Interim:
    arm, baseline, broke, baseline_broke = (part[:, :n_seeds] for part in study[:4])
    return design.look(arm, baseline, broke=broke, baseline_broke=baseline_broke)


def stopped(seen: list[Interim]) -> Interim:
    """The look at which a study stops."""
    return next(look for look in seen if look.outcome != "go on")


def fixed_seeds(power: float, powers: dict[int, float]) -> float:
    """The number of seeds that has this power, by interpolation; powers: of whole numbers of seeds."""
    before = (1, 0.0)  # one seed is not tested
    for now in sorted(powers.items()):
        if now[1] >= power:
            return before[0] + (power - before[1]) / max(now[1] - before[1], 1e-9) * (now[0] - before[0])
        before = now
    return float(max(powers))


def measured(world: str, size: Size, n: int, design: Design) -> list[str]:
    """A row of the table, see the top of the file."""

    def studies(gain: float) -> Iterator[Study]:
        rng = np.random.default_rng([*world.encode(), size.n_tasks, round(1000 * size.sd), round(1000 * gain)])
        draw = WORLDS.get(world, outcomes)
        return (draw(rng, gain, size) for _ in range(n))

    null = [looks(study, design) for study in studies(0.0)]
    ends = [stopped(seen) for seen in null]
    gains, found = [], dict.fromkeys(range(2, design.most + 1), 0)
    for study in studies(design.effect):
        gains.append(stopped(looks(study, design)))
        for n_seeds in found:
            found[n_seeds] += _look(study, Design(n_seeds, n_seeds, skewed=False), n_seeds).verdict in VERDICTS
    power = np.mean([look.outcome == "clear" for look in gains])
    fixed = fixed_seeds(float(power), {n_seeds: count / n for n_seeds, count in found.items()})
    false = np.mean([any(look.outcome == "clear" for look in seen) for seen in null])
    both = [(0.0, ends), (design.effect, gains)]
    seeds = [np.mean([look.n_seeds for look in each]) for _, each in both]
    futile = [f"{100 * np.mean([look.outcome == 'futile' for look in each]):.1f}" for _, each in both]
    futile += [f"{futile_share(gain, size, n, design):.1f}" if world not in WORLDS else "-" for gain in LARGE]
    covered = [100 * np.mean([look.low <= gain <= look.high for look in each]) for gain, each in both]
    held = ["-", "-"] if world == NO_SAMPLE else [f"{share:.1f}" for share in covered]
    per_cent = [f"{100 * false:.1f}", f"{100 * power:.1f}"]
    cost = [f"{100 * each / fixed:.0f}" for each in seeds]
    shown = [*per_cent, *(f"{each:.1f}" for each in (*seeds, fixed)), *cost, *futile, *held]
    return [world, str(size.n_tasks), f"{100 * size.sd:.0f}", *shown]


def futile_share(gain: float, size: Size, n: int, design: Design) -> float:
    """The share of n studies with a large gain, in per cent, that stop because more seeds will not show it."""
    rng = np.random.default_rng([size.n_tasks, round(1000 * size.sd), round(1000 * gain)])
    drawn = (outcomes(rng, gain, size, room=1 - gain) for _ in range(n))
    return 100 * sum(stopped(looks(study, design)).outcome == "futile" for study in drawn) / n


def content_claims(size: Size, n: int, design: Design) -> tuple[float, float]:
    """The shares of n studies, in per cent, in which any block helps: (called better, content is said to help)."""
    rng, better, false = np.random.default_rng([size.n_tasks, round(1000 * size.sd)]), 0, 0
    for _ in range(n):
        hard, none = hardness(rng, size), np.zeros(size.shape, bool)
        bank = rng.exponential(size.sd, size.of_seeds) - size.sd
        arm, placebo, base = (rng.random(size.shape) < np.clip(hard + g, 0, 1) for g in (0.2 + bank, 0.2, 0.0))
        seen = looks((arm, base, none, none), design)
        end = seen.index(stopped(seen))
        if seen[end].verdict == "better":
            better += 1
            false += stopped(looks((arm, placebo, none, none), design)[end:]).verdict == "better"
    return 100 * better / n, 100 * false / n


def main() -> int:
    options = lines_parser(__doc__)
    options.add_argument("--studies", type=int, default=4000)
    options.add_argument("--tasks", type=numbers, default=[40, 140, 500])
    options.add_argument("--sd", type=numbers, default=[0, 5, 10], help="between seeds, in points")
    names = ["banks", *WORLDS]
    options.add_argument("--normal", action="store_true", help="boundaries for normal luck")
    options.add_argument("--worlds", type=lambda text: text.split(";"), default=names, help="names, with ; between")
    given = options.parse_args()
    lines, design = Lines(), Design(skewed=not given.normal)
    print("| " + " | ".join(HEADS) + " |\n|" + " --- |" * len(HEADS))
    for world, n_tasks, sd in itertools.product(given.worlds, given.tasks, given.sd):
        row = measured(world, Size(n_tasks=n_tasks, n_seeds=design.most, sd=sd / 100), given.studies, design)
        print("| " + " | ".join(row) + " |", flush=True)
        lines.keep(f"false, {world}, {n_tasks} tasks, sd {sd}", float(row[3]), "%")
        lines.keep(f"power, {world}, {n_tasks} tasks, sd {sd}", float(row[4]), "%", least=True)
    for n_tasks, sd in itertools.product(given.tasks, given.sd):
        better, false = content_claims(Size(n_tasks=n_tasks, n_seeds=design.most, sd=sd / 100), given.studies, design)
        at = f"{n_tasks} tasks, sd {sd}"
        lines.add(f"content where any block helps, {at}", false, MOST, "%", note=f"better: {better:.1f}")
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
