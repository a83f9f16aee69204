"""reasoningbank client NAME: the settings with which an MCP client starts this installation's server, or with
--url reaches a running one. With --hooks: those by which it retrieves and learns by itself."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.open import file_of
from mcp_server.config import TOKEN_ENV, bank_options, bank_path, load_config

NAME = "reasoningbank"
LEARNS = (
    "what a session did waits in the bank until a server with a model runs on it, which writes the lessons: give the "
    "client's server llm=NAME, or start one with --transport http llm=NAME."
)


@dataclass(frozen=True, kw_only=True)
class ClientFormat:
    """How a client writes its MCP servers.

    file       where it reads them
    above      the key above a server's name
    starts     what it wants beside a command and its arguments
    reaches    what it wants beside the address of a running server
    url        the key of that address
    variable   how an environment variable is named within a header; None: it cannot be
    hooks      where it reads hooks; "": it has none that are known here
    before     its event before a prompt
    after      its event after a session or a turn
    second     its unit of time-outs in a second
    """

    file: str
    above: str = "mcpServers"
    starts: dict[str, Any] = field(default_factory=dict)
    reaches: dict[str, Any] = field(default_factory=dict)
    url: str = "url"
    variable: str | None = "${env:%s}"
    hooks: str = ""
    before: str = "UserPromptSubmit"
    after: str = "SessionEnd"
    second: int = 1


# fmt: off
CLIENTS = {
    "claude": ClientFormat(file=".mcp.json of a project", reaches={"type": "http"}, variable="${%s}",
                           hooks=".claude/settings.json of a project, or ~/.claude/settings.json"),
    "cursor": ClientFormat(file=".cursor/mcp.json, or ~/.cursor/mcp.json for all projects",
                           hooks=".cursor/hooks.json of a project, or ~/.cursor/hooks.json",
                           before="beforeSubmitPrompt", after="stop"),
    "vscode": ClientFormat(file=".vscode/mcp.json", above="servers", starts={"type": "stdio"},
                           reaches={"type": "http"}),
    "windsurf": ClientFormat(file="~/.codeium/windsurf/mcp_config.json", url="serverUrl"),
    "gemini": ClientFormat(file="~/.gemini/settings.json", url="httpUrl", variable="$%s",
                           hooks=".gemini/settings.json of a project, or ~/.gemini/settings.json",
                           before="BeforeAgent", second=1000),
    "codex": ClientFormat(file="~/.codex/config.toml", above="mcp_servers", after="Stop",  # TOML
                          hooks=".codex/hooks.json of a project, or ~/.codex/hooks.json"),
    "zed": ClientFormat(file="settings.json", above="context_servers", variable=None),
}
# fmt: on


def run_client(argv: list[str]) -> int:
    """Print a client's settings on stdout, and on stderr where they go; returns the exit code."""
    top = argparse.ArgumentParser(prog="reasoningbank client", description=(__doc__ or "").partition(": ")[2])
    top.add_argument("client", choices=CLIENTS)
    bank_options(top)
    top.add_argument("--url", metavar="URL", help="a running server instead of --bank, e.g. http://127.0.0.1:8000/mcp")
    top.add_argument("--token-env", default=TOKEN_ENV, metavar="NAME", help=f"holds its bearer token ({TOKEN_ENV})")
    hooks = [name for name, client in CLIENTS.items() if client.hooks]
    top.add_argument("--hooks", action="store_true", help=f"retrieve before and learn after: {', '.join(hooks)}")
    given = top.parse_intermixed_args(argv)
    load_config(given.overrides)  # what the server would refuse, this refuses
    client = CLIENTS[given.client]
    if given.hooks:
        if not client.hooks:
            raise UserError(f"no hooks of {given.client} are known here: of {', '.join(hooks)}.")
        print(json.dumps(hook_settings(given, client), indent=2, ensure_ascii=False))
        print(f"put this into {client.hooks}.\n{LEARNS}", file=sys.stderr)
        return 0
    settings = reached(given, client) if given.url else started(given, client)
    if given.client == "codex":
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        print(f"[{client.above}.{NAME}]\n{lines}")
    else:
        print(json.dumps({client.above: {NAME: settings}}, indent=2, ensure_ascii=False))
    say = f"put this into {client.file}"
    if given.client == "claude" and not given.url:
        say += f", or run: claude mcp add {NAME} -- {shlex.join([settings['command'], *settings['args']])}"
    print(f"{say}.", file=sys.stderr)
    return 0


def started(given: argparse.Namespace, client: ClientFormat) -> dict[str, Any]:
    """The settings of a server that the client starts, by absolute paths: it has neither our PATH nor our folder."""
    command, *arguments = [*program(), "serve", *bank_words(given)]
    return client.starts | {"command": command, "args": arguments}


def reached(given: argparse.Namespace, client: ClientFormat) -> dict[str, Any]:
    """The settings of a running server; the token itself is not written where the client reads a variable."""
    if given.client == "codex":
        return {client.url: given.url, "bearer_token_env_var": given.token_env}
    token = "TOKEN" if client.variable is None else client.variable % given.token_env
    return client.reaches | {client.url: given.url, "headers": {"Authorization": f"Bearer {token}"}}


def hook_settings(given: argparse.Namespace, client: ClientFormat) -> dict[str, Any]:
    """The hooks that retrieve lessons before a prompt, and queue what was done afterwards."""
    where = bank_words(given)
    if given.url:
        where = ["--url", given.url, *(["--token-env", given.token_env] if given.token_env != TOKEN_ENV else [])]

    def hook(what: str, seconds: int) -> list[dict[str, Any]]:
        command = {"command": shlex.join([*program(), "hook", what, *where]), "timeout": seconds * client.second}
        return [command] if given.client == "cursor" else [{"hooks": [{"type": "command"} | command]}]

    events = {client.before: hook("retrieve", 20), client.after: hook("extract", 20)}
    return ({"version": 1} if given.client == "cursor" else {}) | {"hooks": events}


def program() -> list[str]:
    """This installation's command."""
    beside = shutil.which("reasoningbank", path=str(Path(sys.executable).parent))
    return [beside] if beside else [sys.executable, "-m", "reasoningbank_harness"]


def bank_words(given: argparse.Namespace) -> list[str]:
    """The options of `bank_options` as they were given, with absolute paths."""
    words = []
    if given.bank is not None:
        path = bank_path(given)
        words += ["--bank", path if file_of(path) is None else str(Path(path).absolute())]
    if given.config is not None:
        words += ["--config", str(given.config.expanduser().absolute())]
    words += ["--embedder", given.embedder] if given.embedder else []
    words += ["--require-agent-id"] if given.require_agent_id else []
    return [*words, *given.overrides]
