"""The servers of `llm.api_base`: a call goes to the one with the fewest in flight, past those that are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from core.errors import UserError

REST_S = 10.0  # that a server is left alone after it broke off, was slow, or could not be reached; or as it asks


def listed(api_base: str | list[str] | None) -> list[str]:
    """The addresses of `api_base`; none where the provider's own is meant. UserError for what is no list of them."""
    if api_base is None:
        return []
    found = [api_base] if isinstance(api_base, str) else api_base
    addresses = isinstance(found, Sequence) and all(isinstance(each, str) for each in found)
    if not addresses or not found or len(set(found)) < len(found):
        raise UserError(f"api_base={api_base}: give an address, or a list of different ones.")
    return list(found)


@dataclass(kw_only=True)
class Replicas:
    """Shared by the calls of one model. Thread-safe.

    urls   copies of one model; [] is the provider's own address, given as None
    """

    urls: list[str]
    clock: Callable[[], float] = time.monotonic
    _in_flight: dict[str | None, int] = field(default_factory=dict, init=False)
    _rests: dict[str | None, float] = field(default_factory=dict, init=False)  # until when
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @contextmanager
    def one(self) -> Iterator[str | None]:
        """The address for one call: of equals the first, so that a run of few calls keeps to one prompt cache."""
        with self._lock:
            now, known = self.clock(), self.urls or [None]
            ready = [url for url in known if self._rests.get(url, 0.0) <= now]
            url = min(ready or known, key=lambda url: (0.0 if ready else self._rests[url], self._in_flight.get(url, 0)))
            self._in_flight[url] = self._in_flight.get(url, 0) + 1
        try:
            yield url
        finally:
            with self._lock:
                self._in_flight[url] -= 1

    def rest(self, url: str | None, seconds: float | None = None) -> bool:
        """Leave a server alone, for REST_S where it does not say how long; whether another one is ready."""
        with self._lock:
            self._rests[url] = self.clock() + (seconds or REST_S)
        return self.ready()

    def ready(self) -> bool:
        """Whether there is a server that is not left alone."""
        with self._lock:
            now = self.clock()
            return any(self._rests.get(url, 0.0) <= now for url in self.urls)
