"""The operations of a memory, timed one by one beside the figures that others have published for theirs.

The published figures: claude-flow's ReasoningBank, TypeScript on SQLite, 2 431 memories with vectors of 1 024
dimensions, Node 22 in a container; the last one of several is of that project's overview.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import seconds
from core.jsonl import JsonLines
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.base import Reply
from core.models.embedding import HashingEmbedder
from core.models.meter import Meter
from core.types import Lesson, MemoryRecord, Usage
from scripts.command_line import REPO

SIZE = 2_431  # the bank of the published table
DOMAINS = 4
HEAD = f"{'operation':<44} {'n':>6} {'min':>9} {'mean':>9} {'p95':>9} {'max':>9} {'per s':>11}  published (mean; per s)"

Records = Callable[[int, int], list[MemoryRecord]]  # (first number, how many) -> records
Open = Callable[[Path], MemoryBank]


@dataclass
class Timings:
    """The operations timed so far, each printed as soon as it is known: n times, in ms.

    per_s counts what one call does, e.g. the records of a batch.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def time(self, operation: str, n: int, call: Callable[[int], Any], published: str = "", each: int = 1) -> None:
        """Call n times, with the numbers 0, 1, ...; each: how many records, lines or pairs one call is for."""
        self.add(operation, [seconds(call, number) for number in range(n)], published, each)

    def add(self, operation: str, took_s: list[float], published: str = "", each: int = 1) -> None:
        ms = [second * 1e3 for second in took_s]
        mean = statistics.fmean(ms)
        row = {"min_ms": min(ms), "mean_ms": mean, "p95_ms": float(np.percentile(ms, 95)), "max_ms": max(ms)}
        if not self.rows:
            print(HEAD)
        times = " ".join(f"{each:>9.4f}" for each in row.values())
        print(f"{operation:<44} {len(ms):>6} {times} {each * 1e3 / mean:>11,.0f}  {published or '-'}", flush=True)
        self.rows.append({"operation": operation, "n": len(ms), **row, "per_s": each * 1e3 / mean})


def size_mb(path: Path) -> float:
    """Megabytes of a bank with all the files beside it: its journal, its index."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / 1e6


def operations(timings: Timings, folder: Path, make: Open, records: Records, rows: np.ndarray, often: float) -> None:
    """The twelve operations, on a bank of 2 431 records in `folder`.

    make      opens a bank; its embedder takes a number for a text and gives that row of the queries
    records   makes records, a quarter of them in each of the domains d0 to d3
    rows      unit vectors, float32 (at least 5 000, d)
    often     1 times each as often as the published table; less for a glance
    """
    path, fresh = folder / "bank.sqlite", itertools.count(10**6)  # numbers of records that are not there yet

    def times(n: int) -> int:
        return max(1, round(n * often))

    def many(n: int) -> list[MemoryRecord]:
        return [record for _ in range(n) for record in records(next(fresh), 1)]

    with closing(make(path)) as bank:
        bank.add_many(records(0, SIZE), rows[:SIZE])
    took = []
    for _ in range(times(100)):
        opened: list[MemoryBank] = []
        took.append(seconds(lambda: opened.append(make(path))))  # noqa: B023 - called at once
        opened[0].close()
    timings.add("connection: open a bank of 2 431", took, "0.000 ms, cached; 1 ms")
    timings.time("its share of SQLite: connect, read a row", times(100), lambda _: first_row(path))
    timings.time("configuration: compose all its files", times(20), lambda _: compose(), "0.000 ms, cached")
    bank = make(path)
    for name, domain, published in (
        ("retrieval of 3 among 2 431, unfiltered", None, "24.0 ms; 42/s; 3 ms"),
        ("retrieval of 3 among 2 431, by domain", "d1", "5.87 ms; 170/s"),
    ):
        bank.policy = Cosine(domain=domain)
        bank.retrieve("0", 3)  # the first loads the index
        timings.time(name, times(100), lambda n: bank.retrieve(str(n), 3), published)
    timings.time(
        "list all active: 2 431 whole records",
        times(100),
        lambda _: bank.records("default", "active"),
        "7.69 ms; 130/s",
    )
    query = f"{bank._store.dialect.records} WHERE r.namespace = 'default' AND r.status = 'active' ORDER BY r.rowid"
    with closing(sqlite3.connect(path)) as db:
        timings.time("its share of SQLite: fetchall of the rows", times(100), lambda _: db.execute(query).fetchall())
    timings.time("list all active: ids and titles", times(100), lambda _: bank.titles())
    timings.time("view: records by status", times(100), lambda _: bank.statuses(), "0.758 ms; 1,319/s")
    timings.time("usage increment, durable", times(100), lambda n: count_use(bank, n), "0.052 ms; 19,169/s")
    timings.time("usage increment, without fsync", times(100), lambda n: count_use(bank, n, wait_s=60.0))
    timings.time("usage increments, 100 at once, durable", times(20), lambda n: count_uses(bank, n), each=100)
    single = many(times(100))
    timings.time(
        "single add, durable",
        len(single),
        lambda n: bank.add_many([single[n]], rows[n : n + 1]),
        "1.19 ms; 840/s; 1-2 ms",
    )
    for size, n, published in ((100, 20, "116.7 ms; 857/s; 112 ms"), (5_000, 4, "")):
        batches = [many(size) for _ in range(times(n))]
        timings.time(
            f"batch of {size:,}, durable",
            len(batches),
            lambda n, batches=batches, size=size: bank.add_many(batches[n], rows[:size]),
            published,
            each=size,
        )
    bank.close()
    with closing(Meter(log=JsonLines(folder / "calls.jsonl"))) as meter:
        timings.time(
            "logging of metrics: a line of calls.jsonl", times(1_000), lambda _: log(meter), "0.108 ms; 9,272/s"
        )
    for dim, published in ((384, ""), (1_024, "0.005 ms; 213,076/s")):
        pairs = np.random.default_rng(dim).standard_normal((2, dim), dtype=np.float32)
        timings.time(
            f"cosine of two vectors, {dim:,} dimensions", times(10_000), lambda _, p=pairs: cosine(*p), published
        )
    consolidating(timings, folder, times(10))


def consolidating(timings: Timings, folder: Path, n: int, size: int = 100, published: str = "5-10 ms") -> None:
    """A round over so many records without a model: deduplicate and prune, each time in a bank of its own.

    Their words are drawn as often as words of a language are (Zipf), so that few are alike. Lessons are compared by
    their words, whose embedding (by hashing) is a part of it.
    """
    from hydra.utils import instantiate

    took, life = [], compose("memory=prune", "memory/consolidate/deduplicate=default").memory.consolidate
    for number in range(n):
        path = str(folder / f"round{size}-{number}.sqlite")
        with closing(MemoryBank(path=path, embedder=HashingEmbedder(), policy=Cosine())) as bank:
            bank.add_many(unlike(size))
            bank.consolidate = instantiate(life)
            took.append(seconds(bank.consolidate.consolidate, bank))
    timings.add(f"consolidation of {size:,}, without a model", took, published)


def unlike(n: int) -> list[MemoryRecord]:
    """Records of two lessons of 56 words each."""
    rng, share = np.random.default_rng(0), 1 / np.arange(1, 20_001)
    words = rng.choice([f"w{number}" for number in range(20_000)], size=(n, 142), p=share / share.sum())

    def record(number: int, drawn: list[str]) -> MemoryRecord:
        query, one, other = (" ".join(drawn[begin:end]) for begin, end in ((0, 30), (30, 86), (86, 142)))
        lessons = (Lesson(title=text[:40], description="", content=text[40:]) for text in (one, other))
        about = {"source_trajectory_id": "", "score": 1.0, "outcome": "success", "label_source": "llm"}
        about |= {"task_id": f"bench/{number}", "tick": number}
        return MemoryRecord(id=f"{number:016x}", original_query=query, items=tuple(lessons), **about)

    return [record(number, list(drawn)) for number, drawn in enumerate(words)]


def first_row(path: Path) -> Any:
    """What SQLite takes to open a bank's file and read a row; a bank has two such connections, and checks it by one."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM meta").fetchone()


def compose(*words: str) -> Any:
    """The whole configuration of a run, read from its files."""
    import hydra

    with hydra.initialize_config_dir(str(REPO / "config"), version_base="1.3"):
        return hydra.compose("config", overrides=["env=toy", "llm=scripted", *words])


def count_use(bank: MemoryBank, number: int, wait_s: float | None = None) -> None:
    """A use of one record. wait_s: as of `MemoryBank.change`, which then leaves out the fsync."""
    with bank.change("used", wait_s=wait_s) as change:
        change.update(f"{number:016x}", n_used=1, last_used=number)


def count_uses(bank: MemoryBank, number: int) -> None:
    """One more use of each of the first 100 records, in one change."""
    with bank.change("used") as change:
        ids = [f"{place:016x}" for place in range(100)]
        change.update_usage(ids, lambda _, record: {"n_used": record.n_used + 1, "last_used": number})


def log(meter: Meter) -> None:
    """A call of 300 characters, counted and written."""
    facts = {"role": "agent", "task": "bench", "sample": 0, "requested": "bench", "messages": [{"content": "x" * 300}]}
    usage = Usage(calls=1, prompt_tokens=100, completion_tokens=50, cost_usd=0.001)
    meter.add(facts, Reply(text="y" * 300, usage=usage, finish_reason="stop", model="bench"), 0.5)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other) / float(np.sqrt((one @ one) * (other @ other)))
