"""What the files of the parity check share: the table of its rows, clients of real servers, a scripted model."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.servers import mcp_over_http, mcp_over_stdio
from scripts.command_line import REPO, command_of

MODEL = ("llm=scripted", "llm.script.path=benchmarks.mcp_parity_kit.answer")


def answer(messages: list[dict[str, str]], role: str, sample: int) -> str:
    """The scripted model: a judge that reads the last line, a distiller with one lesson, a merger with another."""
    text = messages[-1]["content"]
    if role == "judge":
        return 'Thoughts: the order was found.\nStatus: "success"'
    about = "the whole order history" if "order" in text else "the failing test alone"
    return (
        f"```\n# Memory Item 1\n## Title Complete historical query: {about}\n## Description Look at {about}.\n"
        f"## Content Do not stop at recent entries: open {about} and sort it by date.\n```"
    )


@dataclass
class ParityTable:
    """Each row of a document: what it asks for, whether ours does it (+, ~ otherwise, - not), and why not.

    A row that should hold and does not is a FAULT.
    """

    document: str
    rows: list[tuple[str, str, str]] = field(default_factory=list)  # (row, + ~ - or FAULT, note)

    def row(self, text: str, holds: Any, why: Any = "") -> None:
        """A row that must hold; why: what was seen, shown where it does not."""
        self.rows.append((text, "+" if holds else "FAULT", "" if holds else str(why)[:300]))

    def differs(self, text: str, why: str) -> None:
        """A row that holds otherwise, and why that is meant so."""
        self.rows.append((text, "~", why))

    def absent(self, text: str, why: str) -> None:
        """A row that does not hold, and why that is meant so."""
        self.rows.append((text, "-", why))

    def markdown(self, faults: bool) -> str:
        """The rows in Markdown; faults: only those that fail without a reason."""
        shown = [each for each in self.rows if not faults or each[1] == "FAULT"]
        counts = ", ".join(f"{sum(mark == each for _, mark, _ in self.rows)} {each}" for each in ("+", "~", "-"))
        lines = [f"| {text} | {mark} | {note} |" for text, mark, note in shown]
        return "\n".join((f"**{self.document}**: {counts}", "", "| row | | |", "|---|---|---|", *lines))

    @property
    def faults(self) -> int:
        return sum(mark == "FAULT" for _, mark, _ in self.rows)


@dataclass
class OpenClient:
    """An open client; `tools` are {name: input schema}."""

    client: Any
    tools: dict[str, dict[str, Any]]

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool's structured answer, its text under "text"; {"error": sentence} for an error."""
        result = await self.client.call_tool(tool, arguments)
        text = result.content[0].text if result.content else ""
        if result.is_error:
            return {"error": text}
        return {"text": text, **(result.structured_content or {})}

    def takes(self, tool: str, required: str, optional: str) -> bool:
        """Whether the tool has just these arguments required, and these optional among others."""
        schema = self.tools.get(tool) or {"properties": {}}
        return sorted(schema.get("required", ())) == sorted(required.split()) and not (
            {*required.split(), *optional.split()} - {*schema["properties"]}
        )


def output_of(*words: Any, module: str = "mcp_server") -> str:
    """What a command prints, on both channels; left out: the server's."""
    command = command_of(module, *words)
    done = subprocess.run(command, cwd=REPO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@asynccontextmanager
async def serving(*words: Any, env: dict[str, str] | None = None) -> AsyncIterator[OpenClient]:
    """A session with a server process of its own, over stdio."""
    async with connected(mcp_over_stdio(*words, env=env)) as session:
        yield session


@asynccontextmanager
async def connected(to: Any) -> AsyncIterator[OpenClient]:
    from mcp.client.client import Client

    async with Client(to) as client:
        listed = await client.list_tools()
        yield OpenClient(client=client, tools={tool.name: tool.input_schema for tool in listed.tools})


@contextmanager
def over_sse(bank: Path) -> Iterator[tuple[Any, Callable[[], str]]]:
    """A server over SSE: what a client connects to, and what the server said so far."""
    from mcp.client.sse import sse_client

    with (
        (bank.parent / "sse.log").open("w+") as log,
        mcp_over_http("--bank", bank, "--transport", "sse", log=log) as (port, _),
    ):
        yield sse_client(f"http://127.0.0.1:{port}/sse"), lambda: Path(log.name).read_text()


async def until_done(server: OpenClient, task_id: str, **who: str) -> dict[str, Any]:
    """What task_status says once an extraction is over."""
    status: dict[str, Any] = {}
    for _ in range(300):
        status = await server.ask("task_status", task_id=task_id, **who)
        if status.get("status") != "processing":
            break
        await asyncio.sleep(0.1)
    return status
