"""The fair limit on sessions for the old transport SSE, where a session is the stream of the GET that opened it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from mcp_server.sessions import FairSessions, OpenSession, tenant_of

PATH = "/sse"
_ID = re.compile(rb"session_id=([0-9a-f]{32})")  # in the first event: where the client sends its messages


@dataclass
class OpenStream(OpenSession):
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class FairStreams(FairSessions):
    """As FairSessions; a session is ended as if its client had left the stream."""

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == PATH:
            await self._stream(scope, receive, send)
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        id = query.get("session_id", [""])[0].replace("-", "").lower()
        session = self._open.get(id)
        if session is None or session.tenant != tenant_of(scope):
            await self._app(scope, receive, send)  # which answers 404
            return
        with self._at_work(id, session, scope["method"]):
            await self._app(scope, receive, send)

    async def _stream(self, scope: dict, receive: Any, send: Any) -> None:
        id, session, starts = "", OpenStream(scope, Counter([scope["method"]])), 0

        async def received() -> dict:
            """What the client sends, or that it has left; that also once the session gives way."""
            heard, ended = asyncio.ensure_future(receive()), asyncio.ensure_future(session.ended.wait())
            try:
                await asyncio.wait((heard, ended), return_when=asyncio.FIRST_COMPLETED)
                return {"type": "http.disconnect"} if ended.done() else heard.result()
            finally:
                heard.cancel()
                ended.cancel()

        async def watched(message: dict) -> None:
            nonlocal id, starts
            starts += message["type"] == "http.response.start"
            if starts > 1:  # the SDK answers the request once more when its stream has ended
                return
            if not id and (found := _ID.search(message.get("body", b""))):  # now the SDK has accepted the request
                id = found[1].decode()
                counted = await self._make_room(session.tenant)
                self._coming[session.tenant] -= counted
                self._open[id] = session
            await send(message)

        try:
            await self._app(scope, received, watched)
        finally:
            self._open.pop(id, None)

    async def _end(self, id: str, session: OpenStream) -> None:
        session.ended.set()
