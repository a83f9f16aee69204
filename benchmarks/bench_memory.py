"""How fast the bank is: each operation beside published figures, each size beside bare FAISS. Embedding is excluded.

    python -m benchmarks.bench_memory [--json FILE]     operations, and banks of 1 000 to 100 000: a few minutes
    python -m benchmarks.bench_memory --quick           without 100 000, and each operation timed less often
    python -m benchmarks.bench_memory --max 1000000     with a bank of a million: 10 more minutes, 8 GB of disk
    python -m benchmarks.bench_memory --consolidate 1000    only a round of consolidation over so many records

The vectors are synthetic, 384 dimensions, clustered as embeddings of tasks are: 1000 centres in 32 latent dimensions,
mapped into 384 with noise; uniformly random ones have no neighbours to find. Each query is new, asked once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.lines import Lines, lines_parser, peak_mb, seconds
from benchmarks.memory_operations import DOMAINS, Timings, consolidating, operations, size_mb
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import Embedder
from core.types import Lesson, MemoryRecord
from scripts.command_line import REPO, command_of

DIM, CENTRES, LATENT, QUERIES, WARM = 384, 1000, 32, 350, 50
WORDS = "when the agent sees a locked box it looks for its key in every drawer before it tries the next room".split()
FLAT_MS = {2_431: 0.5, 10_000: 1.5, 100_000: 15.0}  # most milliseconds of a retrieval, by size
SCALE = {1_000: "3 ms; 63.5 ms; 1 MB", 2_431: "24 ms; 12.6 MB", 10_000: "8 ms; 10 MB", 100_000: "25 ms; 100 MB"}


def vectors(n: int, seed: int) -> np.ndarray:
    """float32 (n, 384), unit rows; see the top of the file."""
    rng, shape = np.random.default_rng(seed), np.random.default_rng(9)
    centres = shape.standard_normal((CENTRES, LATENT), dtype=np.float32)
    widen = shape.standard_normal((LATENT, DIM), dtype=np.float32) / LATENT**0.5
    rows = np.empty((n, DIM), dtype=np.float32)
    for start in range(0, n, 50_000):
        m = min(50_000, n - start)
        latent = centres[rng.integers(0, CENTRES, m)] + 0.6 * rng.standard_normal((m, LATENT), dtype=np.float32)
        some = latent @ widen + 0.1 * rng.standard_normal((m, DIM), dtype=np.float32)
        rows[start : start + m] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return rows


def records(start: int, n: int, items: str = "ab") -> Iterator[MemoryRecord]:
    """Records of two items, or as many as `items` has letters, some 350 characters each."""
    for number in range(start, start + n):
        turn = number % len(WORDS)
        text = " ".join(WORDS[turn:] + WORDS[:turn])
        lessons = (
            Lesson(title=f"Lesson {number} {item}", description=text[:80], content=f"{text} {number}. {text}.")
            for item in items
        )
        yield MemoryRecord(
            id=f"{number:016x}",
            original_query=f"task {number}: {text}",
            items=tuple(lessons),
            source_trajectory_id=f"{number:x}",
            score=1.0,
            outcome="success",
            label_source="llm",
            task_id=f"bench/{number}",
            tick=number,
            domain=f"d{number % DOMAINS}",
        )


@dataclass
class Ready(Embedder):
    """An embedder whose texts are the numbers of rows made beforehand."""

    rows: np.ndarray
    name: str = "bench-384"

    def embed(self, texts: list[str]) -> np.ndarray:
        return self.rows[[int(text) for text in texts]]


def bank(path: Path, queries: np.ndarray, index: str = "flat") -> MemoryBank:
    return MemoryBank(path=str(path), embedder=Ready(queries), policy=Cosine(), index=index)


def fill_bank(
    made: MemoryBank, rows: np.ndarray, items: str = "ab", tenant: Callable[[int], str] | None = None
) -> float:
    """Put a record for each of these vectors into a bank, 5 000 a transaction, and close it; records a second.

    tenant   the namespace of the record of each number; None: the bank's own
    """
    took = 0.0
    for start in range(0, len(rows), 5_000):
        some = rows[start : start + 5_000]
        batch = list(records(start, len(some), items))
        if tenant is not None:
            batch = [replace(record, namespace=tenant(start + place)) for place, record in enumerate(batch)]
        took += seconds(partial(made.add_many, batch, some, keep_namespaces=tenant is not None))
    made.close()
    return len(rows) / took


def in_turns(*calls: Callable[[int], Any]) -> list[float]:
    """p50 in ms of each, called in turns so that a busy machine disturbs all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(QUERIES):
        for place in range(len(calls)):
            which = (place + number) % len(calls)
            times[which].append(seconds(calls[which], number))
    return [statistics.median(each[WARM:]) * 1e3 for each in times]


def retrieval(lines: Lines, path: Path, queries: np.ndarray, exact: Any, index: str, limit: float) -> None:
    """Retrieve top 5 from a bank and from its bare FAISS index."""
    opened = bank(path, queries, index)
    opened.retrieve("0", 5)
    followed = opened._search._indexes["query"].index
    bare, params, name = exact, None, f"{index} {len(opened):>9,}"
    if index == "hnsw":
        followed.merge()
        bare, params = followed.main.index, faiss.SearchParametersHNSW(efSearch=256)
    rows = [queries[number : number + 1] for number in range(QUERIES)]
    ms, bare_ms = in_turns(
        lambda number: opened.retrieve(str(number), 5), lambda number: bare.search(rows[number], 5, params=params)
    )
    lines.add(f"retrieve top 5, {name}", ms, limit, "ms", note=f"bare FAISS {bare_ms:.3f} ms")
    lines.add(f"against bare FAISS, {name}", ms / bare_ms, 2, "x")
    if index == "hnsw":
        truth = exact.search(queries[:QUERIES], 5)[1]
        found = [{int(hit.record.id, 16) for hit in opened.retrieve(str(number), 5)} for number in range(QUERIES)]
        recall = statistics.mean(len(found[number] & set(truth[number].tolist())) / 5 for number in range(QUERIES))
        lines.add(f"recall@5, {name}", recall, 0.95, "", least=True)
    opened.close()


def adding(lines: Lines, path: Path, rows: np.ndarray) -> None:
    """Single durable adds to a bank, beside one bare fsync of as many bytes."""
    opened = bank(path, rows)
    size = len(opened)
    more = list(records(size, QUERIES))
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:

        def write_bare(_number: int) -> None:
            file.write(b"x" * 16_384)
            file.flush()
            os.fsync(file.fileno())

        ms, bare_ms = in_turns(lambda number: opened.add_many([more[number]], rows[number : number + 1]), write_bare)
    opened.close()
    note = f"a bare 16 KB write + fsync {bare_ms:.3f} ms"
    lines.add(f"durable single add at {size:,}", ms, 2, "ms", note=note)


def changing(lines: Lines, path: Path, rows: np.ndarray) -> None:
    """What archiving, removing and merging a record takes, over adding one; and forgetting one for good.

    rows   a vector for each query
    """
    opened = bank(path, rows)
    size = len(opened)
    more, merges = list(records(size, QUERIES)), list(records(2 * size, QUERIES))

    def add(number: int) -> None:
        opened.add_many([more[number]], rows[number : number + 1])

    def archive(number: int) -> None:
        with opened.change("archive") as change:
            change.update(f"{number:016x}", status="archived")

    def remove(number: int) -> None:
        with opened.change("remove") as change:
            change.remove(f"{QUERIES + number:016x}")

    def merge(number: int) -> None:
        parents = tuple(f"{2 * QUERIES + 2 * number + place:016x}" for place in range(2))
        with opened.change("merge") as change:
            change.put(replace(merges[number], parents=parents), [("query", -1, rows[number].tobytes())])
            for one in parents:
                change.update(one, status="archived")

    add_ms, *others = in_turns(add, archive, remove, merge)
    for name, ms in zip(("archive", "remove", "merge"), others):
        lines.add(f"{name} at {size:,}, over an add", ms / add_ms, 2, "x", note=f"an add {add_ms:.2f} ms")
    forget_s = seconds(lambda: opened.history.forget(id=f"{5 * QUERIES:016x}"))
    opened.close()
    journal, copy = path.with_name(f"{path.name}.journal"), path.with_name("copy")
    copy_s = seconds(shutil.copyfile, journal, copy)
    copy.unlink()
    note = f"copying its journal, {journal.stat().st_size / 1e6:.0f} MB, takes {copy_s:.2f} s"
    lines.add(f"forget one of {size:,} for good", forget_s, 5, "s", note=note)


def opening(lines: Lines, path: Path, size: int, index: str, limit: float, memory: bool = False) -> None:
    """Open a bank in a process of its own, ask it once, add one record."""
    command = command_of("benchmarks.bench_memory", "--open", path, "--index", index)
    done = json.loads(subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout)
    lines.add(f"open {index} {size:,} and retrieve once", done["open_s"], limit, "s")
    if memory:
        lines.add(f"peak memory at {size:,}", done["peak_gb"], 2.5, "GB", note="of a process that opens, asks, adds")


def open_and_tell(path: Path, index: str) -> None:
    queries = vectors(50, seed=2)
    begin = time.perf_counter()
    opened = bank(path, queries, index)
    opened.retrieve("0", 5)
    took = time.perf_counter() - begin
    opened.add_many(list(records(10**9, 1)), queries[:1])
    for number in range(50):
        opened.retrieve(str(number), 5)
    print(json.dumps({"open_s": took, "peak_gb": peak_mb() * 1024**2 / 1e9}))


def scale(timings: Timings, path: Path, size: int, added_s: float, queries: np.ndarray) -> None:
    """What a bank of that size takes: to fill, on the disk, to be asked."""
    megabytes = size_mb(path)
    opened = bank(path, queries)
    opened.retrieve("0", 3)
    published = SCALE.get(size, "")
    name = f"{size:,}: {1e3 / added_s:.3f} ms an add, {megabytes:,.1f} MB; ask"
    timings.time(name, QUERIES, lambda number: opened.retrieve(str(number), 3), published)
    opened.close()


def measure_bank(lines: Lines, timings: Timings, path: Path, size: int, queries: np.ndarray) -> None:
    """All lines of a bank of that size."""
    rows = vectors(size, seed=0)
    added_s = fill_bank(bank(path, rows), rows)
    scale(timings, path, size, added_s, queries)
    exact = faiss.IndexFlatIP(DIM)
    exact.add(rows)
    if size in FLAT_MS:
        retrieval(lines, path, queries, exact, "flat", FLAT_MS[size])
    if size == 10_000:
        adding(lines, path, rows)
    if size == 100_000:
        lines.add("batches", added_s, 5_000, "rec/s", least=True, note="5 000 records a transaction")
        opening(lines, path, size, "flat", 1)
    few = rows[:QUERIES].copy()
    del rows
    if size >= 100_000:
        path.with_name(path.name + ".index").unlink(missing_ok=True)
        retrieval(lines, path, queries, exact, "hnsw", 2 if size == 100_000 else 5)
    del exact
    if size == 100_000:
        changing(lines, path, few)  # last: the bank is another one then
    if size == 1_000_000:
        opening(lines, path, size, "hnsw", 5, memory=True)


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--max", type=int, default=100_000, help="the largest bank (default: %(default)s)")
    options.add_argument("--consolidate", type=int, metavar="N", help="only a round over N records, without a model")
    options.add_argument("--folder", type=Path, help="where the banks are made (default: a temporary one)")
    options.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--index", default="flat", help=argparse.SUPPRESS)
    given = options.parse_args()
    faiss.omp_set_num_threads(1)
    if given.open:
        open_and_tell(given.open, given.index)
        return 0
    lines, timings, queries = Lines(), Timings(), vectors(QUERIES, seed=1)
    if given.consolidate:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            consolidating(timings, Path(folder).resolve(), 1, given.consolidate, "")
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        made = {"make": lambda path: bank(path, queries), "records": lambda start, n: list(records(start, n))}
        rows = vectors(5_000, seed=0)
        operations(timings, Path(folder).resolve(), **made, rows=rows, often=0.2 if given.quick else 1)
    for size in (1_000, 2_431, 10_000, 100_000, 1_000_000):
        if size <= (min(given.max, 10_000) if given.quick else given.max):
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                measure_bank(lines, timings, Path(folder).resolve() / "bank.sqlite", size, queries)
    for each in timings.rows:
        lines.keep(each["operation"], each["min_ms"], "ms, least", **each)
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
