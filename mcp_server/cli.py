"""The tools on the command line: reasoningbank-mcp TOOL --bank PATH --query ..."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver.tools import Tool

from core.errors import UserError
from mcp_server.client import call_tool
from mcp_server.insights import AllTools
from mcp_server.options import bank_or_server_options
from mcp_server.server import list_tools


def run_command(argv: list[str]) -> int:
    """Run one command and print its result; returns the exit code."""
    if argv[0] == "hook":
        from mcp_server.hooks import run_hook

        return run_hook(argv[1:])
    known = {tool.name: tool for tool in list_tools("all", AllTools())}
    if argv[0] not in known:
        raise UserError(f"{argv[0]} is no command: give --bank PATH to serve, hook, or one of {', '.join(known)}.")
    tool = known[argv[0]]
    given = tool_parser(tool).parse_intermixed_args(argv[1:])
    arguments = {
        name: parse_argument(name, text, schema)
        for name, schema in tool.parameters["properties"].items()
        if (text := getattr(given, name)) is not None
    }
    result = call_tool(given, tool.name, arguments)
    print(json.dumps(result.structured_content, ensure_ascii=False) if given.json else result.content[0].text)
    return 0


def tool_parser(tool: Tool) -> argparse.ArgumentParser:
    """The command line of a tool: each of its arguments is an option."""
    sub = argparse.ArgumentParser(prog=f"reasoningbank-mcp {tool.name}", description=tool.description)
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
