"""What our ScienceWorld adapter costs over the bare engine, on this machine, in one run.

    python -m benchmarks.bench_scienceworld [--tasks boil,find-animal,...] [--steps 25] [--repeats 5]

The same actions are played on the same tasks through both, in turns. The bare engine is the package's own class when
valid actions are asked for (it always lists them), and its server's step, score and end when they are not. Of each
step's repetitions the fastest counts: what else the machine is doing only ever adds to it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.lines import seconds
from core.types import Task
from envs.scienceworld.engine import find_java
from envs.scienceworld.env import ScienceWorldEnv
from scripts.command_line import parser

TASKS = "boil,use-thermometer,test-conductivity,find-animal,chemistry-mix,inclined-plane-determine-angle"


def package() -> Any:
    """The package's own class; it takes its java from the PATH."""
    os.environ["PATH"] = os.pathsep.join((str(Path(find_java()).parent), os.environ.get("PATH", "")))
    from scienceworld import ScienceWorldEnv as Package

    return Package("", envStepLimit=10**6)


def play(bare: Any, adapter: ScienceWorldEnv, task: Task, actions: list[str]) -> dict[str, list[float]]:
    """One round: seconds per step, each way."""
    took = {}
    _, name, variation = task.id.split("/")
    server = bare.server

    def shortcut(action: str) -> tuple:
        return server.step(action), server.getScore(), server.getCompleted()

    for way, step in (("package, listing", bare.step), ("package, not listing", shortcut)):
        bare.load(name, int(variation), adapter.simplification)
        bare.reset()
        took[way] = [seconds(step, action) for action in actions]
    for way, show in (("adapter, listing", True), ("adapter, not listing", False)):
        adapter.show_valid = show
        adapter.reset(task)
        took[way] = [seconds(adapter.step, action) for action in actions]
    return took


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--tasks", default=TASKS)
    options.add_argument("--steps", type=int, default=25, help="of each task's gold path")
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    bare = package()
    fastest: dict[str, list[float]] = defaultdict(list)
    with ScienceWorldEnv(instructions="", max_steps=100, task_names=given.tasks.split(",")) as adapter:
        start = time.perf_counter()
        tasks = adapter.tasks()
        print(f"JVM started and {len(tasks)} tasks listed in {time.perf_counter() - start:.1f} s")
        for task in tasks:
            adapter.reset(task)
            # the last actions of a gold path end the episode; the package goes on, the adapter does not
            actions = adapter.walkthrough()[:-6][: given.steps]
            rounds = [play(bare, adapter, task, actions) for _ in range(given.repeats)]
            for way in rounds[0]:
                fastest[way] += map(min, zip(*(played[way] for played in rounds)))
    bare.close()
    figures = {way: 1000 * statistics.mean(each) for way, each in fastest.items()}
    print(f"tasks {len(tasks)}, steps {len(fastest['package, listing'])}, repeats {given.repeats}")
    for way, figure in figures.items():
        print(f"{way:22} {figure:8.2f} ms a step")
    for way, target in (("listing", "target: at most 10 %"), ("not listing", "must not pay for the list")):
        overhead = 100 * (figures[f"adapter, {way}"] / figures[f"package, {way}"] - 1)
        print(f"overhead {way:12} {overhead:+7.1f} % ({target})")


if __name__ == "__main__":
    main()
