"""Before you pay for a study: the smallest difference that it could find.

    reasoningbank power --tasks 140 --seeds 3 [--arms 6] [--rate 0.5] [--sd 5] [--alike 0.3]

A study compares --arms arms with a baseline, on the same tasks and seeds. It finds a difference of the printed size (in
points of success) with a chance of 80 %, at the level of 5 %: for a single comparison, and after Holm's correction over
all arms (its hardest step). The test is that of the tables (docs/statistics.md). Three values are guesses:
--rate   the success rate
--alike  how similar the outcomes of two arms on one task are: 0 independent, 1 always the same outcome
--sd     how much the banks of different seeds change the difference, in points: the standard deviation over seeds
"""

from __future__ import annotations

import sys

from analysis.reach import NOTHING, least_points, size_or_none
from analysis.stats import GUESSES
from core.errors import UserError
from scripts.command_line import parser, plain_errors


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    for name in ("tasks", "seeds"):
        options.add_argument(f"--{name}", type=int, required=True)
    options.add_argument("--arms", type=int, default=1, help="that are compared with the baseline")
    options.add_argument("--rate", type=float, default=GUESSES["rate"])
    options.add_argument("--sd", type=float, default=100 * GUESSES["sd"])
    options.add_argument("--alike", type=float, default=GUESSES["alike"])
    given = options.parse_args(arguments)
    if given.tasks < 1 or given.seeds < 2 or given.arms < 1:
        raise UserError("a study needs at least 1 task, 2 seeds (with one, nothing is tested) and 1 arm.")
    if not 0 <= given.rate <= 1 or not 0 <= given.alike <= 1 or given.sd < 0:
        raise UserError("--rate and --alike lie between 0 and 1, --sd is not negative.")
    about = {"rate": given.rate, "sd": given.sd / 100, "alike": given.alike}
    print("smallest difference that is found, in points of success")
    print(f"{'seeds':>5}  {'alone':>6}  {f'Holm, {given.arms} arms':>14}")
    for seeds in sorted({given.seeds, 3, 5, 10}):
        alone, corrected = (size_or_none(least_points(given.tasks, seeds, arms, **about)) for arms in (1, given.arms))
        print(f"{seeds:>5}  {alone:>6}  {corrected:>14}{'  <- this study' * (seeds == given.seeds)}")
    least = size_or_none(least_points(given.tasks, given.seeds, given.arms, **about))
    what, but = f"a difference of {least} points of success or more", "; a smaller one is likely to be missed"
    if least == "none":
        what, but = NOTHING, ""
    after = f", after correction for {given.arms} comparisons" if given.arms > 1 else ""
    print(
        f"\nWith {given.tasks} tasks and {given.seeds} seeds, {what} is found with a\n"
        f"chance of 80 % at the level of 5 %{after}{but}.\n"
        f"Assumed: {100 * given.rate:g} % success of the baseline (--rate), banks of the seeds {given.sd:g} points "
        f"apart (--sd), outcomes\nof two arms on one task correlated by {given.alike:g} (--alike)."
    )


if __name__ == "__main__":
    sys.exit(main())
