"""How long grading takes: MATH-500's gold answers, each against itself and against another one, worker start included.

    python -m benchmarks.bench_grading [--path FOLDER]

An answer that is written as the gold one never reaches the worker, so the second figure, of answers that are mostly
wrong, is the honest one. Where MATH-500 is absent, give a folder that holds it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from scripts.command_line import parser, plain_errors
from single_turn_bench.datasets import load_rows
from single_turn_bench.equivalence import MathGrader, grade_response


def time_grading(pairs: list[tuple[str, str]]) -> tuple[int, float, float, int]:
    """(equal, seconds in all, slowest in seconds, timeouts) of a fresh grader over (response, gold) pairs."""
    equal, slowest = 0, 0.0
    begun = time.perf_counter()
    with MathGrader() as grader:
        for response, gold in pairs:
            start = time.perf_counter()
            equal += grade_response(response, gold, grader)
            slowest = max(slowest, time.perf_counter() - start)
        return equal, time.perf_counter() - begun, slowest, grader.n_timeouts


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--path", type=Path, help="a MATH-500 file, or a folder that holds it")
    golds = [row.answer for row in load_rows("math500", options.parse_args(arguments).path).rows]
    boxed = [rf"So the answer is $\boxed{{{gold}}}$." for gold in golds]
    spaced = [rf"\boxed{{0 + {gold}}}" for gold in golds]
    runs = {
        "gold against itself": list(zip(boxed, golds)),
        "gold in other words (0 + gold)": list(zip(spaced, golds)),
        "gold against the next one": list(zip(boxed, golds[1:] + golds[:1])),
    }
    for label, pairs in runs.items():
        equal, wall, slowest, timeouts = time_grading(pairs)
        print(f"{label}: {len(pairs)} in {wall:.2f} s, slowest {slowest:.2f} s, equal {equal}, timeouts {timeouts}")


if __name__ == "__main__":
    sys.exit(main())
