"""What env=miniwob costs over bare BrowserGym with the same kept browser, on this machine, in one run.

    python -m benchmarks.bench_miniwob [--kinds enter-text,...] [--seeds 3] [--episodes 100] [--json FILE]

Both play the same tasks, in turns: the package's environment in a worker process, timed in there, and the adapter,
timed from here. Then two workers at once, the memory of one, and what is left after many episodes.
"""

from __future__ import annotations

import importlib
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines, lines_parser, seconds
from core.process import WorkerProcess
from core.types import Task
from envs.web.browser import environment
from envs.web.engine import Visit
from envs.web.miniwob_env import MiniwobEnv
from envs.web.miniwob_tasks import MiniwobEngine, visit

KINDS = "click-button,click-checkboxes,click-link,click-option,enter-text,login-user"
FAST = {"slow_mo_ms": 0, "settle_s": 0.1}


class BareEngine(MiniwobEngine):
    """BrowserGym's own environment and picture, with a clock; of the engine only the browser that is kept."""

    def __init__(self, settings: Any) -> None:
        import browsergym.core.env as module

        picture = module.extract_screenshot
        super().__init__(settings)
        module.extract_screenshot = picture

    def episode(self, begin: Visit, actions: list[str]) -> list[float]:
        """Seconds of the reset, then of each step."""
        import gymnasium

        self._kept.ready()
        if self._env is None:
            make = gymnasium.spec(f"browsergym/{begin.task}").entry_point
            self._env = make(task_kwargs=begin.options, action_mapping=self._code)
        self._env.task_entrypoint = gymnasium.spec(f"browsergym/{begin.task}").entry_point().task_entrypoint
        return [seconds(partial(self._env.reset, seed=begin.seed)), *(seconds(self._env.step, a) for a in actions)]


def solutions(env: MiniwobEnv) -> list[tuple[Task, list[str]]]:
    found = []
    for task in env.tasks():
        env.reset(task)
        found.append((task, env.walkthrough()))
    return found


def play(env: MiniwobEnv, task: Task, actions: list[str]) -> list[float]:
    """Seconds of the reset, then of each step."""
    took = [seconds(env.reset, task), *(seconds(env.step, action) for action in actions)]
    assert env.evaluate(None), task.id
    return took


def play_all(env: MiniwobEnv, tasks: list[tuple[Task, list[str]]]) -> None:
    for task, actions in tasks:
        play(env, task, actions)


def tree(pid: int) -> list[int]:
    """A process and all that it started, and they."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in tree(int(child)))]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def memory_mb(pids: list[int]) -> float:
    """What they hold together, shared pages counted once (PSS)."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def compare(lines: Lines, env: MiniwobEnv, tasks: list[tuple[Task, list[str]]]) -> None:
    # by its importable name: what is defined in a script's __main__ does not exist in another process
    bare_engine = importlib.import_module("benchmarks.bench_miniwob").BareEngine
    bare = WorkerProcess(factory=partial(bare_engine, env.settings()), environment=environment())
    bare.start()
    ours, theirs = [], []
    for task, actions in tasks:
        _, kind, seed = task.id.split("/")
        theirs.append(bare.call("episode", visit(kind, int(seed)), actions))
        ours.append(play(env, task, actions))
    bare.close()
    resets = [[row[0] for row in rows] for rows in (ours, theirs)]
    steps = [[took for row in rows for took in row[1:]] for rows in (ours, theirs)]
    for name, both in (("reset", resets), ("step", steps)):
        mine, bare_s = map(statistics.median, both)
        note = f"{1000 * mine:.0f} ms; bare {1000 * bare_s:.0f} ms"
        lines.add(f"{name}: over bare BrowserGym", 100 * (mine / bare_s - 1), 10, "%", note=note)
        lines.add(f"{name}: over bare BrowserGym", 1000 * (mine - bare_s), 50, "ms", note=note)


def main() -> None:
    options = lines_parser(__doc__)
    options.add_argument("--kinds", default=KINDS)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--episodes", type=int, default=100)
    given = options.parse_args()
    lines, keys = Lines(), {"instructions": "", "max_steps": 10, "kinds": given.kinds.split(","), "seeds": given.seeds}
    with MiniwobEnv(**keys) as env:
        tasks = solutions(env)
        print(f"{len(tasks)} tasks, {sum(len(actions) for _, actions in tasks)} steps")
        compare(lines, env, tasks)
    with MiniwobEnv(**keys) as one, MiniwobEnv(**keys) as two, ThreadPoolExecutor(2) as pool:
        for env in (one, two):
            play(env, *tasks[0])
        alone = seconds(play_all, one, tasks * 2)
        began = time.perf_counter()
        list(pool.map(play_all, (one, two), (tasks, tasks)))
        lines.add("two workers at once", alone / (time.perf_counter() - began), 1.6, "x one", least=True)
    with MiniwobEnv(**keys | FAST) as env:
        seen: set[int] = set()
        for number in range(given.episodes):
            play(env, *tasks[number % len(tasks)])
            seen |= set(tree(env.worker_pid))
        used = memory_mb(tree(env.worker_pid))
    print(f"     memory of a worker and its browser after {given.episodes} episodes: {used:.0f} MB")
    time.sleep(3)
    left = sum(map(alive, seen))
    lines.add(f"processes left of {len(seen)} that they had", left, 0, "processes")
    lines.end(given.json)


if __name__ == "__main__":
    main()
