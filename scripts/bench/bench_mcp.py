"""How fast the bank is over MCP: start, retrieval over stdio at 10 000 records, 8 clients writing at once.

python -m scripts.bench.bench_mcp [--json FILE] [--records 10000] [--clients 8] [--lessons 500]
Every client and every server is a process of its own, as in use; times are the client's, protocol included. The bank is
synthetic: variations of 500 questions, embedded once, with noise added for each record. Each query is a new text."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder, MiniLMEmbedder
from core.types import Lesson, MemoryRecord
from scripts.bench.bench_memory import made_record, make_bank
from scripts.bench.lines import Lines, lines_parser
from scripts.command_line import REPO, script

QUERIES, WARM, STARTS, BASE = 220, 20, 7, 500
VERBS = "sort parse cache retry encrypt stream merge index schedule validate".split()
THINGS = "log file,web request,database table,user session,image folder,message queue,test suite,config,graph,report"
HOW = "in Python,under load,without locks,from a cron job,on a small machine"
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}},
}


def question(number: int) -> str:
    """One of BASE tasks."""
    things, how = THINGS.split(","), HOW.split(",")
    return f"{VERBS[number % 10]} a {things[number // 10 % 10]} {how[number // 100 % 5]}"


def open_bank(path: Path, embedder: Any) -> MemoryBank:
    return MemoryBank(path=str(path), embedder=embedder, policy=Cosine())


def fill_bank(path: Path, embedder: Any, n: int) -> None:
    """Make a bank of n records whose vectors lie around those of the questions."""
    rng = np.random.default_rng(0)
    base = embedder.embed([question(number) for number in range(BASE)])
    rows = base[np.arange(n) % BASE]
    rows = rows + rng.standard_normal(rows.shape, dtype=np.float32) * 0.5 / rows.shape[1] ** 0.5
    rows = np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
    make_bank(open_bank(path, embedder), map(record, range(n)), rows)


def record(number: int) -> MemoryRecord:
    """A record with one lesson of some 300 characters."""
    task = f"{question(number)} (case {number})"
    content = f"When you {task}, look at the input first, then at what may fail. Write the check before the loop. " * 3
    lesson = Lesson(title=f"Look first, case {number}", description=f"For: {task}", content=content)
    return made_record(number, task, lesson)


def command(bank: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "mcp_server", "--bank", str(bank), *options]


def start_s(bank: Path) -> float:
    """Seconds from starting a server to its answer to `initialize`."""
    begin = time.perf_counter()
    server = subprocess.Popen(command(bank), cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    server.stdin.write(json.dumps(HELLO).encode() + b"\n")
    server.stdin.flush()
    answer = server.stdout.readline()
    took = time.perf_counter() - begin
    server.stdin.close()
    server.wait(timeout=30)
    assert b'"serverInfo"' in answer, answer
    return took


def cpu_s() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def client(bank: Path, *options: str) -> Any:
    """The SDK's client with a server of its own."""
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    line = command(bank, *options)
    return Client(StdioServerParameters(command=line[0], args=line[1:], cwd=REPO))


async def retrieval_ms(bank: Path) -> list[float]:
    """Milliseconds of each retrieve_memory, the first ones left out."""
    times = []
    async with client(bank) as open_client:
        for number in range(QUERIES):
            query = f"{question(number * 7)}, variation {number} of the task"
            begin = time.perf_counter()
            result = await open_client.call_tool("retrieve_memory", {"query": query, "top_k": 3})
            times.append((time.perf_counter() - begin) * 1e3)
            assert len(result.structured_content["memories"]) == 3, result
    return times[WARM:]


async def write(bank: Path, name: str, lessons: int) -> None:
    """One client of the many: so many lessons, one after the other."""
    async with client(bank) as open_client:
        for number in range(lessons):
            lesson = {"query": f"{question(number)} for {name}", "title": f"{name} lesson {number}"}
            lesson["content"] = f"Written by {name} as number {number}: {question(number * 3)} only after a check."
            result = await open_client.call_tool("save_lesson", lesson)
            assert result.structured_content["status"] == "saved", result


def writers(bank: Path, clients: int, lessons: int) -> tuple[int, int, float]:
    """(clients that failed, lessons in the bank, seconds)."""
    words = script("bench.bench_mcp", "--write", bank, "--lessons", lessons, "--name")
    fill_bank(bank, HashingEmbedder(), 1)
    begin = time.perf_counter()
    running = [subprocess.Popen([*words, f"client {number}"], cwd=REPO) for number in range(clients)]
    failed = sum(process.wait() != 0 for process in running)
    took = time.perf_counter() - begin
    opened = open_bank(bank, HashingEmbedder())
    there = sum(record.provenance.get("source") == "mcp" for record in opened.records())
    opened.close()
    return failed, there, took


def main() -> None:
    options = lines_parser(__doc__)
    options.add_argument("--records", type=int, default=10_000)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--lessons", type=int, default=500)
    options.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # be one of the clients
    options.add_argument("--name", default="client", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.write is not None:
        asyncio.run(write(given.write, given.name, given.lessons))
        return
    lines = Lines()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        before = cpu_s()
        started = [start_s(path / "empty.sqlite") for _ in range(STARTS)]
        note = f"best {min(started):.2f} s, of the CPU {(cpu_s() - before) / STARTS:.2f} s"
        lines.add("start, to the answer to initialize (median)", statistics.median(started), 2, "s", note=note)
        for name, embedder, limit in (("with minilm", MiniLMEmbedder(), 40), ("hashed words", HashingEmbedder(), 10)):
            fill_bank(path / name, embedder, given.records)
            times = asyncio.run(retrieval_ms(path / name))
            note = f"p95 {statistics.quantiles(times, n=20)[-1]:.2f} ms"
            line = f"retrieve_memory over stdio, {given.records} records, {name}, p50"
            lines.add(line, statistics.median(times), limit, "ms", note=note)
        failed, there, took = writers(path / "shared.sqlite", given.clients, given.lessons)
    line, note = (
        f"lessons there, {given.clients} clients x {given.lessons}",
        f"{took:.0f} s, {there / took:.0f} a second",
    )
    lines.add(line, there, given.clients * given.lessons, "", least=True, note=note)
    lines.add("clients that met an error", failed, 0, "")
    lines.end(given.json)


if __name__ == "__main__":
    main()
