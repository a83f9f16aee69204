"""A fair limit on open sessions: when all are taken, the one that was idle longest gives way to a client that asks.

Clients often leave without ending their session. With tokens the tenant with the most sessions loses one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pydantic_core
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from mcp_server.connections import Seldom

log = logging.getLogger(__name__)

IDLE_S = 1800.0  # the SDK ends a session after this time without a request
_HEADER, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
_PASSED_ON = (b"host", b"origin")  # headers that the SDK checks before it accepts a request


@dataclass
class OpenSession:
    """An open session.

    end   the scope for a DELETE request that ends it: copied from the request that opened it, so that the SDK accepts
          its Host and Origin, and with the tenant that `mcp_server.http.Gate` set
    """

    end: dict
    served: Counter[str] = field(default_factory=Counter)  # requests in progress, by method
    at: float = 0.0  # when the last one ended

    @property
    def tenant(self) -> str:
        return tenant_of(self.end)

    def is_over(self) -> bool:
        return not self.served.total() and time.monotonic() - self.at > IDLE_S


class FairSessions:
    """ASGI middleware around the SDK's application, which limits the sessions of all tenants together to `most`.

    Without tokens of tenants all clients count as one tenant.

    A request for a session beyond `most` gets one: of the tenant with the most sessions, the session that was idle
    longest is ended, as if its client had done so; a session with a call in progress only if all of that tenant's have
    one. The client of an ended session gets a 404 and opens a new one. Sessions that are being opened count as well but
    cannot be ended: the SDK refuses a tenant that has the most through these alone.
    """

    def __init__(self, app: Any, most: int) -> None:
        self._app, self._most = app, most
        self._open: OrderedDict[str, OpenSession] = OrderedDict()  # by id, the longest idle first
        self._coming: Counter[str] = Counter()  # sessions that are being opened, by tenant
        self._seldom = Seldom()

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (id := (_first(scope["headers"], _HEADER) or b"").decode("latin-1")) == "":
            await self._opening(scope, receive, send)
        else:
            await self._within(id, scope, receive, send)

    async def _within(self, id: str, scope: dict, receive: Any, send: Any) -> None:
        """Serve a request within a session; the SDK refuses it if this tenant has no such session."""
        session, method = self._open.get(id), scope["method"]
        if session is None or session.tenant != tenant_of(scope):
            await self._app(scope, receive, send)
            return
        status = 0

        async def watched(message: dict) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        with self._at_work(id, session, method):
            await self._app(scope, receive, watched)
        # A 404 tells the client that the session is gone. It may have meant the path: what is not counted is ended.
        if (status == 404 or (method == "DELETE" and status == 200)) and self._open.pop(id, None) is not None:
            await self._end(id, session)

    async def _opening(self, scope: dict, receive: Any, send: Any) -> None:
        """Serve a request that may open a session."""
        headers = [(name, value) for name, value in scope["headers"] if name in _PASSED_ON]
        end, tenant = scope | {"method": "DELETE", "headers": headers}, tenant_of(scope)
        coming, session, body = False, None, bytearray()

        async def received() -> dict:
            nonlocal coming
            message = await receive()
            body.extend(message.get("body", b""))
            whole = message["type"] == "http.request" and not message.get("more_body", False)
            # Now the SDK opens the session, and not while a slow client is still sending.
            if whole and not coming and _asks_for_a_session(scope, bytes(body)):
                coming = await self._make_room(tenant)
            return message

        async def watched(message: dict) -> None:
            nonlocal coming, session
            starts = message["type"] == "http.response.start" and message["status"] < 400
            if starts and (id := _first(message.get("headers", ()), _HEADER)):
                self._coming[tenant] -= coming
                coming = False
                end["headers"] = [*headers, (_HEADER, id)]
                session = self._open[id.decode("latin-1")] = OpenSession(end, Counter([scope["method"]]))
            await send(message)

        try:
            await self._app(scope, received, watched)
        finally:
            self._coming[tenant] -= coming
            if session is not None:
                session.served[scope["method"]] -= 1
                session.at = time.monotonic()

    @contextmanager
    def _at_work(self, id: str, session: OpenSession, method: str) -> Iterator[None]:
        session.served[method] += 1
        self._open.move_to_end(id)
        try:
            yield
        finally:
            session.served[method] -= 1
            session.at = time.monotonic()
            if id in self._open:
                self._open.move_to_end(id)

    async def _make_room(self, asker: str) -> bool:
        """End sessions until there is room, and count the new one as coming. False: the asker's own are the most."""
        for id in [id for id, session in self._open.items() if session.is_over()]:
            del self._open[id]
        while len(self._open) + self._coming.total() >= self._most:
            opened = Counter(session.tenant for session in self._open.values())
            count = opened + self._coming
            tenant = max(opened, key=lambda name: (count[name], name == asker), default=asker)
            if not opened[asker] and count[asker] >= count[tenant]:
                return False
            theirs = [id for id, session in self._open.items() if session.tenant == tenant]
            # An open GET stream waits for nothing that would be lost; the answer to a POST would be.
            id = min(theirs, key=lambda id: self._open[id].served["POST"] > 0)
            self._seldom.warn(
                f"server.max_sessions={self._most} are open: the one that was silent longest gives way"
                + (f", of {tenant}, which has {count[tenant]}" if tenant else ""),
                about=tenant,
            )
            await self._end(id, self._open.pop(id))
        self._coming[asker] += 1
        return True

    async def _end(self, id: str, session: OpenSession) -> None:
        """End a session as its client would, by a DELETE. The SDK may have ended it already (404)."""

        async def nothing() -> dict:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def heard(message: dict) -> None:
            if (status := message.get("status", 200)) not in (200, 404):
                log.error(f"A session of {session.tenant} could not be ended: status {status}.")

        await self._app(dict(session.end), nothing, heard)


def tenant_of(scope: dict) -> str:
    """The tenant of a request's token; "" without tokens of tenants."""
    user = scope.get("user")
    return "" if user is None else user.access_token.client_id


def _first(headers: Any, name: bytes) -> bytes | None:
    """The value of the first header of this name, which is the one that the SDK uses; None without one."""
    return next((value for each, value in headers if each == name), None)


def _asks_for_a_session(scope: dict, body: bytes) -> bool:
    """Whether the SDK opens a session for a request: only for `initialize`, in protocol versions with a handshake."""
    version = _first(scope["headers"], _VERSION)
    later = version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS
    if later or scope["method"] != "POST" or b'"initialize"' not in body:
        return False
    try:
        asked = pydantic_core.from_json(body)
    except ValueError:
        return False  # the SDK says so to the client
    return isinstance(asked, dict) and asked.get("method") == "initialize"
