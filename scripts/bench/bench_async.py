"""Speed against success of a stream whose tasks overlap: one after another, in batches, and with stream.mode=async.

    python -m scripts.bench.bench_async [--json FILE] [--seeds N] [--wide N] [--worlds toy customs ...] [--real S]

Every run is the whole program, in a world whose result is known, with players that know their prompt alone. Tasks are
shuffled by the seed. Time is simulated: a call takes as long as a hash of its task, role and number says, lognormal as
the lengths of real replies are, and tasks that overlap end in the order of that time; so a busy machine changes no
figure. With --real S, the calls of further runs take S seconds in the mean, and their time is the clock's.
"""

from __future__ import annotations

import math
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from core.interrupt import Interrupts
from core.models.base import Reply
from core.models.free import FreePlayer
from core.models.scripted import ScriptedModel
from core.seeding import derive_seed
from core.types import Message
from envs import toy_script
from envs.customs import BRANDS
from scripts.bench.lines import Lines, lines_parser
from scripts.command_line import REPO
from single_turn_bench.files import read_objects
from workflows import overlap

SPREAD = 1.0  # standard deviation of the logarithm of a call's time
RULE = re.compile(r"[Ee]very (\w+) machine must be started with its (\w+) button\.")
TOY = "env=toy env.boxes_per_family=20"
WORLDS = {  # {name: (words, player)}; in warmup no lesson helps
    "toy": (TOY, "toy"),
    "toy, k=3": (f"{TOY} workflow=matts_parallel k=3", "toy"),
    "toy_chance": ("env=toy_chance limit=80", "toy"),
    "customs": ("env=customs env.families=8 env.jobs_per_family=10", "customs"),
    "warmup": ("env=warmup limit=40", "by_lot"),
}
ONE = "one after another"


def length(*names: object) -> float:
    """How long a call takes: lognormal, with the mean 1."""
    first, second = (derive_seed("length", number, *names) / 2**31 for number in range(2))
    normal = math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)
    return math.exp(SPREAD * normal - SPREAD**2 / 2)


def duration(row: dict[str, Any]) -> float:
    """How long an episode takes: its k attempts at once, then judge, selector and distiller, at once where k > 1."""
    attempts = row["trajectories"]
    task = (row["task_id"], attempts[0]["gold"])  # the answer is another one with another seed
    acted = [sum(length(*task, each["sample"], n) for n in range(len(each["steps"]))) for each in attempts]
    learned = [length(*task, role) for role, used in row["usage"].items() if role != "agent" and used["calls"]]
    return max(acted) + (max(learned, default=0.0) if len(attempts) > 1 else sum(learned))


def makespan(rows: list[dict[str, Any]], batch: int) -> float:
    """How long the stream of these episodes takes; those that overlap begin where they recorded that they did."""
    if "seen" not in rows[0]:
        took = [duration(row) for row in rows]
        return sum(max(took[start : start + batch]) for start in range(0, len(took), batch))
    ended: list[float] = []
    for row in rows:
        ended.append(duration(row) + (ended[row["seen"] - 1] if row["seen"] else 0.0))
    return max(ended)


@dataclass(kw_only=True)
class Simulated(overlap.Flight):
    """Tasks end in the order of the simulated time, whatever the clock says."""

    _now: float = field(default=0.0, init=False)
    _ends: dict[int, float] = field(default_factory=dict, init=False)

    def next_to_end(self) -> int | None:
        super().next_to_end()  # begins what may begin, and waits for one
        for place, (_, result) in self._begun.items():
            if place not in self._ends:
                self._ends[place] = self._now + duration(asdict(result.result()))
        if not self._begun:
            return None
        place = min(self._begun, key=self._ends.__getitem__)
        self._now = self._ends[place]
        return place


@dataclass(kw_only=True)
class Varied(ScriptedModel):
    """A scripted model whose calls take as long as real ones. mean_s: of a call"""

    mean_s: float

    def chat(self, messages: list[Message], *, role: str, sample: int = 0, **how: Any) -> Reply:
        time.sleep(self.mean_s * length(role, sample, *(message["content"] for message in messages)))
        return super().chat(messages, role=role, sample=sample, **how)


toy = toy_script.play


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
    return others.get(role) or FreePlayer().chat(messages, role=role, sample=sample).text


def _lesson(content: str) -> str:
    return f"```\n# Memory Item 1\n## Title A rule\n## Description What was said.\n## Content {content}\n```"


def modes(wide: int) -> dict[str, str]:
    """{name: words}."""
    return {
        ONE: "",
        f"batches of {wide}": f"stream.batch={wide} max_concurrency={wide}",
        **{f"async, {n} wide": f"stream.mode=async stream.window={n}" for n in (wide, wide // 2, 2 * wide)},
    }


@contextmanager
def simulated() -> Iterator[None]:
    """A block in which tasks overlap in simulated time."""
    usual, overlap.Flight = overlap.Flight, Simulated
    try:
        yield
    finally:
        overlap.Flight = usual


def played(folder: Path, world: str, mode: str, seed: int, mean_s: float = 0.0) -> list[dict[str, Any]]:
    """The episodes of a run."""
    from hydra import compose, initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    import main

    words, player = WORLDS[world]
    llm = ["llm=scripted", f"llm.script.path=scripts.bench.bench_async.{player}", "embedder=hashing", f"seed={seed}"]
    llm += ["llm._target_=scripts.bench.bench_async.Varied", f"+llm.mean_s={mean_s}"] if mean_s else []
    overrides = [*words.split(), *llm, "stream.order=shuffled", *mode.split()]
    with initialize_config_dir(str(REPO / "config"), version_base="1.3", job_name="main"):
        cfg = compose("config", overrides=overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    with redirect_stdout(StringIO()), Interrupts() as interrupts, ExitStack() as stack:
        main.run(cfg, folder, interrupts, stack)
    return [row for _, row in read_objects(folder / "episodes.jsonl")]


def success(rows: list[dict[str, Any]]) -> float:
    return sum(row["status"] == "success" for row in rows) / len(rows)


def in_world(lines: Lines, folder: Path, world: str, wide: int, seeds: int) -> list[dict[str, Any]]:
    """A row a mode: its speed beside one after another, and its success, over the seeds."""
    table, times = [], []
    for number, (mode, words) in enumerate(modes(wide).items()):
        with simulated():
            runs = [played(folder / f"{number}-{seed}", world, words, seed) for seed in range(seeds)]
        times.append(sum(makespan(rows, wide if "batch=" in words else 1) for rows in runs))
        rates = [success(rows) for rows in runs]
        row = {"world": world, "mode": mode, "seeds": seeds, "speed": times[0] / times[-1]}
        row |= {"success": statistics.mean(rates), "error": statistics.stdev(rates) / seeds**0.5 if seeds > 1 else 0.0}
        table.append(row)
        print("     {world:<12} {mode:<20} {speed:5.2f} x   {success:.3f} +- {error:.3f}".format(**row), flush=True)
    batches, wide_one = table[1], table[2]
    gain, lost = wide_one["speed"] / batches["speed"], batches["success"] - wide_one["success"]
    lines.add(f"{world}: {wide_one['mode']}, beside {batches['mode']}", gain, 1.5, "x as fast", least=True)
    lines.add(f"{world}: success lost beside {batches['mode']}", lost, 0.03, "")
    return table


def by_the_clock(folder: Path, world: str, wide: int, mean_s: float) -> None:
    """The same with calls that take their time."""
    first = 0.0
    for number, (mode, words) in enumerate(list(modes(wide).items())[:3]):
        rows = played(folder / f"real-{number}", world, words, 0, mean_s)
        took = sum(row["wall_s"] for _, row in read_objects(folder / f"real-{number}" / "timings.jsonl"))
        first = first or took
        print(f"     {world:<12} {mode:<20} {first / took:5.2f} x   {success(rows):.3f} in {took:.1f} s", flush=True)


def main() -> None:
    options = lines_parser(__doc__)
    options.add_argument("--seeds", type=int, default=10, help="runs of each kind")
    options.add_argument("--wide", type=int, default=4, help="tasks at once")
    options.add_argument("--real", type=float, metavar="S", help="also by the clock, with calls of S seconds")
    options.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS), help="those to run in")
    given = options.parse_args()
    lines, table = Lines(), []
    for world in given.worlds:
        with tempfile.TemporaryDirectory() as name:
            table += in_world(lines, Path(name), world, given.wide, given.seeds)
            if given.real:
                by_the_clock(Path(name), world, given.wide, given.real)
    lines.end(given.json, table)


if __name__ == "__main__":
    main()
