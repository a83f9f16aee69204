"""Threads of llama.cpp and torch on a machine on which others work too."""

from __future__ import annotations

import os

# Spins of GNU OpenMP at a barrier before a thread sleeps. With its own 300 times as many, a thread that waits for one
# without a core keeps others from theirs: two threads on two cores beside two busy processes then give 1 to 3 tokens a
# second, with this 13 to 20, and on idle cores 87 instead of 91.
SPINS = "1000"


def share_cores() -> None:
    """Call it before the first import of torch or xllamacpp: OpenMP reads its environment once. What is set stays."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def spare_one() -> int:
    """Threads for what is done token by token: one core is left to others, for whom each token would have to wait.

    Beside two to four busy processes on two cores one thread gives 17 to 50 tokens a second, two give 10 to 25.
    """
    return max(1, (os.cpu_count() or 1) - 1)
