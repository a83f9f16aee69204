"""What the grader hosts in a process of its own: sympy, under limits of memory, recursion depth and time."""

from __future__ import annotations

import os
import resource
import signal
import sys

MEMORY = 2 << 30  # bytes of address space; 9^{9^{9}} ends here or at the time limit, whichever comes first
RECURSION = 3_000


class ValueComparer:
    """Made in the child process alone: it changes the process that it is made in.

    The grader kills the child at its limit. The alarm is for a child whose grader is gone: by default it ends the
    process, and the kernel does so even while C code runs, when no Python thread gets its turn.

    alarm_s   seconds that one comparison may take
    """

    def __init__(self, alarm_s: float) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)  # what a library prints must not stand among the caller's output
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the grader's to handle
        from single_turn_bench.symbolic import equal  # seconds of imports

        self._alarm_s, self._equal = alarm_s, equal
        if sys.platform.startswith("linux"):
            limit_memory()
        sys.setrecursionlimit(RECURSION)

    def equal(self, pred: str, gold: str) -> bool:
        """Whether two normalised values are shown to be the same; what cannot be read is not."""
        signal.setitimer(signal.ITIMER_REAL, self._alarm_s)
        try:
            return self._equal(pred, gold)
        except Exception:  # noqa: BLE001  the parser raises bare Exception on text outside its grammar
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    if soft == resource.RLIM_INFINITY or soft > wanted:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
