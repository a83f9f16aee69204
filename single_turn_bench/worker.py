"""What the grader hosts in a process of its own: sympy, under limits of memory, recursion depth and time.

`shut_off`, `limit_memory` and `alarm` serve every process in which a model's text is read.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MEMORY = 2 << 30  # bytes of address space; 9^{9^{9}} ends here or at the time limit, whichever comes first
RECURSION = 3_000


class ValueComparer:
    """Made in the child process alone: it changes the process that it is made in."""

    def __init__(self) -> None:
        shut_off()
        from single_turn_bench.symbolic import equal  # seconds of imports

        self._equal = equal
        limit_memory()
        sys.setrecursionlimit(RECURSION)

    def equal(self, pred: str, gold: str, alarm_s: float) -> bool:
        """Whether two normalised values are shown to be the same; what cannot be read is not.

        alarm_s   seconds that this may take
        """
        # the parser raises bare Exception on text outside its grammar
        with alarm(alarm_s), suppress(Exception):
            return self._equal(pred, gold)
        return False


def shut_off() -> None:
    """Leave output and Ctrl-C to the caller: what a library prints must not stand among the caller's output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """End this process if the block takes longer.

    The caller kills the child at its limit; the alarm is for a child whose caller is gone. The kernel sees to it even
    while C code runs, when no Python thread gets its turn.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory() -> None:
    """Cap the address space of this process at MEMORY; only Linux keeps such a limit."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    if soft == resource.RLIM_INFINITY or soft > wanted:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
