"""reasoningbank-mcp client NAME: the settings with which an MCP client starts this installation's server."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from core.memory.open import file_of
from mcp_server.config import bank_options, bank_path

NAME = "reasoningbank"
# {client: (its file, the key above the server's name, more that it wants)}; Codex reads TOML
CLIENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "claude": (".mcp.json of a project", "mcpServers", {}),
    "cursor": (".cursor/mcp.json, or ~/.cursor/mcp.json for all projects", "mcpServers", {}),
    "vscode": (".vscode/mcp.json", "servers", {"type": "stdio"}),
    "codex": ("~/.codex/config.toml", "mcp_servers", {}),
    "zed": ("settings.json", "context_servers", {}),
}


def run_client(argv: list[str]) -> int:
    """Print a client's settings on stdout, and on stderr where they go; returns the exit code."""
    top = argparse.ArgumentParser(prog="reasoningbank-mcp client", description=(__doc__ or "").partition(": ")[2])
    top.add_argument("client", choices=CLIENTS)
    bank_options(top)
    given = top.parse_intermixed_args(argv)
    file, above, more = CLIENTS[given.client]
    command, *arguments = server_command(given)
    if given.client == "codex":
        print(f"[{above}.{NAME}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}")
    else:
        print(json.dumps({above: {NAME: more | {"command": command, "args": arguments}}}, indent=2, ensure_ascii=False))
    say = f"put this into {file}"
    if given.client == "claude":
        say += f", or run: claude mcp add {NAME} -- {shlex.join([command, *arguments])}"
    print(f"{say}.", file=sys.stderr)
    return 0


def server_command(given: argparse.Namespace) -> list[str]:
    """The server of this installation, by absolute paths: a client has neither its PATH nor its working directory."""
    beside = shutil.which("reasoningbank-mcp", path=str(Path(sys.executable).parent))
    words = [beside] if beside else [sys.executable, "-m", "mcp_server"]
    if given.bank is not None:
        path = bank_path(given)
        words += ["--bank", path if file_of(path) is None else str(Path(path).absolute())]
    if given.config is not None:
        words += ["--config", str(given.config.expanduser().absolute())]
    words += ["--embedder", given.embedder] if given.embedder else []
    words += ["--require-agent-id"] if given.require_agent_id else []
    return [*words, *given.overrides]
