"""What the harness costs beside the model's own time, against a server of fixed latency on this machine.

    python -m scripts.bench.bench_llm [--json FILE] [--quick]

Every figure is taken in this one run from whole `python main.py` processes; bare litellm stands beside where it can.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts.bench.latency_server import running

REPO = Path(__file__).resolve().parents[2]
LATENCY_S = 0.2
BARE = """
import os, sys, time
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
litellm.suppress_debug_info = True
def call():
    messages = [{"role": "user", "content": "a word " * 100}]
    litellm.completion(model="hosted_vllm/m", messages=messages, api_base=sys.argv[1], num_retries=0, max_retries=0)
call()
began = time.perf_counter()
for _ in range(int(sys.argv[2])):
    call()
print((time.perf_counter() - began) / int(sys.argv[2]))
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One figure beside its limit; `beside` says what it is to be compared with."""

    name: str
    figure: float
    limit: float
    at_most: bool
    unit: str
    beside: str = ""

    @property
    def held(self) -> bool:
        return self.figure <= self.limit if self.at_most else self.figure >= self.limit


class TimedRun:
    """One finished `python main.py`, started on one core or on all, with what it left behind."""

    def __init__(self, folder: Path, url: str, *overrides: str, core: int | None = None) -> None:
        self.began = time.time()
        command = [sys.executable, str(REPO / "main.py"), f"run_dir={folder}", *overrides]
        if url:
            command += ["llm=vllm", f"llm.api_base={url}"]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder.parent
        )
        self.threads = 0
        threading.Thread(target=self._watch, daemon=True).start()
        output, _ = self.process.communicate()
        if self.process.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{output}")
        self.calls = self._rows(folder / "calls.jsonl")
        self.timings = self._rows(folder / "timings.jsonl")

    def of(self, role: str) -> list[dict]:
        """The calls of a role, in the order in which they ended."""
        return [call for call in self.calls if call["role"] == role]

    def _watch(self) -> None:
        status = Path(f"/proc/{self.process.pid}/status")
        while self.process.poll() is None:
            try:
                text = status.read_text()
            except OSError:
                return
            self.threads = max(self.threads, int(text.split("Threads:")[1].split()[0]))
            time.sleep(0.02)

    @staticmethod
    def _rows(path: Path) -> list[dict]:
        return [json.loads(line) for line in path.read_text().splitlines()]


def bare_call_s(url: str, n: int, core: int | None = None) -> float:
    """Seconds of one litellm call by itself."""
    pin = ["taskset", "-c", str(core)] if core is not None else []
    command = [*pin, sys.executable, "-c", BARE, url, str(n)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def loop_overhead(folder: Path, n: int) -> Line:
    """Median milliseconds a task beyond its three calls, with the real embedder."""
    with running(LATENCY_S) as url:
        bare = bare_call_s(url, 10) - LATENCY_S
        run = TimedRun(
            folder / "loop", url, "env=warmup", f"limit={n + 2}", f"embedder.path={folder / 'vectors.sqlite'}"
        )
    beyond = [1000 * (timing["wall_s"] - 3 * LATENCY_S) for timing in run.timings[2:]]  # the first two load libraries
    beside = f"three bare litellm calls: {3000 * bare:.1f} ms"
    return Line(
        name="loop, beyond its three calls",
        figure=statistics.median(beyond),
        limit=25,
        at_most=True,
        unit="ms a task",
        beside=beside,
    )


def side_by_side(folder: Path, n: int) -> list[Line]:
    """Tasks a second with 16 at once, over the ideal 16 / latency; threads of 64 calls in flight."""
    toy = ("env=toy", "env.families=8", "env.boxes_per_family=100", "embedder=hashing", "max_steps=1")
    with running(LATENCY_S) as url:
        TimedRun(folder / "learned", url, *toy, "limit=4")
        arms = {
            "vanilla": ("workflow=vanilla",),
            "frozen": ("setting=frozen", f"memory.path={folder / 'learned' / 'bank.sqlite'}"),
        }
        lines = [
            _share(TimedRun(folder / name, url, *toy, *more, f"limit={n + 16}", "max_concurrency=16"), name)
            for name, more in arms.items()
        ]
        some = TimedRun(folder / "some", url, *toy, "workflow=vanilla", "limit=320", "max_concurrency=16")
        many = TimedRun(folder / "many", url, *toy, "workflow=vanilla", "limit=320", "max_concurrency=64")
    threads = Line(
        name="threads a call, from 16 to 64 in flight",
        figure=(many.threads - some.threads) / 48,
        limit=1,
        at_most=True,
        unit="threads",
        beside=f"{some.threads} and {many.threads} threads, with litellm's own",
    )
    return [*lines, threads]


def _share(run: TimedRun, name: str) -> Line:
    ended = [call["ended"] for call in run.of("agent")][15:]  # the first 16 load libraries
    seconds, ideal = ended[-1] - ended[0], (len(ended) - 1) / 16 * LATENCY_S
    return Line(
        name=f"16 tasks at once, {name}",
        figure=100 * ideal / seconds,
        limit=90,
        at_most=False,
        unit="% of ideal",
        beside=f"{len(ended) - 1} calls in {seconds:.2f} s, ideally {ideal:.2f}",
    )


def rate(folder: Path, n: int) -> Line:
    """Calls a second through the whole stack on one core, the server answering at once on another."""
    with running(0.0) as url:
        bare = 1 / bare_call_s(url, n, core=0)
        more = (
            "env=toy",
            "workflow=vanilla",
            "env.families=8",
            "env.boxes_per_family=250",
            f"limit={n}",
            "max_steps=1",
        )
        run = TimedRun(folder / "rate", url, *more, core=0)
    ended = [call["ended"] for call in run.of("agent")][5:]  # without the first, which load libraries
    calls_s = (len(ended) - 1) / (ended[-1] - ended[0])
    return Line(
        name="whole stack, one core, 0 ms",
        figure=calls_s,
        limit=120,
        at_most=False,
        unit="calls/s",
        beside=f"bare litellm {bare:.0f}, ratio {calls_s / bare:.2f}",
    )


def first_call(folder: Path) -> list[Line]:
    """Seconds from starting Python to the first call's departure."""
    with running(0.0) as url:
        remote = TimedRun(folder / "first", url, "limit=1")
    local = TimedRun(folder / "local", "", "limit=1")
    return [
        Line(name=f"first call, {name}", figure=left - run.began, limit=limit, at_most=True, unit="s")
        for name, run, limit in (("litellm", remote, 6), ("llm=local", local, 3))
        for left in [run.of("agent")[0]["ended"] - run.of("agent")[0]["latency_s"]]
    ]


def prefix(folder: Path, n: int) -> Line:
    """Share of the prompt that llama.cpp had cached, over the 2nd and later calls of ALFWorld episodes."""
    more = ("env=alfworld", "env.split=generated", f"env.cache_dir={folder / 'games'}", "env.generated_games=6")
    run = TimedRun(
        folder / "prefix", "", *more, f"limit={n}", "max_steps=8", "llm=local", "llm.max_tokens=48", "workflow=vanilla"
    )
    by_task = [[c["usage"] for c in run.of("agent") if c["task"] == task] for task in {c["task"] for c in run.calls}]
    later = [usage for usages in by_task for usage in usages[1:]]
    cached, prompt = (sum(usage[key] for usage in later) for key in ("cached_tokens", "prompt_tokens"))
    return Line(
        name="prompt tokens from the prefix cache",
        figure=100 * cached / prompt,
        limit=90,
        at_most=False,
        unit="%",
        beside=f"{len(later)} calls, {prompt} prompt tokens",
    )


def show(lines: Sequence[Line]) -> None:
    """A table, then the line that counts."""
    table = Table(title=f"{os.cpu_count()} cores", title_justify="left")
    for heading in ("what", "measured", "wanted", "held", "beside"):
        table.add_column(heading, justify="right" if heading in ("measured", "wanted") else "left")
    for line in lines:
        wanted = f"{'<=' if line.at_most else '>='} {line.limit:g} {line.unit}"
        table.add_row(line.name, f"{line.figure:.2f}", wanted, "yes" if line.held else "NO", line.beside)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(f"{sum(line.held for line in lines)} of {len(lines)} lines held")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="fewer calls: noisier")
    given = parser.parse_args()
    few = 4 if given.quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [loop_overhead(folder, 40 // few), *side_by_side(folder, 640 // few), rate(folder, 1600 // few)]
        lines += [*first_call(folder), prefix(folder, 4 // min(few, 2))]
    if given.json:
        rows = [asdict(line) | {"held": line.held} for line in lines]
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    show(lines)


if __name__ == "__main__":
    main()
