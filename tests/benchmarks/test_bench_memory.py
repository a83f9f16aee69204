"""The benchmark of the memory: the published operations, each really done, and how their times are told."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import bench_memory
from benchmarks.memory_operations import SIZE, Timings, cosine, operations, size_mb
from core.jsonl import read_lines
from core.memory.open import read_records


def test_a_timing_is_min_mean_p95_max_and_what_is_done_in_a_second(capsys):
    timings = Timings()
    timings.add("a batch of 10", [0.001 * ms for ms in range(1, 101)], "7 ms", each=10)
    [row] = timings.rows
    assert (row["n"], row["min_ms"], row["max_ms"]) == (100, 1.0, 100.0)
    assert (row["mean_ms"], row["p95_ms"]) == (pytest.approx(50.5), pytest.approx(np.percentile(range(1, 101), 95)))
    assert row["per_s"] == pytest.approx(10 / 0.0505)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["operation", "n"]
    assert line.split()[4:] == ["100", "1.0000", "50.5000", "95.0500", "100.0000", "198", "7", "ms"]


def test_it_does_the_twelve_operations_on_a_bank_of_the_published_size(tmp_path):
    queries, timings = bench_memory.vectors(bench_memory.QUERIES, seed=1), Timings()
    operations(
        timings,
        tmp_path,
        lambda path: bench_memory.bank(path, queries),
        lambda start, n: list(bench_memory.records(start, n)),
        bench_memory.vectors(5_000, seed=0),
        often=0.01,
    )
    wanted = (
        "connection,configuration,unfiltered,by domain,list all active,view,usage increment,single add,batch of 100,"
        "batch of 5,logging of metrics,384,1,024,consolidation"
    )
    names = [row["operation"] for row in timings.rows]
    assert all(any(word in name for name in names) for word in wanted.split(","))
    assert all(0 < row["min_ms"] <= row["mean_ms"] <= row["max_ms"] and row["per_s"] > 0 for row in timings.rows)
    kept = read_records(tmp_path / "bank.sqlite", "default")
    assert len(kept) == SIZE + 1 + 100 + 5_000
    assert sum(record.n_used for record in kept) == 101  # one, and one more of each of 100
    assert {record.domain for record in kept} == {"d0", "d1", "d2", "d3"}
    assert len(list(read_lines(tmp_path / "calls.jsonl"))) == 10
    assert size_mb(tmp_path / "bank.sqlite") > 10


def test_the_cosine_is_the_cosine():
    one, other = np.array([3.0, 0.0], dtype=np.float32), np.array([1.0, 1.0], dtype=np.float32)
    assert cosine(one, other) == pytest.approx(0.5**0.5)
    assert cosine(one, one) == pytest.approx(1.0)
