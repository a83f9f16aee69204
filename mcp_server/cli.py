"""The tools on the command line: reasoningbank-mcp TOOL --bank PATH --query ..., or --url of a running server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult

from core.errors import InfraError, UserError
from mcp_server.ace import AceTools
from mcp_server.config import bank_or_server_options, open_service
from mcp_server.insights import AllTools
from mcp_server.server import build_server, list_tools

if TYPE_CHECKING:
    from mcp.client.client import Client

# How a command asks a memory server: whatever is wrong with the server is one sentence.


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


def run_command(argv: list[str]) -> int:
    """Call one tool and print its result; returns the exit code."""
    profile = chosen_profile(argv)
    known = {tool.name: tool for tool in list_tools(profile, AceTools() if profile == "ace" else AllTools())}
    if argv[0] not in known:
        raise UserError(
            f"{argv[0]} is no command: give --bank PATH to serve, hook, audit, or one of {', '.join(known)}."
        )
    tool = known[argv[0]]
    given = tool_parser(tool).parse_intermixed_args(argv[1:])
    arguments = {
        name: parse_argument(name, text, schema)
        for name, schema in tool.parameters["properties"].items()
        if (text := getattr(given, name)) is not None
    }
    result = call_tool(given, tool.name, arguments, profile=profile)
    print(json.dumps(result.structured_content, ensure_ascii=False) if given.json else result.content[0].text)
    return 0


def chosen_profile(argv: list[str]) -> str:
    """The tools that a command line means, by its --tools: all, unless it says ace."""
    return profile_option().parse_known_args(argv)[0].tools


def profile_option() -> argparse.ArgumentParser:
    """The option that says which of two tools of one name is meant."""
    option = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    option.add_argument("--tools", choices=("all", "ace"), default="all", help="ace: by mcp-learning-memory's names")
    return option


def tool_parser(tool: Tool) -> argparse.ArgumentParser:
    """The command line of a tool: each of its arguments is an option."""
    prog = f"reasoningbank-mcp {tool.name}"
    sub = argparse.ArgumentParser(prog=prog, description=tool.description, parents=[profile_option()])
    bank_or_server_options(sub)
    sub.add_argument("--json", action="store_true", help="the result's data instead of its text")
    for name, schema in tool.parameters["properties"].items():
        kind = schema["type"]
        text = kind if kind in ("string", "integer") else f"{kind}, as JSON; @FILE reads a file, - stdin"
        required = name in tool.parameters.get("required", ())
        sub.add_argument(f"--{name.replace('_', '-')}", dest=name, required=required, metavar="VALUE", help=text)
    return sub


def parse_argument(name: str, text: str, schema: dict[str, Any]) -> Any:
    """A tool's argument from the text of its option: as it is for a string, otherwise read as JSON."""
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


def call_tool(
    given: argparse.Namespace,
    name: str,
    arguments: dict[str, Any],
    *,
    profile: str = "all",
    queue_without_model: bool = False,
) -> CallToolResult:
    """A tool's result. Raises UserError with the tool's own sentence where the tool reports an error.

    given                 the options of `bank_or_server_options`
    queue_without_model   queue an extraction although no model is configured here, for a server on the same bank
    """
    if given.url is not None and given.bank is not None:
        raise UserError("say where the memory is: --bank PATH, or --url URL of a running server.")
    if given.url is not None:
        server = running_server(given.url, os.environ.get(given.token_env, ""))
        result = talk(given.url, server, lambda client: client.call_tool(name, arguments))
        if result.is_error:
            raise UserError(result.content[0].text)
        return result
    service = open_service(given)
    service.queue_without_model = queue_without_model
    try:
        server, _ = build_server(service, profile)
        return asyncio.run(server.call_tool(name, arguments))
    except ToolError as error:
        raise UserError(str(error)) from error
    finally:
        service.close()


# Commands for a client's hooks: `hook retrieve` before a task, `hook extract` after it. Both read JSON on stdin.
#
# A hook must not get in the client's way: whatever goes wrong is one line on stderr and exit code 1, which clients
# ignore (2 would stop the prompt).

MAX_TURN = 4000  # characters kept of one turn
MAX_TURNS = 400  # only the last ones are sent
MAX_CHARS = 900_000  # of all turns together: below the server's limit for a trajectory


def run_hook(argv: list[str]) -> int:
    """Run `hook retrieve` or `hook extract`; returns the exit code."""
    top = argparse.ArgumentParser(prog="reasoningbank-mcp hook", description=__doc__.split("\n\n")[0])
    top.add_argument("what", choices=("retrieve", "extract"))
    bank_or_server_options(top)
    top.add_argument("--top-k", type=int, default=3)
    top.add_argument("--agent-id", default="", help="whose memory")

    def refuse(message: str) -> None:
        raise UserError(message)

    top.error = refuse  # argparse itself would exit with 2
    name = top.prog
    try:
        given = top.parse_intermixed_args(argv)
        name += f" {given.what}"
        event = json.loads(sys.stdin.read())
        if given.what == "retrieve":
            print(retrieve(given, event), end="")
        else:
            extract(given, event)
    except (UserError, InfraError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


def retrieve(given: argparse.Namespace, event: dict[str, Any]) -> str:
    """The lessons for the prompt that was just submitted, as text for the model's context; "" when none fit."""
    query = event["prompt"].strip()[:8000]
    if not query:
        return ""
    found = call_tool(given, "retrieve_memory", {"query": query, "top_k": given.top_k, "agent_id": given.agent_id})
    prompt = found.structured_content["formatted_prompt"]
    return f"{prompt}\n" if prompt else ""


def extract(given: argparse.Namespace, event: dict[str, Any]) -> None:
    """Queue the session's conversation; a server on this bank that has a model learns from it."""
    turns = list(read_turns(Path(event["transcript_path"]).expanduser()))
    query = next((turn["content"] for turn in turns if turn["role"] == "user"), "")
    if not any(turn["role"] == "assistant" for turn in turns) or not query.strip():
        return
    arguments = {"query": query[:8000], "trajectory": last_turns(turns), "agent_id": given.agent_id}
    call_tool(given, "extract_memory", arguments | {"async_mode": True}, queue_without_model=True)


def last_turns(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """The last turns, as many as a server takes."""
    sizes = accumulate(len(turn["content"]) for turn in reversed(turns[-MAX_TURNS:]))
    return turns[len(turns) - sum(size <= MAX_CHARS for size in sizes) :]


def read_turns(path: Path) -> Iterator[dict[str, str]]:
    """{role, content} of each turn in a client's transcript: lines of JSON with a message, made of text or blocks."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            message = json.loads(line).get("message") or {}
        except (ValueError, AttributeError):
            continue
        role, content = message.get("role"), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role not in ("user", "assistant") or not isinstance(blocks, list):
            continue
        for block in blocks:
            kind, text = block.get("type"), ""
            if kind == "text":
                text = block.get("text", "")
            elif kind == "tool_use":
                text = f"{block.get('name')}({json.dumps(block.get('input'), ensure_ascii=False)})"
            elif kind == "tool_result":
                inner = block.get("content", "")
                text = inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)
            if text.strip():
                speaker = "tool" if kind == "tool_result" else role
                yield {"role": speaker, "content": text[:MAX_TURN]}
