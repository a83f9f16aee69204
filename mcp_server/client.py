"""How a command asks a memory server: whatever is wrong with the server is one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from core.errors import InfraError, UserError

if TYPE_CHECKING:
    from mcp.client.client import Client


@asynccontextmanager
async def running_server(url: str, token: str) -> AsyncIterator[Client]:
    """The SDK's client of the server at an address. token: its bearer token, or empty."""
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=600))
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        yield client


def talk(where: str, server: AbstractAsyncContextManager[Client], asked: Callable[[Client], Awaitable[Any]]) -> Any:
    """What `asked` makes of the client of a server; where: what a user knows the server by.

    UserError where it does not answer, and for a UserError or InfraError of `asked`: the client wraps all in groups.
    """
    import httpx2
    from mcp.shared.exceptions import MCPError

    async def talked() -> Any:
        async with server as client:
            return await asked(client)

    broken: BaseException | None = None
    try:
        return asyncio.run(talked())
    except* (UserError, InfraError, MCPError, httpx2.HTTPError, OSError) as group:
        broken = group
    while isinstance(broken, BaseExceptionGroup):
        broken = broken.exceptions[0]
    # Not raised above: what is raised in an except* is itself put into a group by Python before 3.11.4.
    if isinstance(broken, UserError | InfraError):
        raise UserError(str(broken))
    why = str(broken).rstrip(".") or type(broken).__name__
    raise UserError(f"{where} does not answer as a memory server: {why}.")
