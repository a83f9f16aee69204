"""How fast the bank is over MCP: start, retrieval over stdio at 10 000 records, 8 clients writing or asking at once.

    python -m benchmarks.bench_mcp [--json FILE] [--records 10000] [--clients 8] [--lessons 500] [--quick]

Every client and every server is a process of its own, as in use; times are the client's, protocol included. The bank
holds the records of bench_memory, with vectors around those of 500 questions. Each query is a new text. The clients
that ask at once are connections of one process to one server over HTTP; their requests are written by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_memory import fill_bank, records
from benchmarks.lines import Lines, lines_parser, seconds
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder, MiniLMEmbedder
from scripts.command_line import REPO, command_of

QUERIES, WARM, STARTS, BASE, FEW = 220, 20, 7, 500, 100
PROTOCOL = "2026-07-28"
ABOUT = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = (
    f"Host: 127.0.0.1\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
    f"mcp-protocol-version: {PROTOCOL}\r\nmcp-method: tools/call\r\nmcp-name: retrieve_memory\r\n"
)
SDK = [sys.executable, "-c", "import mcp.server.mcpserver"]
VERBS = "sort parse cache retry encrypt stream merge index schedule validate".split()
THINGS = "log file,web request,database table,user session,image folder,message queue,test suite,config,graph,report"
HOW = "in Python,under load,under a lock,from a cron job,on a small machine"


def mcp_over_stdio(*words: object) -> Any:
    """What the SDK's client starts a server with."""
    from mcp.client.stdio import StdioServerParameters

    program, *arguments = command_of("mcp_server", *words)
    return StdioServerParameters(command=program, args=arguments, cwd=REPO, env={**os.environ})


@contextmanager
def mcp_over_http(*words: object) -> Iterator[tuple[int, int]]:
    """A server on a free port, once it can be reached: (its port, its process id)."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = command_of("mcp_server", "--host", "127.0.0.1", "--port", port, *words)
    process = subprocess.Popen(
        command, cwd=REPO, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended.")
                time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def question(number: int) -> str:
    """One of BASE tasks."""
    things, how = THINGS.split(","), HOW.split(",")
    return f"{VERBS[number % 10]} a {things[number // 10 % 10]} {how[number // 100 % 5]}"


def open_bank(path: Path, embedder: Any, key: str = "query") -> MemoryBank:
    return MemoryBank(path=str(path), embedder=embedder, policy=Cosine(), key=key)


def bank_of_questions(path: Path, embedder: Any, n: int) -> None:
    """A bank of n records whose vectors are those of the questions with noise: a new question finds some near it."""
    rng = np.random.default_rng(0)
    base = embedder.embed([question(number) for number in range(BASE)])
    rows = base[np.arange(n) % BASE]
    rows = rows + rng.standard_normal(rows.shape, dtype=np.float32) * 0.5 / rows.shape[1] ** 0.5
    rows = np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
    fill_bank(open_bank(path, embedder), rows, items="a")


async def start_s(bank: Path) -> float:
    """Seconds from starting a server to its answer to `initialize`."""
    waiting = client(bank, mode="legacy")
    begin = time.perf_counter()
    async with waiting:
        return time.perf_counter() - begin


def first_retrieval(bank: Path) -> tuple[float, float]:
    """(seconds from starting a server to its answer to the first retrieval, MiB of memory that it then has)."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
    asked = {"name": "retrieve_memory", "arguments": {"query": question(1), "top_k": 3}}
    messages = [
        {"id": 0, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": asked},
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    began = time.perf_counter()
    with subprocess.Popen(command_of("mcp_server", "--bank", bank), cwd=REPO, **pipes) as server:
        for message in messages:
            print(json.dumps({"jsonrpc": "2.0", **message}), file=server.stdin, flush=True)
        while json.loads(server.stdout.readline()).get("id") != 1:
            pass
        took = time.perf_counter() - began
        status = Path(f"/proc/{server.pid}/status").read_text()
        server.stdin.close()
    return took, int(status.partition("VmRSS:")[2].split()[0]) / 1024


def hook_retrieve(bank: Path) -> None:
    """What a client runs before each prompt."""
    event = json.dumps({"prompt": question(1)}).encode()
    command = command_of("mcp_server", "hook", "retrieve", "--bank", bank)
    subprocess.run(command, cwd=REPO, input=event, stdout=subprocess.DEVNULL, check=True)


def retrieve_tool(bank: Path) -> None:
    """The tool on the command line."""
    command = command_of("mcp_server", "retrieve_memory", "--bank", bank, "--query", question(1))
    subprocess.run(command, cwd=REPO, stdout=subprocess.DEVNULL, check=True)


def cpu_of(call: Callable[..., object], *arguments: object) -> float:
    """CPU seconds of the processes that a call starts and waits for."""
    before = cpu_s()
    call(*arguments)
    return cpu_s() - before


def cpu_s() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def client(bank: Path, mode: str = "auto") -> Any:
    """The SDK's client with a server of its own, which starts as the client is entered."""
    from mcp.client.client import Client

    return Client(mcp_over_stdio("--bank", bank), mode=mode)


async def retrieval_ms(bank: Path) -> list[float]:
    """Milliseconds of each retrieve_memory, the first ones left out."""
    times = []
    async with client(bank) as open_client:
        for number in range(QUERIES):
            query = f"{question(number * 7)}, variation {number} of the task"
            begin = time.perf_counter()
            result = await open_client.call_tool("retrieve_memory", {"query": query, "top_k": 3})
            times.append((time.perf_counter() - begin) * 1e3)
            assert "\n[3] id=" in result.structured_content["formatted_prompt"], result
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
    words = command_of("benchmarks.bench_mcp", "--write", bank, "--lessons", lessons, "--name")
    bank_of_questions(bank, HashingEmbedder(), 1)
    begin = time.perf_counter()
    running = [subprocess.Popen([*words, f"client {number}"], cwd=REPO) for number in range(clients)]
    failed = sum(process.wait() != 0 for process in running)
    took = time.perf_counter() - begin
    opened = open_bank(bank, HashingEmbedder())
    there = sum(record.provenance.get("source") == "mcp" for record in opened.records())
    opened.close()
    return failed, there, took


def at_once(lines: Lines, bank: Path, name: str, clients: int, calls: int) -> None:
    """Retrievals a second of a server over HTTP under so many clients, and its memory after these calls."""
    queries = iter([f"{question(number * 7)}, variation {number}" for number in range(2 * calls)])
    with mcp_over_http("--bank", bank, "--transport", "http") as (port, process):
        asyncio.run(load(port, clients, queries, calls // 10))  # loads libraries
        before, began = memory_mb(process), time.perf_counter()
        asyncio.run(load(port, clients, queries, calls))
        rate, after = calls / (time.perf_counter() - began), memory_mb(process)
    lines.add(f"{clients} clients at once, {name}", rate, 50, "calls/s", least=True)
    lines.add(f"memory after {calls:,} retrievals more, {name}", after / before, 1.1, "x", note=f"{before:.0f} MB then")


async def load(port: int, clients: int, queries: Iterator[str], calls: int) -> None:
    """Ask so many of the queries by so many clients, each as soon as it is answered."""
    asked = iter([next(queries) for _ in range(calls)])

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for query in asked:
            params = {"name": "retrieve_memory", "arguments": {"query": query, "top_k": 3}, "_meta": ABOUT}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
            writer.write(f"POST /mcp HTTP/1.1\r\n{HEADERS}content-length: {len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if size := head.partition("content-length: ")[2]:
                answer = await reader.readexactly(int(size.split()[0]))
            else:  # what takes long comes as an event
                answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b"[3] id=" in answer, answer
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


def memory_mb(process: int) -> float:
    """Megabytes of memory that a process has now."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--records", type=int, default=10_000)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--lessons", type=int, default=500)
    options.add_argument("--calls", type=int, default=20_000, help="by the clients that ask at once")
    options.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # be one of the clients
    options.add_argument("--name", default="client", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.write is not None:
        asyncio.run(write(given.write, given.name, given.lessons))
        return 0
    if given.quick:
        given.lessons, given.calls = given.lessons // 10, given.calls // 20
    lines = Lines()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        before = cpu_s()
        started = [asyncio.run(start_s(path / "empty.sqlite")) for _ in range(STARTS)]
        note = f"best {min(started):.2f} s, of the CPU {(cpu_s() - before) / STARTS:.2f} s"
        lines.add("start, to the answer to initialize (median)", statistics.median(started), 2, "s", note=note)
        kinds = (("with minilm", MiniLMEmbedder(), 40, 1.5, 250), ("hashed words", HashingEmbedder(), 10, 1.0, 150))
        for name, embedder, limit, most_s, most_mb in kinds:
            few = path / f"{name} few"
            with closing(open_bank(few, embedder, key="joined")) as bank:  # as the server fills one
                bank.add_many(list(records(0, FEW)))
            first, megabytes = map(statistics.median, zip(*(first_retrieval(few) for _ in range(STARTS))))
            sdk = statistics.median(seconds(subprocess.run, SDK) for _ in range(STARTS))
            note = f"importing the SDK alone: {sdk:.2f} s"
            lines.add(f"start, to the first retrieval of {FEW} records, {name}", first, most_s, "s", note=note)
            lines.add(f"memory after the first retrieval, {name}", megabytes, most_mb, "MiB")
            for what, command in (("hook retrieve", hook_retrieve), ("retrieve_memory by hand", retrieve_tool)):
                cpu = statistics.median(cpu_of(command, few) for _ in range(STARTS))
                lines.add(f"CPU of {what}, {FEW} records, {name}", cpu, 0.5, "s", note=note)
            bank_of_questions(path / name, embedder, given.records)
            times = asyncio.run(retrieval_ms(path / name))
            note = f"p95 {statistics.quantiles(times, n=20)[-1]:.2f} ms"
            line = f"retrieve_memory over stdio, {given.records} records, {name}, p50"
            lines.add(line, statistics.median(times), limit, "ms", note=note)
            at_once(lines, path / name, name, given.clients, given.calls)
        failed, there, took = writers(path / "shared.sqlite", given.clients, given.lessons)
    wanted, note = given.clients * given.lessons, f"{took:.0f} s, {there / took:.0f} a second"
    lines.add(f"lessons there, {given.clients} clients x {given.lessons}", there, wanted, "", least=True, note=note)
    lines.add("clients that met an error", failed, 0, "")
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
