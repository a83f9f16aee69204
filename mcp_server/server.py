"""The MCP server: the SDK's, with this project's tools and prompts, and errors of one sentence."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from pydantic import ValidationError

from core.errors import InfraError, UserError
from mcp_server import texts, tools
from mcp_server.extraction import AttemptLearner
from mcp_server.insights import Insights
from mcp_server.queue_worker import QueueWorker
from mcp_server.service import Service, own_version

NAME = "reasoningbank"


class BankServer(MCPServer):
    """An MCPServer whose tool errors say what to do about them, and which takes no argument that it does not know."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        arguments = {key: value for key, value in arguments.items() if value is not None}
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            raise ToolError(
                f"there is no tool {name[:60]}: {', '.join(t.name for t in self._tool_manager.list_tools())}."
            )
        known = tool.parameters["properties"]
        if unknown := [key for key in arguments if key not in known]:
            raise ToolError(f"{name} takes no argument {unknown[0][:60]}: it takes {', '.join(known)}.")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {_sentence(error.__cause__)}") from error.__cause__
            if isinstance(error.__cause__, UserError | InfraError):
                raise ToolError(str(error.__cause__)) from error
            raise


def _sentence(error: ValidationError) -> str:
    """What is wrong with the first argument that is."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{name} is missing."
    what = first["msg"].removeprefix("Input ").removesuffix(".")
    return f"{name} {what if what.startswith('should') else 'is wrong: ' + what}, not {type(first['input']).__name__}."


def build(service: Service, profile: str) -> tuple[BankServer, QueueWorker]:
    """The server and the worker that runs beside it."""
    extraction = AttemptLearner(service)
    worker = QueueWorker(service, extraction)
    made = tools.build(tools.Tools(service, Insights(service), extraction, worker), profile)
    server = BankServer(
        NAME,
        title="ReasoningBank",
        instructions=texts.INSTRUCTIONS,
        version=own_version(),
        tools=made,
        log_level="WARNING",
        subscriptions=False,
    )
    for function, text in (
        (texts.start_task, "Begin a task with the lessons of earlier ones."),
        (texts.finish_task, "End a task by keeping what was learned."),
    ):
        server.add_prompt(Prompt.from_function(function, description=text))
    return server, worker
