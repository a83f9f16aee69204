"""Many clients on one MCP server over HTTP: how many retrievals a second it gives, by its keys.

Each client is a connection that asks as soon as it is answered, with the newer protocol's requests, whose queries are
all new texts. They share one process and write HTTP by hand, so that the time measured is the server's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.command_line import REPO

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


@contextmanager
def serving(bank: Path, *words: str) -> Iterator[tuple[int, int]]:
    """A server over HTTP on a free port: (its port, its process id)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mcp_server", "--bank", str(bank), "--transport", "http", "--port", str(port)]
    command += ["server.requests_per_min=1000000", *words]
    process = subprocess.Popen(command, cwd=REPO, stdin=subprocess.DEVNULL)
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


def cpu_s(process: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(port: int, clients: int, retrievals: int, query: Callable[[int], str]) -> float:
    """Seconds that so many clients take for so many retrievals together."""
    return asyncio.run(_load(port, clients, iter([query(number) for number in range(retrievals)])))


async def _load(port: int, clients: int, queries: Iterator[str]) -> float:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for query in queries:
            params = {"name": "retrieve_memory", "arguments": {"query": query, "top_k": 3}, "_meta": ABOUT}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
            writer.write(f"POST /mcp HTTP/1.1\r\n{HEADERS}content-length: {len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if size := head.partition("content-length: ")[2]:
                answer = await reader.readexactly(int(size.split()[0]))
            else:  # what takes long comes as an event
                answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert answer.count(b'"memory_id"') == 3, answer
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began
