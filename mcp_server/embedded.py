"""The bank's process of a program that embeds it (reasoningbank_harness/__init__.py): requests in, answers out.

A request is a line of JSON, [what, arguments]; its answer [number of the request, result, error], where the first is 1,
and 0 stands for opening the bank. Nothing but answers is on stdout. The process ends with its stdin.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import closing
from typing import Any

from core.errors import InfraError, UserError
from mcp_server.config import bank_options
from mcp_server.extraction import QueueWorker
from mcp_server.recall import recall
from mcp_server.service import Service, open_service
from mcp_server.tool_call import call
from mcp_server.tools import MemoryTools


def run_embedded(argv: list[str]) -> int:
    """Serve the requests on stdin; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then closes its bank
    answers = os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n")
    os.dup2(2, 1)

    def answer(number: int, result: Any = None, error: str | None = None) -> None:
        print(json.dumps([number, result, error]), file=answers, flush=True)

    sub = argparse.ArgumentParser(prog="open_bank", exit_on_error=False)
    bank_options(sub)
    try:
        service = open_service(sub.parse_intermixed_args(argv))
    except (UserError, InfraError, argparse.ArgumentError) as error:
        answer(0, error=str(error))
        return 2
    with closing(service):
        answer(0)
        for number, line in enumerate(sys.stdin.buffer, 1):
            what, arguments = json.loads(line)
            try:
                result = REQUESTS[what](service, **arguments)
            except (UserError, InfraError) as error:
                answer(number, error=service.said(error))
            else:
                answer(number, result)
    return 0


def retrieve(service: Service, query: str, top_k: int | None = None, agent_id: str = "") -> dict[str, Any]:
    found = recall(service, query, top_k, agent_id)
    lessons = [
        {"id": hit.record.id, "title": item.title, "description": item.description, "content": item.content}
        | {"task": hit.record.original_query, "outcome": hit.record.outcome, "score": hit.score}
        for hit in found.hits
        for item in hit.record.items
    ]
    return {"lessons": lessons, "text": found.prompt}


def learn(service: Service, query: str, trajectory: list[Any], success: bool | None = None, agent_id: str = "") -> Any:
    given = {"query": query, "trajectory": trajectory, "success_signal": success, "agent_id": agent_id}
    learned = of_tool(service, "extract_memory", given | {"async_mode": False})
    titles = [lesson["title"] for lesson in learned["memories"]]
    return {"id": learned["memory_id"], "success": learned["success"], "titles": titles, "state": learned["state"]}


def add(service: Service, **given: Any) -> str:
    return of_tool(service, "save_lesson", given)["memory_id"]


def of_tool(service: Service, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The data of a tool's result."""
    return call(MemoryTools(service, QueueWorker(service)), tool, arguments).structured_content


REQUESTS = {"retrieve": retrieve, "learn": learn, "add": add}
