"""What a run costs before its first task, and what a cell of a sweep costs beside its tasks.

    python -m benchmarks.bench_start [--cells 20] [--times 5] [--json FILE] [--quick]

All runs are of the toy world with scripted players. Beside a start stands that of bare Python, and of Python with
hydra imported; a cell's share is that of a sweep of --cells cells less a sweep of one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.lines import Lines, lines_parser, seconds
from core.jsonl import read_lines
from scripts.command_line import REPO

TOY = ("env=toy", "llm=scripted", "embedder=hashing", "workflow=reasoningbank")


def main_py(*words: object) -> list[str]:
    return [sys.executable, str(REPO / "main.py"), *map(str, words), *TOY]


def first_line_s(folder: Path) -> float:
    """Seconds until a run has printed its first line."""
    began = time.perf_counter()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # its first line is on stderr
    with subprocess.Popen(main_py(f"run_dir={folder}", "limit=1"), **pipes) as process:
        process.stdout.readline()
        took = time.perf_counter() - began
        process.stdout.read()
    return took


def first_task_s(folder: Path) -> float:
    """Seconds until the first call of a model has ended; the scripted one answers at once."""
    began = time.time()
    run(main_py(f"run_dir={folder}", "limit=1"))
    return next(read_lines(folder / "calls.jsonl"))["ended"] - began


def cell_s(folder: Path, n: int) -> float:
    """Seconds of a cell of a sweep beside its tasks, those of starting the sweep excluded."""
    alone = seconds(run, main_py("-m", f"run_dir={folder / 'one'}", "limit=4", "seed=0"))
    took = seconds(run, main_py("-m", f"run_dir={folder / 'many'}", "limit=4", f"seed=range(0,{n + 1})"))
    tasks = [wall(file) for file in (folder / "many").glob("*/timings.jsonl")]
    return (took - alone) / n - statistics.mean(tasks)


def wall(file: Path) -> float:
    """Seconds of the tasks of a run."""
    return sum(row["wall_s"] for row in read_lines(file))


def run(command: Iterable[str]) -> None:
    subprocess.run([*command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--cells", type=int, default=20)
    options.add_argument("--times", type=int, default=5, help="of which the median is taken")
    given = options.parse_args()
    if given.quick:
        given.cells, given.times = given.cells // 4, given.times - 2
    lines = Lines()
    with tempfile.TemporaryDirectory() as name:
        folder, times = Path(name), range(given.times)
        bare, hydra = (
            statistics.median(seconds(run, [sys.executable, "-c", code]) for _ in times)
            for code in ("pass", "import hydra")
        )
        note = f"bare Python {bare:.3f} s, with hydra {hydra:.3f} s"
        line = statistics.median(first_line_s(folder / f"line{number}") for number in times)
        lines.add("first line, beyond bare Python", line - bare, 0.05, "s", note=note)
        task = statistics.median(first_task_s(folder / f"task{number}") for number in times)
        lines.add("first task of a scripted run", task, 1.0, "s", note=note)
        lines.add("a cell of a sweep, beside its tasks", cell_s(folder, given.cells), 0.3, "s")
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
