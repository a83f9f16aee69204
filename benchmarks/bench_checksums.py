"""What the checksums of records cost: a durable add to a bank, with and without them in turns.

python -m benchmarks.bench_checksums [--adds 2000] [--json FILE]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from benchmarks.bench_memory import records
from benchmarks.lines import Lines, lines_parser, seconds
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder

Timed = Callable[[int], float]  # the seconds of a call, which is told its number
MOST = 1.03


def ratio(lines: Lines, what: str, with_them: Timed, without: Timed, n: int) -> None:
    """A line for the medians of two calls that are made in turns."""
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(n):
        for place in (number % 2, 1 - number % 2):
            took[place].append((with_them, without)[place](number))
    ours, bare = (1000 * statistics.median(each) for each in took)
    lines.add(f"{what}, over that without", ours / bare, MOST, "x", note=f"{ours:.3f} ms, without {bare:.3f}")


def adds(lines: Lines, folder: Path, n: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((2 * n, 384), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with closing(MemoryBank(path=str(folder / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())) as bank:
        made = list(records(0, 2 * n))

        def add(number: int) -> float:
            return seconds(bank.add_many, [made[number]], vectors[number : number + 1])

        def add_without(number: int) -> float:
            nothing = {"checksum": lambda values: None, "zlib": SimpleNamespace(crc32=lambda data: None)}
            with patch.multiple("core.memory.store.changes", **nothing):
                return add(n + number)

        ratio(lines, "a durable add", add, add_without, n)


def main() -> None:
    options = lines_parser(__doc__)
    options.add_argument("--adds", type=int, default=2000)
    given, lines = options.parse_args(), Lines()
    with tempfile.TemporaryDirectory() as name:
        adds(lines, Path(name), given.adds)
    lines.end(given.json)


if __name__ == "__main__":
    main()
