"""Limits on the use of a provider: concurrent calls, requests per minute, tokens per minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import isfinite

from core.errors import InfraError
from core.models.waits import SHOWN_S, waiting


@dataclass(kw_only=True)
class Limiter:
    """Limits calls; shared by all models of one provider. `slot` waits until a call may start. None: no limit.

    Requests and tokens are token buckets: a minute's worth may be used at once, then they refill evenly. When a server
    asks one call to wait, `pause` makes all calls wait, so that not every thread runs into the same rate limit.

    closing   once set, no further call starts
    """

    max_in_flight: int | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._in_flight = 0
        self._requests = _Bucket(self.requests_per_min, self.clock())
        self._tokens = _Bucket(self.tokens_per_min, self.clock())
        self._not_before, self._paused_by = 0.0, ""
        self._shown_until = 0.0  # of the wait that is shown; 0: none is

    @contextmanager
    def slot(self, tokens: int) -> Iterator[_Slot]:
        """Wait until a call of about `tokens` may start; set `used` on the slot to the tokens really used."""
        with self._changed:
            with ExitStack() as shown:
                while (wait := self._wait(tokens))[0] > 0:
                    self._show(*wait, shown)
                    self._changed.wait(min(wait[0], 1.0))  # also woken when a call ends; a second, to notice `closing`
            self._in_flight += 1
            self._requests.take(1)
            self._tokens.take(tokens)
        slot = _Slot(used=tokens)
        try:
            yield slot
        finally:
            with self._changed:
                self._in_flight -= 1
                self._tokens.take(slot.used - tokens)
                self._changed.notify_all()

    def pause(self, seconds: float, why: str = "the server asks for time") -> None:
        """Start no call for the next `seconds`, a finite number."""
        if not isfinite(seconds):
            raise ValueError(f"a pause of {seconds} s would never end")
        with self._changed:
            until = self.clock() + seconds
            if until > self._not_before:
                self._not_before, self._paused_by = until, why

    def _show(self, wait: float, why: str, shown: ExitStack) -> None:
        """Show a long wait while `shown` is open: one for all calls that wait, and anew if it takes longer."""
        now = self.clock()
        if why and wait > SHOWN_S and now >= self._shown_until:
            shown.close()
            self._shown_until = now + wait
            shown.callback(setattr, self, "_shown_until", 0.0)
            shown.enter_context(waiting(wait, why))

    def _wait(self, tokens: int) -> tuple[float, str]:
        """(seconds until a call may start, 0: now; what it waits for, "": others to end).

        Raises InfraError if the model is being closed.
        """
        if self.closing.is_set():
            raise InfraError("the run is ending", "closed")
        if self.max_in_flight is not None and self._in_flight >= self.max_in_flight:
            return 60.0, ""
        now = self.clock()
        return max(
            (0.0, ""),
            (self._not_before - now, self._paused_by),
            (self._requests.wait(1, now), f"requests_per_min={self.requests_per_min}"),
            (self._tokens.wait(tokens, now), f"tokens_per_min={self.tokens_per_min}"),
        )

    def strictest(self, others: Iterable[Limiter]) -> Limiter:
        """One limiter with the lowest of each limit, for models that share a provider."""
        every, limits = [self, *others], {}
        for name in ("max_in_flight", "requests_per_min", "tokens_per_min"):
            known = [limit for limiter in every if (limit := getattr(limiter, name)) is not None]
            limits[name] = min(known, default=None)
        return Limiter(**limits, closing=self.closing, clock=self.clock)


@dataclass
class _Slot:
    used: int


class _Bucket:
    """A token bucket, full at first, refilled by `per_min` a minute. It may fall below zero."""

    def __init__(self, per_min: int | None, now: float) -> None:
        self._per_min, self._level, self._at = per_min, float(per_min or 0), now

    def wait(self, amount: float, now: float) -> float:
        if self._per_min is None:
            return 0.0
        self._level = min(self._per_min, self._level + (now - self._at) * self._per_min / 60)
        self._at = now
        missing = min(amount, self._per_min) - self._level  # a call larger than the bucket starts when it is full
        return max(0.0, missing) * 60 / self._per_min

    def take(self, amount: float) -> None:
        self._level -= amount
