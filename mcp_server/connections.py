"""What a client may hold without working on a request: file descriptors and time, until its request is there.

uvicorn waits for ever for the head of a request and for its body, and takes connections until no descriptor is left;
then nobody is served, and nothing is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

log = logging.getLogger(__name__)

HEAD_S = 20.0  # seconds that a client may take to send the head of a request
BODY_S = 60.0  # seconds that the server waits for a client that sends a body; more with each byte that comes
BODY_RATE = 500.0  # bytes of a body that earn one more second
KEPT_BACK = 40  # descriptors for the bank, its locks, the model and the server itself
LEAST = 8  # connections, however few descriptors there are
SAY_S = 10.0  # the same is logged once in this time
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections() -> int | None:
    """How many connections the process's limit of descriptors allows; None: there is no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(soft - KEPT_BACK, LEAST)


class Body:
    """ASGI `receive` for one request: a client that is too slow with its body counts as gone, and is `late`.

    Only the time that the server waits counts. Once the body is whole, what follows (that the client leaves) has no
    limit, so that a stream may last for hours.
    """

    def __init__(self, receive: Any) -> None:
        self._receive, self._left, self._whole, self.late = receive, BODY_S, False, False

    async def __call__(self) -> dict:
        if self._whole:
            return await self._receive()
        began = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(self._left, 0.001))
        except TimeoutError:
            self._left, self.late = 0.0, True
            return {"type": "http.disconnect"}
        self._left += len(message.get("body", b"")) / BODY_RATE - (time.monotonic() - began)
        self._whole = not message.get("more_body", False)
        return message


class Connections:
    """The rules for all connections of a server: who has sent no whole head after HEAD_S, or must give way, is ended.

    most   connections at once. One more ends the connection that has waited longest for its client, if there is one;
           else its request is answered by 503 (uvicorn's limit_concurrency). None: no limit
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._said: dict[str, float] = {}

    def protocol(self) -> type:
        """uvicorn's protocol class with these rules."""
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        rules = self

        class Protocol(AutoHTTPProtocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                self.since = time.monotonic()  # it waits for its client since then
                self.watch = self.loop.call_later(HEAD_S, rules.look, self)
                rules.make_room(self)

            def on_response_complete(self) -> None:
                super().on_response_complete()
                self.since = time.monotonic()

            def connection_lost(self, exc: Exception | None) -> None:
                self.watch.cancel()
                super().connection_lost(exc)

        return Protocol

    def look(self, connection: Any) -> None:
        """End a connection whose client has been sending a head for HEAD_S; else look again when that may be so."""
        waits = _waits(connection, for_body=False)
        left = HEAD_S - (time.monotonic() - connection.since) if waits else HEAD_S
        if left > 0:
            connection.watch = connection.loop.call_later(left, self.look, connection)
        else:
            self._end(connection, f"a client did not send the head of a request within {HEAD_S:.0f} s: 408")

    def make_room(self, newest: Any) -> None:
        """End the connections that have waited longest for their clients, until there is room for the newest."""
        others = newest.connections - {newest}
        while self.most is not None and len(others) >= self.most - 1:
            waiting = [each for each in others if _waits(each, for_body=True)]
            if not waiting:
                self._say(f"{self.most} connections are open, each with a request at work: more are answered by 503")
                return
            oldest = min(waiting, key=lambda each: each.since)
            others.discard(oldest)
            self._end(
                oldest, f"{self.most} connections are open: of those without a whole request the oldest gives way"
            )

    def _end(self, connection: Any, why: str) -> None:
        self._say(why)
        connection.connections.discard(connection)
        if not connection.transport.is_closing():
            connection.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            connection.transport.close()

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said.get(text, -SAY_S) >= SAY_S:
            self._said[text] = now
            log.warning(f"{text}.")


def _waits(connection: Any, *, for_body: bool) -> bool:
    """Whether the server has no whole head of a request on a connection, or with for_body no whole request."""
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return True
    return for_body and cycle.more_body and not cycle.response_started
