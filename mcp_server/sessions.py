"""Who has which session open, so that no tenant takes all of them: where they are taken, who has most gives one up."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

IDLE_S = 1800.0  # without a request, after which the SDK ends a session
_HEADER = b"mcp-session-id"
_PASSED_ON = (b"host", b"origin")  # what the SDK checks before it listens to a request


@dataclass
class _Session:
    """An open session. user: the tenant, as `mcp_server.http.Gate` has noted it in the scope of its requests."""

    user: Any
    n_requests: int = 0  # that are being served
    at: float = 0.0  # when the last one ended

    @property
    def tenant(self) -> str:
        return _tenant(self.user)

    def is_over(self) -> bool:
        return not self.n_requests and time.monotonic() - self.at > IDLE_S


class FairSessions:
    """ASGI, around the SDK's application, whose requests name their tenant: a session more for one tenant is one less
    for the others.

    While `most` are open, whoever asks for another gets it: of the tenant that has most of them, the one that was
    silent longest is ended, as if its client had done so. That client is told that there is no such session, and opens
    a new one.
    """

    def __init__(self, app: Any, most: int) -> None:
        self._app, self._most = app, most
        self._open: OrderedDict[str, _Session] = OrderedDict()  # by their ids, that which was silent longest first
        self._coming = 0  # sessions that are being opened

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or (user := scope.get("user")) is None:
            await self._app(scope, receive, send)
        elif (id := dict(scope["headers"]).get(_HEADER, b"").decode("latin-1")) == "":
            await self._opening(user, scope, receive, send)
        else:
            await self._within(id, scope, receive, send)

    async def _within(self, id: str, scope: dict, receive: Any, send: Any) -> None:
        """Serve a request of a session, if there is such a one of this tenant's."""
        session = self._open.get(id)
        if session is None or session.tenant != _tenant(scope["user"]):
            await self._app(scope, receive, send)
            return
        status = 0

        async def watched(message: dict) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        with self._at_work(id, session):
            await self._app(scope, receive, watched)
        if status == 404 or (scope["method"] == "DELETE" and status == 200):
            self._open.pop(id, None)

    async def _opening(self, user: Any, scope: dict, receive: Any, send: Any) -> None:
        """Serve a request that may open a session."""
        before, coming, id, body = dict(scope), False, "", bytearray()

        async def received() -> dict:
            nonlocal coming
            message = await receive()
            body.extend(message.get("body", b""))
            whole = message["type"] == "http.request" and not message.get("more_body", False)
            # Now the SDK opens the session, and not while a slow client is still sending.
            if whole and not coming and b'"initialize"' in body:
                coming = True
                self._coming += 1
                await self._make_room(user, before)
            return message

        async def watched(message: dict) -> None:
            nonlocal coming, id
            if message["type"] == "http.response.start":
                self._coming -= coming
                coming = False
                id = dict(message.get("headers", ())).get(_HEADER, b"").decode("latin-1")
                if id and message["status"] < 400:
                    self._open[id] = _Session(user, n_requests=1)
            await send(message)

        try:
            await self._app(scope, received, watched)
        finally:
            self._coming -= coming
            if (session := self._open.get(id)) is not None:
                session.n_requests, session.at = session.n_requests - 1, time.monotonic()

    @contextmanager
    def _at_work(self, id: str, session: _Session) -> Iterator[None]:
        session.n_requests += 1
        self._open.move_to_end(id)
        try:
            yield
        finally:
            session.n_requests, session.at = session.n_requests - 1, time.monotonic()
            if id in self._open:
                self._open.move_to_end(id)

    async def _make_room(self, user: Any, scope: dict) -> None:
        """End sessions until one more is none too many. scope: of the request that asks for it."""
        for id in [id for id, session in self._open.items() if session.is_over()]:
            del self._open[id]
        while self._open and len(self._open) + self._coming > self._most:
            count = Counter(session.tenant for session in self._open.values())
            tenant = max(count, key=lambda name: (count[name], name == _tenant(user)))
            id = next(id for id, session in self._open.items() if session.tenant == tenant)
            log.warning(
                f"server.max_sessions={self._most} are open: the one of {tenant} that was silent longest gives way, "
                f"as {tenant} has {count[tenant]}."
            )
            await self._end(id, self._open.pop(id), scope)

    async def _end(self, id: str, session: _Session, scope: dict) -> None:
        """End a session as its client would, by a DELETE."""
        headers = [(name, value) for name, value in scope["headers"] if name in _PASSED_ON]
        request = scope | {"method": "DELETE", "user": session.user, "headers": [*headers, (_HEADER, id.encode())]}

        async def nothing() -> dict:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def unread(message: dict) -> None:
            pass

        await self._app(request, nothing, unread)


def _tenant(user: Any) -> str:
    return user.access_token.client_id
