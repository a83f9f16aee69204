"""Waits that a run shows: for a server that asked for time, or for a limit of the configuration."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite

SHOWN_S = 10.0  # shorter waits are not shown
log = logging.getLogger("run.waiting")


@dataclass(frozen=True, eq=False)
class Wait:
    """A wait in progress. until: on the clock time.monotonic; why: in a few words."""

    until: float
    why: str

    def text(self) -> str:
        """As it is shown now, with the time left."""
        return f"waiting {duration(max(0.0, self.until - time.monotonic()))}: {self.why}"


@contextmanager
def waiting(seconds: float, why: str) -> Iterator[None]:
    """A context for a wait of about `seconds`: the progress line and main.log show it if it is a long one."""
    if not seconds > SHOWN_S:
        yield
        return
    wait = Wait(time.monotonic() + seconds, " ".join(why.split()))
    log.info("%s", wait.text(), extra={"wait_begins": wait})
    try:
        yield
    finally:
        log.info("the wait is over: %s", wait.why, extra={"wait_ends": wait})


def duration(seconds: float) -> str:
    """A number of seconds in words: "42 s", "1 min 30 s", "8.3 h", "2 days"."""
    if not isfinite(seconds):
        return "for ever" if seconds == inf else "some time"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    if seconds <= 48 * 3600:
        return f"{seconds / 3600:.1f}".removesuffix(".0") + " h"
    return f"{seconds / 86400:.1f}".removesuffix(".0") + " days"
