"""Do the p-values and intervals of the tables hold what they say, where the tasks of a seed share a bank?

    python -m benchmarks.null_simulation [--studies 2000] [--tasks 40,140,500] [--seeds 3,5,10] [--sd 0,5,10]

Made-up studies: a task's hardness is drawn from Beta(1.5, 1.5), squeezed into 25 to 75 %; each seed's bank changes the
success rate of all its tasks by a normal draw of mean `gain` and standard deviation `sd` (points); every outcome is a
coin of its own. null: the share of studies without a gain in which p is under 0.05, and p_tasks, which knows of no
bank. covered: the share of 95 % intervals that hold the true difference, without and with a gain of 10 points, and of
those of the arm's own rate. power: the share of the studies with that gain in which p is under 0.05.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from analysis.stats import paired, rate_interval
from scripts.command_line import parser

GAIN = 0.1


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


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--studies", type=int, default=2000)
    options.add_argument("--tasks", type=numbers, default=[40, 140, 500])
    options.add_argument("--seeds", type=numbers, default=[3, 5, 10])
    options.add_argument("--sd", type=numbers, default=[0, 5, 10], help="between seeds, in points")
    given = options.parse_args()
    heads: list[str] = []
    for n_tasks, n_seeds, sd in itertools.product(given.tasks, given.seeds, given.sd):
        found = measured(given.studies, n_tasks, n_seeds, sd / 100)
        if not heads:
            heads = ["tasks", "seeds", "sd", *found]
            print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
        print(f"| {n_tasks} | {n_seeds} | {sd} | " + " | ".join(f"{x:.1f}" for x in found.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
