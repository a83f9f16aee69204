"""Throw random and adversarial strings at the answer parser and the graders.

    python -m benchmarks.fuzz_grading --count 20000

Fails when anything raises, when a call takes longer than the grader's limit, or when a file or a process is left.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.command_line import parser
from single_turn_bench.answers import extract_answer
from single_turn_bench.choice import find_choice
from single_turn_bench.equivalence import MathGrader, grade_response

TOKENS = (
    r"\frac \sqrt \boxed { } ( ) [ ] \left \right ^ _ \{ \} 1 2 3 99 0.5 , ; : . + - * / = < > \le \in \cup \pm \pi "
    r"\infty x y i e f(x) \text{cm} \begin{pmatrix} \end{pmatrix} & \\ \% $ \( \) ! \binom \log \sin \sum_{i=1}^{9} "
    r"\int and or the answer is final (A) (B) I A **"
)
ADVERSARIAL = [
    "__import__('os').system('touch owned')",
    "exec(\"open('owned','w')\")",
    "().__class__.__bases__[0].__subclasses__()",
    "9**9**9",
    "9^{9^{9^{9}}}",
    r"\boxed{9^{9^{9}}}",
    r"\sum_{n=1}^{10^{10}} \frac{1}{n}",
    "99999999!",
    "(" * 5000,
    r"\boxed{" * 3000,
    r"\frac{" * 2000 + "1" + "}{2}" * 2000,
    "{" * 500 + "1" + "}" * 500,
    "$" * 3001,
    "1" * 100_000,
    "1," * 50_000,
    "a" * 1_000_000,
    r"\boxed{" + "x" * 1_000_000 + "}",
    "answer is " * 20_000,
    "\x00",
    "1\x00",
    "\ud800",
    "\x1b[31m5",
    "-" * 10_000,
    "1e999999999",
    "0." + "0" * 2000 + "1",
    r"\pm" * 300,
    "1 \\pm " * 12 + "1",
    "x" + "^x" * 200,
    "\u202e5\u0301\u0301",
    "{}",
    "%s%n{0}{{x}}",
    "",
]
GOLDS = ["5", r"\frac{1}{2}", "x^2+1", "(1,2)", "[0,1)", r"\{1,2\}", "x=5", "Evelyn", "10\\%", "2\\sqrt{3}"]


def strings(count: int, seed: int) -> Iterator[str]:
    """The adversarial ones first, then random characters and random token soups, half and half."""
    yield from ADVERSARIAL[:count]
    for number in range(count - len(ADVERSARIAL)):
        rng = random.Random(f"fuzz:{seed}:{number}")
        if number % 2:
            codes = (rng.choice((rng.randrange(128), rng.randrange(0x3000))) for _ in range(rng.randrange(60)))
            yield "".join(map(chr, codes))
        else:
            soup = rng.choices(TOKENS.split(), k=rng.randrange(1, 25))
            yield rng.choice(("", " ")).join(soup)


def fuzz(count: int, seed: int, timeout_s: float) -> tuple[int, float, int]:
    """(graded, slowest call in seconds, timeouts). Raises what the graders raise."""
    slowest = 0.0
    with MathGrader(timeout_s=timeout_s) as grader:
        grader.equal("x+x", "2x")  # the worker's start is not a call's time
        for number, text in enumerate(strings(count, seed)):
            begun = time.monotonic()
            extract_answer(text)
            find_choice(text, 2 + number % 9)
            restarts = grader.n_restarts
            grade_response(text, GOLDS[number % len(GOLDS)], grader)
            if grader.n_restarts == restarts:  # else the call holds a start as well
                slowest = max(slowest, time.monotonic() - begun)
        return count, slowest, grader.n_timeouts


def children() -> set[str]:
    """Ids of this process's children, from /proc; empty where there is none."""
    files = Path("/proc/self/task").glob("*/children")
    return {child for file in files for child in file.read_text().split()}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--timeout", type=float, default=5.0, help="the grader's limit in seconds")
    given = options.parse_args()
    before, begun = children(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        count, slowest, timeouts = fuzz(given.count, given.seed, given.timeout)
        left = sorted(path.name for path in Path(folder).iterdir())
    wall, alive = time.monotonic() - begun, sorted(children() - before)
    print(f"strings {count}  wall {wall:.1f} s  slowest call {slowest:.2f} s  timeouts {timeouts}")
    print(f"files left {left}  processes left {alive}")
    return int(bool(left) or bool(alive) or slowest > given.timeout + 1)


if __name__ == "__main__":
    sys.exit(main())
