"""One call of a tool from the command line: on a bank that is opened for it, or on a running server."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult

from core.errors import UserError
from mcp_server.options import open_service


def call_tool(
    given: argparse.Namespace, name: str, arguments: dict[str, Any], *, queue_without_model: bool = False
) -> CallToolResult:
    """A tool's result. Raises UserError with the tool's own sentence where the tool reports an error.

    given                 the options of `bank_or_server_options`
    queue_without_model   queue an extraction although no model is configured here, for a server on the same bank
    """
    if (given.url is None) == (given.bank is None):
        raise UserError("say where the memory is: --bank PATH, or --url URL of a running server.")
    if given.url is not None:
        result = asyncio.run(_ask_server(given.url, os.environ.get(given.token_env, ""), name, arguments))
        if result.is_error:
            raise UserError(result.content[0].text)
        return result
    from mcp_server.server import build_server

    service = open_service(given)
    service.queue_without_model = queue_without_model
    try:
        server, _ = build_server(service, "all")
        return asyncio.run(server.call_tool(name, arguments))
    except ToolError as error:
        raise UserError(str(error)) from error
    finally:
        service.close()


async def _ask_server(url: str, token: str, name: str, arguments: dict[str, Any]) -> CallToolResult:
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import MCPError

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=600))
    try:
        async with http, Client(streamable_http_client(url, http_client=http)) as client:
            return await client.call_tool(name, arguments)
    except* (MCPError, httpx2.HTTPError, OSError) as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise UserError(f"{url} does not answer as a memory server: {first or type(first).__name__}.") from None
