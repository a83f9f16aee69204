"""Speed against success of a stream whose tasks overlap: one after another, in batches, and with stream.mode=async.

    python -m benchmarks.bench_async [--json FILE] [--seeds N] [--wide N] [--worlds toy customs ...] [--real S]
    python -m benchmarks.bench_async --lengths-of RUN [RUN ...] [--seeds N] [--wide N]

Every run is the whole program, in a world whose result is known, with players that know their prompt alone. Tasks are
shuffled by the seed. Time is simulated: a task is an attempt, a verdict and a distillation, and each of these calls
takes as long as a hash of its task and role says, lognormal. Tasks that overlap end in the order of that time, which
the program is given by stream.order_from; so a busy machine changes no figure. With --real S, the calls of further runs
take S seconds in the mean, and time and order are the clock's.

How much is gained depends on how unequal the tasks are. --lengths-of says what it would be for long streams of tasks
that take as long as those of finished runs did (`wall_s` of timings.jsonl), drawn with replacement; nothing is run.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from analysis.inspect_log import clock
from analysis.runs import explaining, read_run
from benchmarks.lines import Lines, lines_parser
from core.errors import UserError
from core.jsonl import JsonLines
from core.models.base import Reply, Request
from core.models.offline import FreePlayer, ScriptedModel
from core.seeding import derive_seed
from core.types import Message
from envs.customs import BRANDS
from envs.toy_script import play as toy  # noqa: F401 - the player of that world, by its name
from scripts.command_line import REPO, plain_errors
from single_turn_bench.files import read_objects

SPREAD = 1.0  # standard deviation of the logarithm of a call's time
RULE = re.compile(r"[Ee]very (\w+) machine must be started with its (\w+) button\.")
TOY = "env=toy env.boxes_per_family=20"
WORLDS = {  # {name: (words, player)}; in warmup no lesson helps
    "toy": (TOY, "toy"),
    "toy, long": (TOY.replace("=20", "=100"), "toy"),
    "toy, k=3": (f"{TOY} workflow=matts_parallel k=3", "toy"),
    "toy_chance": ("env=toy_chance limit=80", "toy"),
    "customs": ("env=customs env.families=8 env.jobs_per_family=10", "customs"),
    "warmup": ("env=warmup limit=40", "by_lot"),
}
LONG = 2_000  # tasks of a stream whose end, when fewer tasks than may overlap are left, weighs next to nothing
ONE = "one after another"
ORDER = "stream.order_from=order{}-${{seed}}"  # in the folder in which the program is started


def length(*names: object) -> float:
    """How long a call takes: lognormal, with the mean 1."""
    first, second = (derive_seed("length", number, *names) / 2**31 for number in range(2))
    normal = math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)
    return math.exp(SPREAD * normal - SPREAD**2 / 2)


def duration(seed: int, task: str, k: int) -> float:
    """How long a task takes: k attempts at once, then judge, selector and distiller, at once where k > 1."""
    attempts = [length(seed, task, "agent", n) for n in range(k)]
    if k == 1:
        return attempts[0] + length(seed, task, "judge", 0) + length(seed, task, "extractor")
    verdicts = [length(seed, task, "judge", n) for n in range(k)]
    return max(attempts) + max(*verdicts, length(seed, task, "selector"), length(seed, task, "extractor"))


def overlapped(took: list[float], window: int) -> tuple[float, list[tuple[int, int]]]:
    """(when the last task ends, (place, seen) of each in the order of their ends) where each end begins the next."""
    under_way: list[tuple[float, int, int]] = []  # (its end, place, how many had ended when it began)
    now, order = 0.0, []
    for place, takes in enumerate(took):
        if len(under_way) == window:
            now, *ended = heapq.heappop(under_way)
            order.append(tuple(ended))
        heapq.heappush(under_way, (now + takes, place, len(order)))
    left = [heapq.heappop(under_way) for _ in range(len(under_way))]
    return left[-1][0], order + [(place, seen) for _, place, seen in left]


def write_order(folder: Path, ids: list[str], order: list[tuple[int, int]]) -> None:
    """What stream.order_from reads."""
    folder.mkdir(parents=True)
    rows = [{"index": n, "place": p, "seen": s, "task_id": ids[p]} for n, (p, s) in enumerate(order)]
    with closing(JsonLines(folder / "episodes.jsonl", chained=True)) as lines:
        for row in rows:
            lines.append(row | {"status": "success", "trajectories": []})


@dataclass(kw_only=True)
class Varied(ScriptedModel):
    """A scripted model whose calls take as long as real ones. mean_s: of a call"""

    mean_s: float

    def chat(self, request: Request) -> Reply:
        texts = (message["content"] for message in request.messages)
        time.sleep(self.mean_s * length(request.role, request.sample, *texts))
        return super().chat(request)


def customs(messages: list[Message], role: str, sample: int) -> str:
    """A worker who presses what a lesson names, else yellow; a judge and a distiller who read what they are told."""
    text = messages[-1]["content"]
    if role == "judge":
        return f'Thoughts: it is said.\nStatus: "{"success" if "The machine starts" in text else "failure"}"'
    if role == "extractor":
        return _lesson(stated[0]) if (stated := RULE.search(text)) else "There is nothing to learn from this."
    told = dict(RULE.findall(messages[0]["content"]))
    brand = next(name for name in BRANDS if name in messages[1]["content"])
    return f"press {told.get(brand, 'yellow')}"


def by_lot(messages: list[Message], role: str, sample: int) -> str:
    """One who draws his answer from the task's numbers, and learns from whatever it was."""
    others = {"judge": 'Thoughts: who knows.\nStatus: "success"', "extractor": _lesson("Draw one of the numbers.")}
    return others.get(role) or FreePlayer().chat(Request(messages=messages, role=role, sample=sample)).text


def _lesson(content: str) -> str:
    return f"```\n# Memory Item 1\n## Title A rule\n## Description What was said.\n## Content {content}\n```"


def played(folder: Path, world: str, *words: str) -> None:
    """Runs of the program in this folder."""
    fixed, player = WORLDS[world]
    llm = ("llm=scripted", f"llm.script.path=benchmarks.bench_async.{player}", "embedder=hashing")
    words = (*words, *fixed.split(), *llm, "stream.order=shuffled", f"run_dir={folder}")
    command = [sys.executable, str(REPO / "main.py"), *words]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def success(folder: Path) -> float:
    """Of a run."""
    rows = [row for _, row in read_objects(folder / "episodes.jsonl")]
    return sum(row["status"] == "success" for row in rows) / len(rows)


def in_world(lines: Lines, folder: Path, world: str, wide: int, seeds: int) -> list[dict[str, Any]]:
    """A row a mode: its speed beside one after another, and its success, over the seeds."""
    windows = {f"async, {n} wide": n for n in (wide // 2, wide, 2 * wide)}
    batches, table = f"batches of {wide}", {}
    words = {ONE: (), batches: (f"stream.batch={wide}", f"max_concurrency={wide}")}
    words |= {mode: ("stream.mode=async", f"stream.window={n}", ORDER.format(n)) for mode, n in windows.items()}
    for number, mode in enumerate(words):
        runs = folder / f"runs{number}"
        played(runs, world, "-m", f"seed={','.join(map(str, range(seeds)))}", *words[mode])
        rates = [success(file.parent) for file in runs.rglob("episodes.jsonl")]
        if mode == ONE:
            times = simulated(runs, folder, 3 if "k=3" in WORLDS[world][0] else 1, wide, windows)
        row = {"world": world, "mode": mode, "seeds": len(rates), "speed": sum(times[ONE]) / sum(times[mode])}
        row |= {"success": statistics.mean(rates), "error": statistics.stdev(rates) / seeds**0.5 if seeds > 1 else 0.0}
        print("     {world:<12} {mode:<20} {speed:5.2f} x   {success:.3f} +- {error:.3f}".format(**row), flush=True)
        table[mode] = row
    mine, theirs = table[f"async, {wide} wide"], table[batches]
    gain, lost = mine["speed"] / theirs["speed"], theirs["success"] - mine["success"]
    lines.add(f"{world}: {mine['mode']}, beside {batches}", gain, 1.5, "x as fast", least=True)
    lines.add(f"{world}: success lost beside {batches}", lost, 0.03, "")
    return list(table.values())


def in_the_long_run(lines: Lines, wide: int, seeds: int) -> None:
    """The simulated time alone, of streams that are long."""
    times = [[duration(seed, f"task {number}", 1) for number in range(LONG)] for seed in range(seeds)]
    mine, theirs = speeds(times, wide)
    name, note = f"{LONG} tasks: async, {wide} wide", f"{mine:.2f} x and {theirs:.2f} x of {ONE}"
    lines.add(name, 100 * mine / wide, 98, "% of ideal", least=True)
    lines.add(f"{name}, beside batches of {wide}", mine / theirs, 1.8, "x as fast", least=True, note=note)


def speeds(times: list[list[float]], wide: int) -> tuple[float, float]:
    """Of streams of tasks that take so long: how much faster than one after another overlapping and batches are."""
    one = sum(map(sum, times))
    return one / sum(overlapped(took, wide)[0] for took in times), one / sum(in_batches(took, wide) for took in times)


def lengths_of(folder: Path) -> list[float]:
    """Seconds of each task of a run that began as the one before it ended; the first of every start also loads things.

    UserError for a run whose tasks did not come one after another: only then is it known.
    """
    run = read_run(folder)
    with explaining(folder):
        stream, together = run.config["stream"], run.config["max_concurrency"]
        spans = sorted(clock(run).values())
    if stream["mode"] == "async" or stream["batch"] != 1 or together != 1:
        raise UserError(f"{folder}: how long a task takes is known only where tasks came one after another.")
    took = [end - begin for (_, before), (begin, end) in pairwise(spans) if abs(begin - before) < 1]
    if sum(took) <= 0:
        raise UserError(
            f"{folder}: its timings.jsonl must hold two tasks at least, the second as soon as the first ended."
        )
    return took


def like_runs(runs: list[Path], wide: int, seeds: int) -> list[dict[str, Any]]:
    """A row a run: what long streams of tasks like its own would gain."""
    table = []
    for run in runs:
        took = lengths_of(run)
        times = [random.Random(seed).choices(took, k=LONG) for seed in range(seeds)]
        mine, theirs = speeds(times, wide)
        row = {"run": str(run), "tasks": len(took), "mean_s": statistics.mean(took), "sd_s": statistics.pstdev(took)}
        row |= {"wide": wide, "async": mine, "batches": theirs, "gain": mine / theirs}
        about = "{run}: {tasks} tasks of {mean_s:.1f} s, standard deviation {sd_s:.1f} s\n"
        gained = "     async, {wide} wide {async:.2f} x, batches of {wide} {batches:.2f} x: {gain:.2f} x as fast"
        print((about + gained).format(**row), flush=True)
        table.append(row)
    return table


def in_batches(took: list[float], wide: int) -> float:
    """When the last task ends where each batch waits for its longest."""
    return sum(max(took[n : n + wide]) for n in range(0, len(took), wide))


def simulated(runs: Path, folder: Path, k: int, wide: int, windows: dict[str, int]) -> dict[str, list[float]]:
    """{mode: the simulated time of each seed}; writes the orders in which overlapping tasks end."""
    times: dict[str, list[float]] = {mode: [] for mode in (ONE, f"batches of {wide}", *windows)}
    for file in runs.rglob("manifest.json"):
        manifest = json.loads(file.read_text(encoding="utf-8"))
        seed, ids = manifest["config"]["seed"], manifest["task_ids"]
        took = [duration(seed, task, k) for task in ids]
        times[ONE].append(sum(took))
        times[f"batches of {wide}"].append(in_batches(took, wide))
        for mode, window in windows.items():
            end, order = overlapped(took, window)
            times[mode].append(end)
            write_order(folder / f"order{window}-{seed}", ids, order)
    return times


def by_the_clock(folder: Path, world: str, wide: int, mean_s: float) -> None:
    """One seed, with calls that take their time."""
    varied = ("llm._target_=benchmarks.bench_async.Varied", f"+llm.mean_s={mean_s}")
    modes = {ONE: (), f"batches of {wide}": (f"stream.batch={wide}", f"max_concurrency={wide}")}
    modes |= {f"async, {wide} wide": ("stream.mode=async", f"stream.window={wide}")}
    first = 0.0
    for number, (mode, words) in enumerate(modes.items()):
        run = folder / f"real{number}"
        played(run, world, *varied, *words)
        took = sum(row["wall_s"] for _, row in read_objects(run / "timings.jsonl"))
        first = first or took
        print(f"     {world:<12} {mode:<20} {first / took:5.2f} x   {success(run):.3f} in {took:.1f} s", flush=True)


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = lines_parser(__doc__)
    options.add_argument("--seeds", type=int, default=10, help="runs of each kind")
    options.add_argument("--wide", type=int, default=4, help="tasks at once")
    options.add_argument("--real", type=float, metavar="S", help="also by the clock, with calls of S seconds")
    options.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS), help="those to run in")
    options.add_argument(
        "--lengths-of", type=Path, nargs="+", metavar="RUN", help="only what tasks as long as theirs gain"
    )
    given = options.parse_args(arguments)
    if given.wide < 2 or given.seeds < 1:
        options.error("--wide is 2 or more, --seeds 1 or more")
    lines, table = Lines(), like_runs(given.lengths_of or [], given.wide, given.seeds)
    if not table:
        in_the_long_run(lines, given.wide, given.seeds)
        for world in given.worlds:
            with tempfile.TemporaryDirectory() as name:
                table += in_world(lines, Path(name), world, given.wide, given.seeds)
                if given.real:
                    by_the_clock(Path(name), world, given.wide, given.real)
    lines.end(given.json, table)


if __name__ == "__main__":
    sys.exit(main())
