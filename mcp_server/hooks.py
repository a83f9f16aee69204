"""Commands for a client's hooks: `hook retrieve` before a task, `hook extract` after it. Both read JSON on stdin.

A hook must not get in the client's way: whatever goes wrong is one line on stderr and exit code 1, which clients
ignore (2 would stop the prompt).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from mcp_server.cli import call_tool
from mcp_server.config import bank_or_server_options

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
    answer = call_tool(given, "retrieve_memory", {"query": query, "top_k": given.top_k, "agent_id": given.agent_id})
    prompt = answer.structured_content["formatted_prompt"]
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
