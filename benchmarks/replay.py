"""Replay recorded ALFWorld runs in our environment and compare its observations with the recorded ones.

    python -m benchmarks.replay TRAJECTORIES.jsonl.gz --games ARCHIVE [--limit N] [--workers K]

A recording is a line {"name": "<task>/<trial>", "result": true | false | 0, "traj": text}. In the text, an action is
on a line after "> " (except for thoughts, "> Think: ..." and "> ActionPath: ..."), and the observation is on the lines
that follow. Two runs are the same if all observations are the same, apart from "You arrive at ...", which such
recordings leave out, and if both are won or both are not. Prints what differs and, at the end, `same X/N`.
"""

from __future__ import annotations

import os
import queue
import re
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.concurrency import ordered_map
from core.errors import UserError
from core.types import Task
from envs.alfworld.env import AlfworldEnv
from envs.alfworld.games import SPLITS
from scripts.command_line import parser, plain_errors
from single_turn_bench.files import read_objects

THOUGHTS = ("Think:", "ActionPath:")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """turns: the actions and the observations after them."""

    name: str
    won: bool
    first: str
    turns: tuple[tuple[str, str], ...]


def read_recording(row: dict[str, Any]) -> Recording:
    first, *rest = re.split(r"^> ", row["traj"], flags=re.MULTILINE)
    turns = [part.partition("\n") for part in rest if not part.startswith(THOUGHTS)]
    return Recording(
        name=row["name"],
        won=row["result"] is True,
        first=first,
        turns=tuple((action, observation) for action, _, observation in turns),
    )


def mismatches(env: AlfworldEnv, task: Task, recording: Recording) -> list[str]:
    """What differs when the recorded actions are played; the first difference in the observations ends the game."""
    scene = env.reset(task).partition("\n\nCommands:")[0]
    if not _alike(scene, recording.first):
        return [f"opening: {scene!r} instead of {recording.first!r}"]
    won = done = False
    for n, (action, expected) in enumerate(recording.turns, start=1):
        if done:
            return [f"step {n}: the game was over, but the recording goes on with {action!r}"]
        observation, _, done, info = env.step(action)
        won = info["won"]
        if not _alike(observation, expected):
            return [f"step {n} {action!r}: {observation!r} instead of {expected!r}"]
    return [] if won == recording.won else [f"outcome: won is {won} instead of {recording.won}"]


def _alike(ours: str, theirs: str) -> bool:
    ours, theirs = " ".join(ours.split()), " ".join(theirs.split())
    return theirs in (ours, re.sub(r"^You arrive at [^.]*\. ", "", ours))


def tasks_by_name(env: AlfworldEnv) -> dict[str, Task]:
    """`<task>/<trial>` -> task, over all splits that the games belong to."""
    tasks: dict[str, Task] = {}
    for split in SPLITS:
        with suppress(UserError):  # no games of this split
            tasks = {task.id.split("/", 2)[2]: task for task in env.tasks(split)} | tasks
    return tasks


def replay_all(recordings: list[Recording], games: str, workers: int) -> int:
    """Print what differs, in the recordings' order; return how many are the same."""
    idle: queue.SimpleQueue[AlfworldEnv] = queue.SimpleQueue()
    with ExitStack() as opened:
        for _ in range(workers):
            idle.put(env := opened.enter_context(AlfworldEnv(instructions="", max_steps=1000, data=games)))
        tasks = tasks_by_name(env)

        def replay(recording: Recording) -> list[str]:
            if recording.name not in tasks:
                return ["no such game"]
            env = idle.get()
            try:
                return mismatches(env, tasks[recording.name], recording)
            finally:
                idle.put(env)

        same = 0
        for recording, found in zip(recordings, ordered_map(replay, recordings, workers)):
            same += not found
            for text in found:
                print(f"{recording.name}: {text}", flush=True)
        return same


@plain_errors(status=1)
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("trajectories", type=Path, help="recorded runs, .jsonl or .jsonl.gz")
    options.add_argument("--games", required=True, help="the games they were played on: a folder or a tar archive")
    options.add_argument("--limit", type=int, help="replay the first N only")
    options.add_argument("--workers", type=int, default=os.cpu_count(), help="games played at once")
    given = options.parse_args(arguments)
    recordings = [read_recording(row) for _, row in read_objects(given.trajectories)][: given.limit]
    same = replay_all(recordings, given.games, given.workers)
    print(f"same {same}/{len(recordings)}")
    return int(same != len(recordings))


if __name__ == "__main__":
    sys.exit(main())
