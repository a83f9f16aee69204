"""The tools by hand: reasoningbank-mcp TOOL --bank PATH --query ..., on a bank or on a server that is running."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult

from core.errors import UserError
from mcp_server import tools
from mcp_server.__main__ import bank_options


def call(argv: list[str]) -> int:
    """Run one command; the exit code."""
    if argv[0] == "hook":
        from mcp_server.hooks import run

        return run(argv[1:])
    known = {tool.name: tool for tool in tools.build(tools.Tools(None, None, None, None), "all")}
    if argv[0] not in known:
        raise UserError(f"{argv[0]} is no command: give --bank PATH to serve, hook, or one of {', '.join(known)}.")
    tool = known[argv[0]]
    given = options(tool).parse_intermixed_args(argv[1:])
    arguments = {
        name: value(name, text, schema)
        for name, schema in tool.parameters["properties"].items()
        if (text := getattr(given, name)) is not None
    }
    result = ask(given, tool.name, arguments)
    print(json.dumps(result.structured_content, ensure_ascii=False) if given.json else result.content[0].text)
    return 0


def options(tool: Tool) -> argparse.ArgumentParser:
    """A tool's arguments as options."""
    sub = argparse.ArgumentParser(prog=f"reasoningbank-mcp {tool.name}", description=tool.description)
    where_options(sub)
    sub.add_argument("--json", action="store_true", help="the result's data instead of its text")
    for name, schema in tool.parameters["properties"].items():
        kind = schema["type"]
        text = kind if kind in ("string", "integer") else f"{kind}, as JSON; @FILE reads a file, - stdin"
        required = name in tool.parameters.get("required", ())
        sub.add_argument(f"--{name.replace('_', '-')}", dest=name, required=required, metavar="VALUE", help=text)
    return sub


def where_options(sub: argparse.ArgumentParser) -> None:
    """Which bank is meant: a file, or a server that has one open and its embedder warm."""
    bank_options(sub, required=False)
    sub.add_argument("--url", metavar="URL", help="a running server instead of --bank, e.g. http://127.0.0.1:8765/mcp")
    sub.add_argument("--token-env", default="REASONINGBANK_MCP_TOKEN", metavar="NAME", help="its bearer token")


def value(name: str, text: str, schema: dict[str, Any]) -> Any:
    """An option's text as the tool wants it."""
    if schema["type"] == "string":
        return text
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise UserError(f"--{name.replace('_', '-')} {text[:100]} cannot be read: {error.strerror}.") from error
    except ValueError:
        raise UserError(f"--{name.replace('_', '-')} is no JSON: give a {schema['type']}.") from None


def ask(given: argparse.Namespace, name: str, arguments: dict[str, Any], *, hands_over: bool = False) -> CallToolResult:
    """A tool's result. UserError with the tool's own sentence where it has none.

    hands_over   queue an extraction without a model of one's own: a server on the same bank has one
    """
    if (given.url is None) == (given.bank is None):
        raise UserError("say where the memory is: --bank PATH, or --url URL of a running server.")
    if given.url is not None:
        result = asyncio.run(_ask_server(given.url, os.environ.get(given.token_env, ""), name, arguments))
        if result.is_error:
            raise UserError(result.content[0].text)
        return result
    from mcp_server.config import load
    from mcp_server.server import build
    from mcp_server.service import Service

    service = Service(
        given.bank.expanduser(), load(given.overrides), embedder=given.embedder, require_agent=given.require_agent_id
    )
    service.hands_over = hands_over
    try:
        server, _ = build(service, "all")
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
