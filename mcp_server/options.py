"""Options that several commands share: which bank is meant, and the settings typed after them."""

from __future__ import annotations

import argparse
from pathlib import Path

TOKEN_ENV = "REASONINGBANK_MCP_TOKEN"  # the variable that holds the bearer token, unless another is named


def bank_options(sub: argparse.ArgumentParser, required: bool = True) -> None:
    """The options of everything that opens a bank."""
    sub.add_argument("--bank", type=Path, required=required, metavar="PATH", help="the bank's SQLite file")
    sub.add_argument("--embedder", metavar="NAME", help="of a new bank: all-MiniLM-L6-v2, hashing-256, ...")
    sub.add_argument("--require-agent-id", action="store_true", help="refuse calls that do not say whose memory")
    sub.add_argument("overrides", nargs="*", metavar="key=value", help="preset=NAME, llm=NAME, retrieval.top_k=3, ...")


def where_options(sub: argparse.ArgumentParser) -> None:
    """Which bank is meant: a file, or a server that has one open and its embedder warm."""
    bank_options(sub, required=False)
    sub.add_argument("--url", metavar="URL", help="a running server instead of --bank, e.g. http://127.0.0.1:8765/mcp")
    sub.add_argument("--token-env", default=TOKEN_ENV, metavar="NAME", help="its bearer token")
