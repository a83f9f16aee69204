"""Connections to servers: each call that is under way has its own, which a later call takes over."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx  # slow to import, so this file is imported where the first client is made

from core.models.routes import certificates, transport

IDLE_S = 5.0  # after which a connection that no call uses is closed


class Bounded(httpx.SyncByteStream):
    """The content of an answer, with a deadline for the whole of it: the request's extension `deadline`.

    httpx's read timeout alone would let a server send one byte a second for ever.

    end   called once it is closed
    """

    def __init__(self, stream: Any, request: Any, end: Callable[[], None]) -> None:
        self._stream, self._request, self._end = stream, request, end

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if time.monotonic() > self._request.extensions.get("deadline", float("inf")):
                raise httpx.ReadTimeout("the answer took longer than the limit", request=self._request)
            yield chunk

    def close(self) -> None:
        self._stream.close()
        end, self._end = self._end, lambda: None  # a stream may be closed more than once
        end()


class OwnConnections(httpx.BaseTransport):
    """A connection for each call that is under way, through the proxy that the environment sets for its address.

    httpx's own pool looks at all its connections before each call: with 128 of them that takes longer than all else.
    """

    def __init__(self) -> None:
        self._idle: dict[Any, deque[tuple[float, Any]]] = defaultdict(deque)  # (idle since when, a connection)
        self._lock = threading.Lock()
        self._certificates = cache(certificates)

    def handle_request(self, request: Any) -> Any:
        url = request.url
        with self._lock:
            idle = self._idle[url.scheme, url.host, url.port]
            one = idle.pop()[1] if idle else None
        one = one or transport(str(url), self._certificates)

        def give_back() -> None:
            now, old = time.monotonic(), []
            with self._lock:
                idle.append((now, one))
                while idle[0][0] < now - IDLE_S:
                    old.append(idle.popleft()[1])
            for each in old:
                each.close()

        try:
            response = one.handle_request(request)
        except BaseException:
            give_back()
            raise
        response.stream = Bounded(response.stream, request, give_back)
        return response

    def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop()[1].close()
