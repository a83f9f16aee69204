"""What our ALFWorld adapter costs over the bare engine, on this machine, in one run.

    python -m benchmarks.bench_alfworld [--games 6] [--repeats 3] [--split generated] [--data PATH]

Each step is timed twice at once: in the worker around the engine's own step, and here around the adapter's, so that
whatever else the machine is doing falls on both. The difference is the adapter: contract, pipe, pickling, process
switch. Medians over all steps.
"""

from __future__ import annotations

import importlib
import statistics
import time
from typing import Any

from benchmarks.lines import seconds
from core.process import WorkerProcess
from core.types import Task
from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.env import AlfworldEnv
from scripts.command_line import parser


class TimedEngine(AlfworldEngine):
    """The engine that the adapter uses, with a clock around ALFWorld's own `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        bare_step = self._env.step

        def step(command: str) -> Any:
            start = time.perf_counter()
            answer = bare_step(command)
            self.seconds = time.perf_counter() - start
            return answer

        self._env.step = step

    def last_seconds(self) -> float:
        return self.seconds


def step_seconds(env: AlfworldEnv, worker: WorkerProcess, task: Task) -> list[tuple[float, float]]:
    """(adapter, engine) seconds for each step of a game."""
    env.reset(task)
    commands = ["look", "inventory", "frobnicate", *env.walkthrough()]
    return [(seconds(env.step, command), worker.call("last_seconds")) for command in commands]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=6)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--split", default="generated")
    options.add_argument("--data")
    given = options.parse_args()
    # by its importable name: what is defined in a script's __main__ does not exist in another process
    worker = WorkerProcess(factory=importlib.import_module("benchmarks.bench_alfworld").TimedEngine)
    with AlfworldEnv(instructions="", max_steps=50, split=given.split, data=given.data) as env:
        env._worker = worker
        tasks = env.tasks()[: given.games]
        rows = [row for task in tasks for _ in range(given.repeats) for row in step_seconds(env, worker, task)]
    adapter, engine = (statistics.median(column) for column in zip(*rows))
    extra = statistics.median(adapter - engine for adapter, engine in rows)
    print(f"{len(tasks)} games, {len(rows)} steps")
    ms = f"adapter {1000 * adapter:.2f} ms, difference {1000 * extra:.2f} ms"
    print(f"bare engine {1000 * engine:.2f} ms a step, {ms}")
    print(f"overhead {100 * extra / engine:.1f} % (target: at most 5 %)")


if __name__ == "__main__":
    main()
