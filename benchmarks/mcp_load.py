"""Many clients on one MCP server over HTTP: how many retrievals a second it gives, and the memory that it takes.

    python -m benchmarks.mcp_load [--json FILE] [--records 10000] [--retrievals 400] [--calls 20000]

Each client is a connection that asks as soon as it is answered, with the newer protocol's requests, whose queries are
all new texts. They share one process and write HTTP by hand, so that the time measured is the server's.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.lines import Lines, lines_parser
from benchmarks.servers import mcp_over_http

CLIENTS, TURNS = 8, 5
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


def serving(bank: Path, *words: str) -> AbstractContextManager[tuple[int, int]]:
    """A server over HTTP that answers as fast as it can: (its port, its process id)."""
    return mcp_over_http("--bank", bank, "--transport", "http", "server.requests_per_min=1000000", *words)


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


def together_lines(lines: Lines, banks: dict[str, tuple[Path, float]], query: Callable[[int], str], n: int) -> None:
    """For each bank, what batches give beside none: retrievals a second, and the processor's time of the server.

    Two servers, with and without them, in turn: what else the machine does meets both alike. As others may want the
    cores, the ratio of the processor's time is the steadier one.

    banks   {embedder: (a bank's file, the ratio that is wanted)}
    """
    for name, (bank, wanted) in banks.items():
        with serving(bank, "server.batch=1") as alone, serving(bank) as together:
            rates: dict[int, list[float]] = {}
            spent = dict.fromkeys((alone, together), 0.0)
            for turn in range(2 * TURNS + 2):
                port, process = server = (alone, together)[turn % 2]
                before = cpu_s(process)
                took = load(port, CLIENTS, n, lambda number, turn=turn: query(number + n * turn))
                if turn > 1:  # the first ones load libraries
                    rates.setdefault(port, []).append(n / took)
                    spent[server] += cpu_s(process) - before
        before_s, after_s = (statistics.median(rates[port]) for port, _ in (alone, together))
        before_ms, after_ms = (1000 * spent[server] / n / TURNS for server in (alone, together))
        note = f"{after_s:.0f} a second, {before_s:.0f} each by itself"
        lines.add(
            f"{CLIENTS} clients, {name}, retrievals a second", after_s / before_s, wanted, "x", least=True, note=note
        )
        note = f"{after_ms:.1f} ms of the processor each, {before_ms:.1f} by itself"
        lines.add(f"{CLIENTS} clients, {name}, processor", before_ms / after_ms, wanted, "x", least=True, note=note)


def memory_mb(process: int) -> float:
    """Megabytes of memory that a process has now."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def memory_lines(lines: Lines, bank: Path, query: Callable[[int], str], n: int) -> None:
    """The memory of a server after so many retrievals, over that after a tenth of them."""
    with serving(bank) as (port, process):
        load(port, CLIENTS, n // 10, query)
        before = memory_mb(process)
        load(port, CLIENTS, n - n // 10, lambda number: query(n + number))
        after = memory_mb(process)
    lines.add(f"{bank.stem}, memory after {n:,} retrievals", after, 250, "MB")
    lines.add(f"{bank.stem}, over that after {n // 10:,}", after / before, 1.05, "x", note=f"{before:.0f} MB then")


def main() -> None:
    from benchmarks.bench_mcp import bank_of_questions, question
    from core.models.embedding import HashingEmbedder, MiniLMEmbedder

    options = lines_parser(__doc__)
    options.add_argument("--records", type=int, default=10_000)
    options.add_argument("--retrievals", type=int, default=400, help="of each turn")
    options.add_argument("--calls", type=int, default=20_000, help="after which memory is looked at")
    given, lines = options.parse_args(), Lines()

    def query(number: int) -> str:
        return f"{question(number * 7)}, variation {number}"

    with tempfile.TemporaryDirectory() as folder:
        banks = {}
        for name, embedder, wanted in (("minilm", MiniLMEmbedder(), 1.0), ("hashed words", HashingEmbedder(), 1.35)):
            banks[name] = Path(folder) / f"{name}.sqlite", wanted
            bank_of_questions(banks[name][0], embedder, given.records)
        together_lines(lines, banks, query, given.retrievals)
        for bank, _ in banks.values():
            memory_lines(lines, bank, query, given.calls)
    lines.end(given.json)


if __name__ == "__main__":
    main()
