"""The MCP server: the SDK's server with this project's tools and prompts, and errors in one sentence."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    TextContent,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from mcp_types import Tool as MCPTool
from pydantic import ValidationError

from core.errors import InfraError, UserError
from core.redact import RedactingFilter, Redactor
from core.version import package_version
from mcp_server import checks, texts
from mcp_server.extraction import QueueWorker
from mcp_server.service import Service
from mcp_server.tokens import WRITE
from mcp_server.tools import READ_ONLY, MemoryTools

NAME = "reasoningbank"
WHOSE = ("agent_id", "agent")  # names for whose memory it is: such an argument is never ignored
MOST_IGNORED = 100  # names of ignored arguments that are remembered, and each said once
# Tools, and the arguments that are listed of each in a conversation; all arguments are taken.
CORE = {
    "retrieve_memory": "query top_k",
    "save_lesson": "query title content success",
    "update_lesson": "memory_id title content",
    "delete_lesson": "memory_id",
    "mark_helpful": "memory_id",
    "mark_harmful": "memory_id",
    "get_detail": "memory_id",
    "bank_status": "",
    "extract_memory": "query trajectory success_signal",
    "task_status": "task_id",
}
MORE = "add_insight list_index search_insights export_memory contrast_attempts".split()
ACE = (
    "add_insight list_index search_insights get_detail mark_helpful mark_harmful delete_insight export_memory"
).split()
ACE_NAMES = {"memory_id": "id"}  # {argument of a tool: its name in the profile ace}
PROFILES = {"core": tuple(CORE), "all": (*CORE, *MORE), "ace": tuple(ACE)}
ASK_A_MODEL = ("extract_memory", "task_status", "contrast_attempts")
log = logging.getLogger(__name__)
DESTRUCTIVE = ("delete_lesson", "delete_insight", "add_insight")  # which may overwrite


class BankServer(MCPServer):
    """An MCPServer whose tool errors say what to do, and which refuses arguments that a tool does not know."""

    def __init__(self, service: Service, profile: str, **options: Any) -> None:
        super().__init__(NAME, **options)
        self.ignored: set[str] = set()  # arguments of clients that no tool takes
        self.service, self.profile = service, profile

    async def list_tools(self) -> list[MCPTool]:
        """As the SDK's, without those that cannot work here, such as one that asks a model where none is configured."""
        without = set() if self.service.has_model else {*ASK_A_MODEL}
        tools = [tool for tool in await super().list_tools() if tool.name not in without]
        if self.service.bank.read_only:
            tools = [tool for tool in tools if tool.name in READ_ONLY]
        return [self._in_short(tool) for tool in tools] if self.profile == "core" else tools

    def _in_short(self, tool: MCPTool) -> MCPTool:
        """A tool with the arguments that are listed of it, and agent_id where a call may need one.

        Of objects in a list those fields are listed that each needs.
        """
        named = self.service.require_agent or (self.service.settings.anonymous == "all" and not self.service.bound)
        listed = [*CORE[tool.name].split(), *(["agent_id"] if named else [])]
        known = tool.input_schema["properties"]
        schema = tool.input_schema | {"properties": {name: _needed(known[name]) for name in listed if name in known}}
        return tool.model_copy(update={"input_schema": schema})

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        request_context = getattr(context, "_request_context", None)
        self.service.caller.set(caller_of(request_context))  # for this task and for the thread that serves it
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            names = ", ".join(each.name for each in await self.list_tools())
            raise ToolError(f"there is no tool {name[:60]}: {names}.")
        if name not in READ_ONLY and not may_write(request_context):
            raise ToolError(f"your token may only read: {name} needs one with the scope for writing.")
        known = tool.parameters["properties"]
        arguments = checks.given(arguments, tool.parameters.get("required", ()))
        for key in [key for key in arguments if key not in known]:
            if _is_near(key, (*known, *WHOSE)):
                raise ToolError(f"{name} takes no argument {key[:60]}: it takes {', '.join(known)}.")
            self._ignore(key)
        ours = {theirs: own for own, theirs in ACE_NAMES.items() if theirs in known}
        arguments = {ours.get(key, key): value for key, value in arguments.items() if key in known}
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {_first_problem(error.__cause__)}") from error.__cause__
            if isinstance(error.__cause__, UserError | InfraError):
                about = f"{name}, asked by {self.service.caller.get() or 'a client'}: {error.__cause__}"
                log.log(logging.INFO if isinstance(error.__cause__, UserError) else logging.ERROR, about)
                raise ToolError(self.service.said(error.__cause__)) from error
            if error.__cause__ is None or not self.service.bound:
                raise
            log.error(f"the tool {name} failed", exc_info=error)
            raise ToolError(f"{type(error.__cause__).__name__} in the server, see its log") from error

    def _ignore(self, key: str) -> None:
        """Ignore an argument that a client adds to every call, such as n8n's toolCallId; say so once."""
        if key not in self.ignored and len(self.ignored) < MOST_IGNORED:
            log.warning(f"no tool takes the client's argument {key[:60]!r}: it is ignored, here and from now on.")
            self.ignored.add(key)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """As the SDK's, but what the client did wrong is the protocol's error for that (-32602), in one sentence."""
        prompt = self._prompt_manager.get_prompt(name)
        if prompt is None:
            known = ", ".join(each.name for each in self._prompt_manager.list_prompts())
            raise MCPError(INVALID_PARAMS, f"there is no prompt {name[:60]}: {known or 'none'}.")
        given = arguments = checks.given(
            arguments or {}, [each.name for each in prompt.arguments or () if each.required]
        )
        for argument in prompt.arguments or ():
            if argument.required and argument.name not in given:
                raise MCPError(INVALID_PARAMS, f"the prompt {name} needs the argument {argument.name}.")
        if wrong := [key for key, value in given.items() if not isinstance(value, str)]:
            raise MCPError(INVALID_PARAMS, f"the prompt {name}: the argument {wrong[0][:60]} must be a text.")
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            raise MCPError(INVALID_PARAMS, f"the prompt {name}: {str(error)[:300]}") from error

    async def run_stdio_async(self) -> None:
        """As the SDK's, which drops a line that is no message: here its client gets the protocol's error."""
        async with stdio_server() as (lines, answers), anyio.create_task_group() as group:
            into, messages = anyio.create_memory_object_stream(0)
            group.start_soon(answer_unreadable, lines, into, answers.clone())
            server = self._lowlevel_server
            await server.run(messages, answers, server.create_initialization_options())
            group.cancel_scope.cancel()


def _needed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an argument; of a list of objects with the fields that they need alone."""
    items = schema.get("items", {})
    if "properties" not in items:
        return schema
    fields = {name: items["properties"][name] for name in items["required"]}
    return schema | {"items": {"type": items["type"], "properties": fields}}


async def answer_unreadable(lines: Any, into: Any, answers: Any) -> None:
    """Pass on the messages of a client, and answer each line that is none by a JSON-RPC error."""
    async with into, answers:
        async for line in lines:
            if not isinstance(line, Exception):
                await into.send(line)
            elif (message := without_mark(line)) is not None:
                await into.send(SessionMessage(message))
            elif (error := error_of(line)) is not None:
                await answers.send(SessionMessage(error))


def without_mark(unreadable: Exception) -> Any:
    """The message of a line that begins with a byte order mark, as PowerShell writes it; None for any other line."""
    text, message = _read(unreadable)
    if message is not None or not text.startswith("\ufeff"):
        return None
    try:
        return jsonrpc_message_adapter.validate_json(text.lstrip("\ufeff"), by_name=False)
    except ValidationError:
        return None


def error_of(unreadable: Exception) -> JSONRPCError | None:
    """The answer to a line that is no message, with its id if that can be read; None for an empty line."""
    text, message = _read(unreadable)
    if not text.strip() and message is None:
        return None
    code, says, id = INVALID_REQUEST, "the line is no message of JSON-RPC 2.0.", None
    try:
        message = json.loads(text) if message is None else message[0]  # takes half a surrogate pair, unlike the SDK
        id = message.get("id") if isinstance(message, dict) else None
        if any("\ud800" <= sign <= "\udfff" for sign in json.dumps(message, ensure_ascii=False)):
            code, says = PARSE_ERROR, "the line holds half a surrogate pair."
    except (ValueError, RecursionError):
        code, says = PARSE_ERROR, "the line holds no JSON that can be read."
    return JSONRPCError(jsonrpc="2.0", id=id if _can_be_sent(id) else None, error=ErrorData(code=code, message=says))


def _can_be_sent(id: Any) -> bool:
    """Whether the client's id can stand in an answer: half a surrogate pair cannot."""
    if isinstance(id, str):
        return not any("\ud800" <= sign <= "\udfff" for sign in id)
    return isinstance(id, int) and not isinstance(id, bool) and abs(id) < 2**63


def _read(unreadable: Exception) -> tuple[str, tuple[Any] | None]:
    """(the line, its value in a tuple if it is JSON): what pydantic says that it could not read."""
    errors = unreadable.errors() if isinstance(unreadable, ValidationError) else []
    if not errors or errors[0]["type"] == "json_invalid":
        return (str(errors[0]["input"]) if errors else ""), None
    # A message of no kind lacks a field of some kind, and that error holds all of it; the first may hold a part.
    whole = next((each for each in errors if each["type"] == "missing" and len(each["loc"]) == 2), errors[0])
    return "", (whole["input"],)


def _is_near(key: str, known: Iterable[str]) -> bool:
    """Whether an argument is a known one written in another way (agentid, topK), or with a typing error."""
    from rapidfuzz.distance import OSA  # counts two letters in the wrong order as one error

    def plain(name: str) -> str:
        return name.replace("_", "").replace("-", "").lower()

    def errors(name: str) -> int:
        return 1 if len(name) > 2 else 0  # one letter from `id` are names of all kinds

    return any(OSA.distance(plain(key), plain(name)) <= errors(name) for name in known)


def caller_of(request_context: Any) -> str | None:
    """The tenant in scope["user"], which `TokenBackend` (http.py) has found; None if there is none."""
    user = _user_of(request_context)
    return user.access_token.client_id if user is not None else None


def may_write(request_context: Any) -> bool:
    """Whether the token of a request allows to write, or none is asked for."""
    user = _user_of(request_context)
    return user is None or WRITE in user.scopes


def _user_of(request_context: Any) -> Any:
    request = getattr(request_context, "request", None)
    return request.scope.get("user") if request is not None else None


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
    if ace and service.settings.holdout is not None:
        raise UserError("--tools ace has no retrieve_memory, which server.holdout is about: leave out one of them.")
    worker, extract = QueueWorker(service), texts.EXTRACT if service.has_model else ""
    server = BankServer(
        service,
        profile,
        title="ReasoningBank",
        instructions=texts.ACE_INSTRUCTIONS if ace else texts.INSTRUCTIONS.format(extract=extract),
        version=package_version(),
        tools=list_tools(profile, MemoryTools(service, worker)),
        log_level="WARNING",
        subscriptions=False,
    )
    prompts = (texts.start_task, texts.finish_task, texts.matts_parallel, texts.matts_sequential)
    for function in () if ace else prompts:  # they name tools that the profile ace lacks
        server.add_prompt(Prompt.from_function(function))
    return server, worker


def redact_logs(redact: Redactor, logger: str | None = None) -> None:
    """Redact secrets in all that a logger's handlers write from now on. logger: its name; None: the root logger."""
    for handler in logging.getLogger(logger).handlers:
        handler.addFilter(RedactingFilter(redact))


def list_tools(profile: str, tools: MemoryTools) -> list[Tool]:
    """The tools of a profile (core | all | ace) in the SDK's form, with shortened schemas (`_slim`).

    All that is listed costs each conversation tokens: of annotations what differs from the protocol's defaults is said.
    """
    listed = []
    for name in PROFILES[profile]:
        hints = None if name in DESTRUCTIVE else ToolAnnotations(destructive_hint=False)
        if name in READ_ONLY:
            hints = ToolAnnotations(read_only_hint=True)
        tool = Tool.from_function(in_form_of_sdk(getattr(tools, name)), annotations=hints, structured_output=False)
        tool.parameters = _slim(tool.parameters)
        if profile == "ace":  # one memory, `memory.namespace`, or with --tokens the caller's
            given, needed = tool.parameters["properties"], tool.parameters.get("required", [])
            tool.parameters["properties"] = {ACE_NAMES.get(key, key): given[key] for key in given if key != "agent_id"}
            tool.parameters |= {"required": [ACE_NAMES.get(key, key) for key in needed]} if needed else {}
        listed.append(tool)
    return listed


def in_form_of_sdk(tool: Callable[..., Any]) -> Callable[..., CallToolResult]:
    """A tool that returns its result in the SDK's class."""

    @wraps(tool)
    def called(*given: Any, **named: Any) -> CallToolResult:
        made = tool(*given, **named)
        text = TextContent(type="text", text=made.text)
        return CallToolResult(content=[text], structured_content=made.structured_content)

    return called


def _slim(schema: Any, parts: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A JSON schema without titles that pydantic derives from names, empty defaults, what is so anyway, and references.

    parts   the schemas that it refers to, which are put in their place: some clients do not follow references
    """
    if isinstance(schema, list):
        return [_slim(part, parts) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _slim(parts[schema["$ref"].rpartition("/")[2]], parts)
    parts = {**parts, **schema.get("$defs", {})}
    schema = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    schema.pop("$defs", None)
    if schema.get("default", 0) in (None, "", [], {}):
        schema.pop("default")
    if schema.get("additionalProperties") is True:
        del schema["additionalProperties"]
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema |= kinds[0]
    return {key: _slim(value, parts) for key, value in schema.items()}
