"""A tool on the command line: reasoningbank TOOL --bank PATH --query ..., or --url of a running server.

`running_server` and `talk` are the client of such a server. Without --url nothing of the SDK is imported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from inspect import getdoc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from core.errors import InfraError, UserError
from core.textfile import read_text
from mcp_server.config import TOKEN_ENV, bank_or_server_options, bank_path, has_bank
from mcp_server.extraction import QueueWorker
from mcp_server.service import open_service
from mcp_server.tool_call import call, parameters, tool_names
from mcp_server.tools import READ_ONLY, CallToolResult, MemoryTools

if TYPE_CHECKING:
    from mcp.client.client import Client


def run_tool(argv: list[str]) -> int:
    """Call one tool and print its result; returns the exit code."""
    tool, known = argv[0], tool_names()
    if tool not in known:
        raise UserError(f"{tool} is no command: give --bank PATH to serve, hook, audit, or one of {', '.join(known)}.")
    given = tool_parser(tool).parse_intermixed_args(argv[1:])
    arguments = {
        name: text if kind is str else parse_argument(name, text)
        for name, (kind, _) in parameters(tool).items()
        if (text := getattr(given, name)) is not None
    }
    result = call_tool(given, tool, arguments)
    print(json.dumps(result.structured_content, ensure_ascii=False) if given.json else result.text)
    return 0


def tool_parser(tool: str) -> argparse.ArgumentParser:
    """The command line of a tool: each of its parameters is an option."""
    sub = argparse.ArgumentParser(prog=f"reasoningbank {tool}", description=getdoc(getattr(MemoryTools, tool)))
    bank_or_server_options(sub)
    sub.add_argument("--json", action="store_true", help="the result's data instead of its text")
    for name, (kind, needed) in parameters(tool).items():
        text = "text" if kind is str else "as JSON; @FILE reads a file"
        sub.add_argument(f"--{name.replace('_', '-')}", dest=name, required=needed, metavar="VALUE", help=text)
    return sub


def parse_argument(name: str, text: str) -> Any:
    """A tool's argument from the JSON text of its option."""
    option = f"--{name.replace('_', '-')} {text[:60]}"
    try:
        return json.loads(read_text(Path(text[1:]), option) if text.startswith("@") else text)
    except ValueError:
        raise UserError(f"{option} is no JSON: give a number, true, [...] or {{...}}.") from None


def call_tool(
    given: argparse.Namespace,
    name: str,
    arguments: dict[str, Any],
    *,
    queue_without_model: bool = False,
) -> CallToolResult:
    """Call a tool and return its result. Raises UserError with the tool's own message if the tool reports an error.

    given                 the options of `bank_or_server_options`
    queue_without_model   queue an extraction although no model is configured here, for a server on the same bank
    """
    if given.url is not None and given.bank is not None:
        raise UserError("say where the memory is: --bank PATH, or --url URL of a running server.")
    if given.url is not None:
        server = running_server(given.url, token_of(given))
        result = talk(given.url, server, lambda client: client.call_tool(name, arguments))
        text = result.content[0].text
        if result.is_error:
            raise UserError(text)
        return CallToolResult(text=text, structured_content=result.structured_content)
    if name in READ_ONLY and not has_bank(given):
        missing = bank_path(given)
        with TemporaryDirectory() as empty:  # for what is wrong with the arguments
            (file := Path(empty) / "bank.sqlite").touch()
            given.bank = str(file)
            answer_of(given, name, arguments)
        raise UserError(f"there is no bank {missing}, and {name} only looks: it makes none.")
    return answer_of(given, name, arguments, queue_without_model=queue_without_model)


def answer_of(
    given: argparse.Namespace, name: str, arguments: dict[str, Any], *, queue_without_model: bool = False
) -> CallToolResult:
    """The result of a tool on the bank that the options name; see `call_tool`."""
    with closing(open_service(given)) as service:
        service.queue_without_model = queue_without_model
        try:
            return call(MemoryTools(service, QueueWorker(service)), name, arguments)
        except (UserError, InfraError) as error:
            raise UserError(service.said(error)) from error


def token_of(given: argparse.Namespace) -> str:
    """The bearer token for a running server, of the options of `bank_or_server_options`; "" without one."""
    if given.token_file is not None:
        return read_text(given.token_file, f"--token-file {given.token_file}").strip()
    return os.environ.get(given.token_env, "")


@asynccontextmanager
async def running_server(url: str, token: str) -> AsyncIterator[Client]:
    """The SDK's client of the server at an address. token: its bearer token, or empty."""
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async def refused(response: httpx2.Response) -> None:
        if response.status_code in (401, 403):  # the SDK drops the reason
            said = (await response.aread()).decode("utf-8", "replace")
            with suppress(ValueError, KeyError, TypeError):
                said = json.loads(said)["error_description"]
            which = "the token that was sent" if token else "a call without a token"
            raise UserError(
                f"{url} refuses {which}: {' '.join(said.split())[:300]}. The variable {TOKEN_ENV} holds it, or "
                "--token-env NAME or --token-file FILE."
            )

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout, hooks = httpx2.Timeout(30, read=600), {"response": [refused]}
    http = httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks)
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        yield client


def talk(where: str, server: AbstractAsyncContextManager[Client], asked: Callable[[Client], Awaitable[Any]]) -> Any:
    """The result of `asked`, called with the client of a server. where: the server's name in errors.

    Raises UserError if the server does not answer, and for a UserError or InfraError of `asked`, as the client wraps
    errors in exception groups.
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
