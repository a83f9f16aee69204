"""The MCP server: the SDK's server with this project's tools and prompts, and errors in one sentence."""

from __future__ import annotations

import logging
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from core.errors import InfraError, UserError
from core.redact import RedactingFilter, Redactor
from mcp_server import texts
from mcp_server.extraction import QueueWorker
from mcp_server.metrics import Metrics
from mcp_server.service import Service, package_version
from mcp_server.tools import MemoryTools
from mcp_server.tools_ace import AceTools

NAME = "reasoningbank"
CORE = (
    "retrieve_memory extract_memory task_status save_lesson mark_helpful mark_harmful get_detail bank_status"
).split()
MORE = "add_insight list_index search_insights delete_insight export_memory contrast_attempts".split()
ACE = (
    "add_insight list_index search_insights get_detail mark_helpful mark_harmful delete_insight export_memory"
).split()
PROFILES = {"core": CORE, "all": (*CORE, *MORE), "ace": ACE}
READ_ONLY = "retrieve_memory task_status get_detail bank_status list_index search_insights export_memory".split()
ASK_A_MODEL = ("extract_memory", "contrast_attempts")
IDEMPOTENT = (*READ_ONLY, *ASK_A_MODEL, "save_lesson", "add_insight", "delete_insight")
DESTRUCTIVE = ("delete_insight", "add_insight")  # with hard, with overwrite


class BankServer(MCPServer):
    """An MCPServer whose tool errors say what to do, and which refuses arguments that a tool does not know."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(NAME, **options)
        self.service, self.metrics = service, Metrics()

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        known = self._tool_manager.get_tool(name) is not None
        self.service.caller.set(caller_of(context))  # for this task and the thread that runs the tool
        with self.metrics.call(name if known else "unknown"):
            return await self._call(name, arguments, context)

    async def _call(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
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
                raise ToolError(f"{name}: {_first_problem(error.__cause__)}") from error.__cause__
            if isinstance(error.__cause__, UserError | InfraError):
                raise ToolError(self.service.redact(str(error.__cause__))) from error
            raise


def caller_of(context: Any) -> str | None:
    """The tenant in scope["user"], which `Gate.refusal` (http.py) has set; None if there is none."""
    request = getattr(getattr(context, "_request_context", None), "request", None)
    user = request.scope.get("user") if request is not None else None
    return user.access_token.client_id if user is not None else None


def _first_problem(error: ValidationError) -> str:
    """Describe the first invalid argument in one sentence."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{name} is missing."
    what = first["msg"].removeprefix("Input ").removesuffix(".")
    if first["type"] == "literal_error":
        return f"{name} {what}."
    return f"{name} {what if what.startswith('should') else 'is wrong: ' + what}, not {type(first['input']).__name__}."


def build_server(service: Service, profile: str) -> tuple[BankServer, QueueWorker]:
    """The server with the tools of a profile (core | all | ace), and the worker that runs beside it."""
    if (ace := profile == "ace") and service.require_agent:
        raise UserError("--tools ace has no agent_id, as its original: leave out --require-agent-id.")
    worker = QueueWorker(service)
    server = BankServer(
        service,
        title="ReasoningBank",
        instructions=texts.ACE_INSTRUCTIONS if ace else texts.INSTRUCTIONS,
        version=package_version(),
        tools=list_tools(profile, AceTools(service) if ace else MemoryTools(service, worker)),
        log_level="WARNING",
        subscriptions=False,
    )
    prompts = (
        (texts.start_task, "Begin a task with the lessons of earlier ones."),
        (texts.finish_task, "End a task by keeping what was learned."),
        (texts.matts_parallel, "Solve a task k times apart, take the best, learn from the comparison."),
        (texts.matts_sequential, "Solve a task, check and revise the work, learn from the corrections."),
    )
    for function, text in () if ace else prompts:  # they name tools that the profile ace lacks
        server.add_prompt(Prompt.from_function(function, description=text))
    return server, worker


def redact_logs(redact: Redactor, logger: str | None = None) -> None:
    """Redact secrets in all that a logger's handlers write from now on. logger: its name; None: the root logger."""
    for handler in logging.getLogger(logger).handlers:
        handler.addFilter(RedactingFilter(redact))


def list_tools(profile: str, tools: MemoryTools | AceTools) -> list[Tool]:
    """The tools of a profile (core | all | ace) in the SDK's form, with shortened schemas (`_slim`)."""
    listed = []
    for name in PROFILES[profile]:
        annotations = ToolAnnotations(
            read_only_hint=name in READ_ONLY and (profile, name) != ("ace", "get_detail"),  # that notes the use
            destructive_hint=name in DESTRUCTIVE,
            idempotent_hint=name in IDEMPOTENT,
            open_world_hint=name in ASK_A_MODEL,
        )
        tool = Tool.from_function(getattr(tools, name), annotations=annotations, structured_output=False)
        tool.parameters = _slim(tool.parameters)
        listed.append(tool)
    return listed


def _slim(schema: Any) -> Any:
    """A JSON schema without the titles that pydantic derives from names, and without empty defaults."""
    if isinstance(schema, list):
        return [_slim(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if schema.get("default", 0) in (None, "", [], {}):
        schema.pop("default")
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema |= kinds[0]
    return {key: _slim(value) for key, value in schema.items()}
