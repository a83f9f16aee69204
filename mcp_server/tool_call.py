"""A tool as a function of plain data, without the SDK: its parameters, and a call whose arguments are checked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from inspect import Parameter, signature
from typing import Any, get_type_hints

import msgspec

from core.errors import UserError
from mcp_server import checks
from mcp_server.tools import CallToolResult, MemoryTools


def tool_names() -> list[str]:
    """The names of all tools."""
    return [name for name in vars(MemoryTools) if not name.startswith("_")]


@cache
def parameters(tool: str) -> dict[str, tuple[Any, bool]]:
    """{parameter: (its type, whether it must be given)} of a tool."""
    function = getattr(MemoryTools, tool)
    kinds = get_type_hints(function)
    found = {name: each.default is Parameter.empty for name, each in signature(function).parameters.items()}
    return {name: (kinds[name], needed) for name, needed in found.items() if name != "self"}


def call(tools: MemoryTools, tool: str, arguments: dict[str, Any]) -> CallToolResult:
    """Call a tool with plain data, as JSON has it. Raises UserError for what does not fit its parameters."""
    needed = [name for name, (_, needed) in parameters(tool).items() if needed]
    return getattr(tools, tool)(**dict(_converted(tool, checks.given(arguments, needed))))


def _converted(tool: str, arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, (kind, needed) in parameters(tool).items():
        if name in arguments:
            try:
                yield name, msgspec.convert(arguments[name], kind)
            except msgspec.ValidationError as error:
                raise UserError(f"{tool}: {name}: {str(error).replace('`', '')}.") from error
        elif needed:
            raise UserError(f"{tool}: {name} is missing.")
