"""What a client may hold without working on a request: file descriptors and time, until its request is there.

uvicorn waits for ever for the head of a request and for its body, and takes connections until no descriptor is left;
then nobody is served, and nothing is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any, Literal

log = logging.getLogger(__name__)

HEAD_S = 20.0  # seconds that a client may take to send the head of a request
BODY_S = 60.0  # seconds that the server waits for a client that sends a body; more with each byte that comes
BODY_RATE = 500.0  # bytes of a body that earn one more second
KEPT_BACK = 40  # descriptors for the bank, its locks, the model and the server itself
LEAST = 8  # connections, however few descriptors there are
SAY_S = 10.0  # the same is logged once in this time
MOST_SAID = 1_000  # texts that are known to have been logged
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections() -> int | None:
    """How many connections the process's limit of descriptors allows; None: there is no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(soft - KEPT_BACK, LEAST)


class Seldom:
    """Warnings that clients can cause: each is logged once in SAY_S, so that nobody fills a disk with them."""

    def __init__(self) -> None:
        self._said: dict[Any, float] = {}

    def warn(self, text: str, about: str = "") -> None:
        """about: what texts that differ in a number are about, and are one for."""
        if self.is_due(about or text):
            log.warning(f"{text}.")

    def is_due(self, what: Any) -> bool:
        """Whether this was not said within SAY_S; it counts as said now."""
        now = time.monotonic()
        due = now - self._said.get(what, -SAY_S) >= SAY_S
        if due:
            if len(self._said) >= MOST_SAID:
                self._said.clear()
            self._said[what] = now
        return due


class SeldomFilter(logging.Filter):
    """A filter of one handler: what a line of another library logs is written once in SAY_S, and then how often."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = Seldom()
        self._left_out: Counter[tuple[str, int]] = Counter()  # by the line that logs

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.pathname, record.lineno
        if record.name.partition(".")[0] in ("core", "mcp_server"):
            return True
        if not self._seldom.is_due(line):
            self._left_out[line] += 1
            return False
        if n := self._left_out.pop(line, 0):
            record.msg, record.args = f"{record.getMessage()} (and {n} more, not written)", None
        return True


class Body:
    """The body of a request, read before the application sees the request: ASGI `receive`, once it has arrived.

    most   bytes; of a longer body as much is read as shows that it is, and the application refuses it
    """

    def __init__(self, receive: Any, most: int) -> None:
        self.most, self._receive = most, receive
        self._messages: list[dict] = []

    async def arrive(self) -> Literal["whole", "late", "left"]:
        """Wait for the body. late: the client was too slow. left: it has gone. Only waiting for the client counts."""
        time_left, size = BODY_S, 0
        while size <= self.most:
            began = time.monotonic()
            try:
                message = await asyncio.wait_for(self._receive(), max(time_left, 0.001))
            except TimeoutError:
                return "late"
            if message["type"] == "http.disconnect":
                return "left"
            self._messages.append(message)
            if not message.get("more_body", False):
                break
            size += len(message["body"])
            time_left += len(message["body"]) / BODY_RATE - (time.monotonic() - began)
        return "whole"

    async def __call__(self) -> dict:
        return self._messages.pop(0) if self._messages else await self._receive()


class ConnectionRules:
    """The rules for all connections of a server: who has sent no whole head after HEAD_S, or must give way, is ended.

    most   connections at once. One more ends the connection that has waited longest for its client, if there is one;
           else its request is answered by 503 (uvicorn's limit_concurrency). None: no limit
    """

    def __init__(self, most: int | None) -> None:
        self.most, self._seldom = most, Seldom()

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
                self._seldom.warn(
                    f"{self.most} connections are open, each with a request at work: more are answered by 503"
                )
                return
            oldest = min(waiting, key=lambda each: each.since)
            others.discard(oldest)
            self._end(
                oldest, f"{self.most} connections are open: of those without a whole request the oldest gives way"
            )

    def _end(self, connection: Any, why: str) -> None:
        self._seldom.warn(why)
        connection.connections.discard(connection)
        if not connection.transport.is_closing():
            connection.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            connection.transport.close()


def _waits(connection: Any, *, for_body: bool) -> bool:
    """Whether the server has no whole head of a request on a connection, or with for_body no whole request."""
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return True
    return for_body and cycle.more_body and not cycle.response_started
