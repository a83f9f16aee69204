"""Command-line options that several commands share, and the bank that they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_server.service import Service

TOKEN_ENV = "REASONINGBANK_MCP_TOKEN"  # the variable that holds the bearer token, unless another is named


def bank_options(sub: argparse.ArgumentParser, required: bool = True) -> None:
    """The options of every command that opens a bank."""
    sub.add_argument("--bank", type=Path, required=required, metavar="PATH", help="the bank's SQLite file")
    sub.add_argument("--embedder", metavar="NAME", help="of a new bank: all-MiniLM-L6-v2, hashing-256, ...")
    sub.add_argument("--require-agent-id", action="store_true", help="refuse calls that do not say whose memory")
    sub.add_argument("overrides", nargs="*", metavar="key=value", help="preset=NAME, llm=NAME, retrieval.top_k=3, ...")


def bank_or_server_options(sub: argparse.ArgumentParser) -> None:
    """The options of a command that calls a tool: on a bank's file, or on a running server, which is faster."""
    bank_options(sub, required=False)
    sub.add_argument("--url", metavar="URL", help="a running server instead of --bank, e.g. http://127.0.0.1:8765/mcp")
    sub.add_argument("--token-env", default=TOKEN_ENV, metavar="NAME", help="its bearer token")


def open_service(given: argparse.Namespace) -> Service:
    """The bank that the options of `bank_options` name, opened with the configuration typed after them."""
    from mcp_server.config import load_config
    from mcp_server.service import Service

    path, cfg = given.bank.expanduser(), load_config(given.overrides)
    return Service(path, cfg, embedder=given.embedder, require_agent=given.require_agent_id)
