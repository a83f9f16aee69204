"""What the harness costs beside the model's own time, against a server of fixed latency on this machine.

    python -m benchmarks.bench_llm [--json FILE] [--quick]

Every figure is taken in this one run from whole `python main.py` processes; bare litellm stands beside where it can.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx

from benchmarks.latency_server import running
from benchmarks.lines import Lines, lines_parser
from scripts.command_line import REPO, command_of
from single_turn_bench.files import read_objects

LATENCY_S = 0.2


class TimedRun:
    """One finished `python main.py`, started on one core or on all, with what it left behind."""

    def __init__(self, folder: Path, url: str, *overrides: str, core: int | None = None) -> None:
        self.began = time.time()
        server = ("llm=vllm", f"llm.api_base={url}") if url else ()
        command = pinned(core, str(REPO / "main.py"), f"run_dir={folder}", *overrides, *server)
        self.threads = 0
        with folder.with_suffix(".log").open("w+") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder.parent)
            while process.poll() is None:
                self.threads = max(self.threads, sum(1 for _ in Path(f"/proc/{process.pid}/task").glob("*")))
                time.sleep(0.02)
            log.seek(0)
            if process.returncode:
                sys.exit(f"{' '.join(command)} failed:\n{log.read()}")
        files = (folder / "calls.jsonl", folder / "timings.jsonl")
        self.calls, self.timings = ([row for _, row in read_objects(file)] for file in files)

    def of(self, role: str) -> list[dict]:
        """The calls of a role, in the order in which they ended."""
        return [call for call in self.calls if call["role"] == role]


def pinned(core: int | None, *words: str) -> list[str]:
    """The command of this Python on one core, None: on all."""
    return [*(("taskset", "-c", str(core)) if core is not None else ()), sys.executable, *words]


def bare_call_s(url: str, n: int, core: int | None = None) -> float:
    """Seconds of one litellm call by itself."""
    command = pinned(core, "-m", "benchmarks.bench_llm", "--calls", str(n), "bare", url)
    return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPO).stdout.split()[-2])


def of_ideal(ended: list[float], k: int) -> tuple[float, str]:
    """(percent of the ideal of k calls in flight, note), from the times at which calls ended. The first ones load."""
    ended = sorted(ended)[k - 1 :]
    seconds, ideal = ended[-1] - ended[0], (len(ended) - 1) / k * LATENCY_S
    return 100 * ideal / seconds, f"{len(ended) - 1} calls in {seconds:.2f} s, ideally {ideal:.2f}"


def many_bare(url: str, k: int, n: int) -> float:
    """Percent of the ideal of k threads that make n calls each by httpx, and do nothing else."""
    body = json.dumps({"messages": [{"content": "a word " * 100}]})

    def ends(_: int) -> list[float]:
        with httpx.Client(verify=False, timeout=60) as client:
            return [client.post(f"{url}/chat/completions", content=body) and time.time() for _ in range(n)]

    with ThreadPoolExecutor(k) as threads:
        return of_ideal([end for each in threads.map(ends, range(k)) for end in each], k)[0]


def loop_overhead(lines: Lines, folder: Path, n: int) -> None:
    """Median milliseconds a task beyond its three calls, with the real embedder."""
    words = ("env=warmup", f"limit={n + 2}", f"embedder.path={folder / 'vectors.sqlite'}")
    with running(LATENCY_S) as url:
        bare = bare_call_s(url, 10) - LATENCY_S
        run = TimedRun(folder / "loop", url, *words)
    beyond = [1000 * (timing["wall_s"] - 3 * LATENCY_S) for timing in run.timings[2:]]  # the first two load libraries
    note = f"three bare litellm calls: {3000 * bare:.1f} ms"
    lines.add("loop, beyond its three calls", statistics.median(beyond), 15, "ms a task", note=note)


def many_at_once(lines: Lines, folder: Path, n: int) -> None:
    """Tasks a second with 16 and 128 at once, over the ideal k / latency, beside bare httpx's; threads of 64 calls."""
    toy = ("env=toy", "env.families=8", "env.boxes_per_family=200", "embedder=hashing", "max_steps=1")
    rows = [{"id": str(number), "question": f"What is 42 + {number}?", "answer": "42"} for number in range(1600)]
    (folder / "graded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with running(LATENCY_S) as url:
        TimedRun(folder / "learned", url, *toy, "limit=4")
        arms = {
            "vanilla": (*toy, "workflow=vanilla"),
            "frozen": (*toy, "setting=frozen", f"memory.path={folder / 'learned' / 'bank.sqlite'}"),
            "vanilla graded": ("env=gsm8k", f"env.path={folder / 'graded.jsonl'}", "workflow=vanilla"),
        }
        for k, wanted in ((16, 95), (128, 90)):
            bare = many_bare(url, k, 10)
            for name, words in arms.items():
                limit = min(n * k // 16, 1600 - k) + k
                run = TimedRun(folder / f"{name}{k}", url, *words, f"limit={limit}", f"max_concurrency={k}")
                reached, note = of_ideal([call["ended"] for call in run.of("agent")], k)
                note += f"; bare httpx {bare:.0f} %"
                lines.add(f"{k} tasks at once, {name}", reached, wanted, "% of ideal", least=True, note=note)
        some, many = (
            TimedRun(folder / str(k), url, *toy, "workflow=vanilla", "limit=320", f"max_concurrency={k}").threads
            for k in (16, 64)
        )
    note = f"{some} and {many} threads"
    lines.add("threads a call, from 16 to 64 in flight", (many - some) / 48, 1, "threads", note=note)


def rate(lines: Lines, folder: Path, n: int) -> None:
    """Calls a second through the whole stack on one core, the server answering at once on another; over litellm's."""
    words = ("env=toy", "workflow=vanilla", "env.families=8", "env.boxes_per_family=250", f"limit={n}", "max_steps=1")
    taken: dict[str, list[float]] = {"litellm": [], "openai": []}
    with running(0.0) as url:
        bare = 1 / bare_call_s(url, n, core=0)
        for turn in range(3):
            for client, rates in taken.items():
                run = TimedRun(folder / f"rate-{client}-{turn}", url, *words, f"llm.client={client}", core=0)
                ended = [call["ended"] for call in run.of("agent")][5:]  # without the first, which load libraries
                rates.append((len(ended) - 1) / (ended[-1] - ended[0]))
    theirs, ours = (statistics.median(rates) for rates in taken.values())
    note = f"{ours:.0f} calls/s, by litellm {theirs:.0f}; bare litellm {bare:.0f}"
    lines.add("whole stack, one core, 0 ms, over litellm's", ours / theirs, 1.5, "x", least=True, note=note)


def matts(lines: Lines, folder: Path, n: int, k: int = 5) -> None:
    """Median seconds of a task of parallel scaling, with its selector and self-contrast.

    Its critical path is three calls: attempt, selector, self-contrast. As the last two wait neither for each other nor
    for the judges, two are the least possible.
    """
    words = ("env=toy", "env.boxes_per_family=100", "max_steps=1", "embedder=hashing", "workflow=matts_parallel")
    with running(LATENCY_S) as url:
        run = TimedRun(folder / "matts", url, *words, f"k={k}", f"limit={n + 2}")
    counts = {role: len(run.of(role)) // (n + 2) for role in ("agent", "judge", "selector", "extractor")}
    if counts != {"agent": k, "judge": k, "selector": 1, "extractor": 1}:
        raise SystemExit(f"not the calls of MaTTS: {counts} a task")
    median = statistics.median(timing["wall_s"] for timing in run.timings[2:])
    lines.add(f"MaTTS k={k}", median, 0.65, "s a task", note=f"least possible {2 * LATENCY_S:.2f} s")


def clients(lines: Lines, n: int) -> None:
    """The direct client over litellm: calls a second of the model alone, and the processor's time of a call."""
    words = command_of("benchmarks.bench_llm", "--calls", n)
    wall, cpu = {}, {}
    with running(0.0) as url:
        for _ in range(3):
            for client in ("litellm", "openai"):
                done = subprocess.run([*words, client, url], capture_output=True, text=True, check=True, cwd=REPO)
                for taken, seconds in zip((wall, cpu), map(float, done.stdout.split()), strict=True):
                    taken.setdefault(client, []).append(seconds)
    for what, taken in (("calls a second", wall), ("the processor's time", cpu)):
        each = {client: 1000 * statistics.median(seconds) for client, seconds in taken.items()}
        note = f"{each['openai']:.2f} ms a call, litellm {each['litellm']:.2f}"
        line = f"the direct client, {what}"
        lines.add(line, each["litellm"] / each["openai"], 1.5, "x", least=True, note=note)


def call_many(client: str, url: str, n: int) -> None:
    """Print the seconds of a call, and those of the processor. client: bare is litellm without anything around it."""
    from core.models.base import Request
    from core.models.litellm_library import load_litellm
    from core.models.remote import LiteLLMModel

    messages, at = [{"role": "user", "content": "a word " * 100}], {"model": "hosted_vllm/m", "api_base": url}
    if client == "bare":
        call = partial(load_litellm().completion, messages=messages, num_retries=0, max_retries=0, **at)
    else:
        call = partial(LiteLLMModel(client=client, **at).chat, Request(messages=messages, role="agent"))
    call()  # loads libraries
    began, spent = time.perf_counter(), time.process_time()
    for _ in range(n):
        call()
    print((time.perf_counter() - began) / n, (time.process_time() - spent) / n)


def first_call(lines: Lines, folder: Path) -> None:
    """Seconds from starting Python to the first call's departure."""
    with running(0.0) as url:
        for name, where, more, limit in (
            ("llm=vllm", url, (), 1),
            ("llm.client=litellm", url, ("llm.client=litellm",), 6),
            ("llm=local", "", (), 3),
        ):
            run = TimedRun(folder / f"first-{name.rpartition('=')[2]}", where, "limit=1", *more)
            first = run.of("agent")[0]
            lines.add(f"first call, {name}", first["ended"] - first["latency_s"] - run.began, limit, "s")


def prefix(lines: Lines, folder: Path, n: int) -> None:
    """Share of the prompt that llama.cpp had cached, over the 2nd and later calls of ALFWorld episodes."""
    words = ("env=alfworld", "env.split=generated", f"env.cache_dir={folder / 'games'}", "env.generated_games=6")
    words += (f"limit={n}", "max_steps=8", "llm=local", "llm.max_tokens=48", "workflow=vanilla")
    run = TimedRun(folder / "prefix", "", *words)
    by_task = [[c["usage"] for c in run.of("agent") if c["task"] == task] for task in {c["task"] for c in run.calls}]
    later = [usage for usages in by_task for usage in usages[1:]]
    cached, prompt = (sum(usage[key] for usage in later) for key in ("cached_tokens", "prompt_tokens"))
    note = f"{len(later)} calls, {prompt} prompt tokens"
    lines.add("prompt tokens from the prefix cache", 100 * cached / prompt, 90, "%", least=True, note=note)


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--calls", nargs=3, help=argparse.SUPPRESS)  # make so many by a client at an address
    given = options.parse_args()
    if given.calls:
        n, client, url = given.calls
        call_many(client, url, int(n))
        return 0
    few, lines = 4 if given.quick else 1, Lines()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loop_overhead(lines, folder, 40 // few)
        many_at_once(lines, folder, 640 // few)
        rate(lines, folder, 1600 // few)
        matts(lines, folder, 40 // few)
        clients(lines, 400 // few)
        first_call(lines, folder)
        prefix(lines, folder, 4 // min(few, 2))
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
