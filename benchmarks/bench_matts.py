"""What parallel scaling costs beside the model's own time, and whether attempts in a real engine use every core.

    python -m benchmarks.bench_matts [--json FILE] [--quick]

Whole `python main.py` processes, in this one run. The critical path of a task is three calls of 200 ms: attempt,
selector, self-contrast. As the last two wait neither for each other nor for the judges, two calls are the least.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_llm import LATENCY_S, TimedRun, bare_call_s
from benchmarks.latency_server import running
from benchmarks.lines import Lines, lines_parser, seconds

K = 5
CRITICAL_S = 3 * LATENCY_S
BUSY = "sum(n * n for n in range(20_000_000))"
WARM_UP = 2  # tasks that load libraries and start engines


def scaled(lines: Lines, folder: Path, n: int) -> None:
    """Median seconds of a task with k=5, selector and self-contrast included."""
    words = ("env=toy", "env.boxes_per_family=100", "max_steps=1", "embedder=hashing")
    with running(LATENCY_S) as url:
        bare = bare_call_s(url, 10) - LATENCY_S
        run = TimedRun(folder / "scaled", url, *words, "workflow=matts_parallel", f"k={K}", f"limit={n + WARM_UP}")
    counts = {role: len(run.of(role)) // (n + WARM_UP) for role in ("agent", "judge", "selector", "extractor")}
    if counts != {"agent": K, "judge": K, "selector": 1, "extractor": 1}:
        raise SystemExit(f"not the calls of MaTTS: {counts} a task")
    median = statistics.median(timing["wall_s"] for timing in run.timings[WARM_UP:])
    limit = 1.05 * CRITICAL_S + 0.01
    note = f"least possible {2 * LATENCY_S:.2f} s; two bare litellm calls {2000 * bare:.0f} ms more"
    lines.add(f"MaTTS k={K}, beside its critical path", median, limit, "s a task")
    lines.add(f"MaTTS k={K}", median, 0.65, "s a task", note=note)


def engines(lines: Lines, folder: Path, n: int) -> None:
    """How much more 8 ALFWorld attempts at once get done than one alone, with a model that answers at once.

    In an engine each, which load a game each and share the cores' caches; and in as many engines as there are cores.
    """
    words = ("env=alfworld", "env.split=generated", f"env.generated_games={n + WARM_UP}", "embedder=hashing")
    words += (f"env.cache_dir={folder / 'games'}", "llm=free")
    words += ("workflow=matts_parallel", "memory=none", "select=first", "max_steps=20", f"limit={n + WARM_UP}")
    possible, took = cores(), {}
    few = os.cpu_count() or 1
    ways = {"games": (1, 1), "one": (1, 1), "an engine each": (8, 8), f"env.workers={few}": (8, few)}
    for name, (k, workers) in ways.items():  # the first makes the games
        run = TimedRun(folder / f"engines-{len(took)}", "", *words, f"k={k}", f"env.workers={workers}")
        took[name] = sum(timing["wall_s"] for timing in run.timings[WARM_UP:])
    for name in list(ways)[2:]:
        gain = 8 * took["one"] / took[name]
        note = f"{n} games: {took['one']:.2f} and {took[name]:.2f} s; two busy loops here: {possible:.2f}"
        lines.add(f"8 ALFWorld attempts at once, {name}", gain, 1.7, "times one", least=True, note=note)


def cores() -> float:
    """How much more two busy processes at once get done than one: all that this machine has to give."""

    def busy(processes: int) -> None:
        started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
        for process in started:
            process.wait()

    return 2 * seconds(busy, 1) / seconds(busy, 2)


def main() -> None:
    given = lines_parser(__doc__, quick=True).parse_args()
    few, lines = 3 if given.quick else 1, Lines()
    with tempfile.TemporaryDirectory() as name:
        scaled(lines, Path(name), 40 // few)
        engines(lines, Path(name), 6 // few)
    lines.end(given.json)


if __name__ == "__main__":
    main()
