"""Replay recorded ALFWorld runs through our adapter and compare what it answers.

    python -m scripts.replay TRAJECTORIES.jsonl.gz --games ARCHIVE [--limit N] [--workers K]

A recording is a line {"name": "<task>/<trial>", "result": true | false | 0, "traj": text}; in the text an action stands
after "> " (except thoughts, "> Think: ..." and "> ActionPath: ...") and the observation on the lines that follow it.
A run is the same when every observation is, up to the words "You arrive at ..." that such recordings drop, and when it
is won here exactly if it was won there. Prints what differs and, last, `same X/N`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import queue
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.types import Task
from envs.alfworld_env import AlfworldEnv
from envs.alfworld_games import SPLITS

THOUGHTS = ("Think:", "ActionPath:")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """turns: the actions and the observations after them."""

    name: str
    won: bool
    first: str
    turns: tuple[tuple[str, str], ...]


def read_recording(line: str) -> Recording:
    row = json.loads(line)
    first, *rest = re.split(r"^> ", row["traj"], flags=re.MULTILINE)
    turns = [part.partition("\n") for part in rest if not part.startswith(THOUGHTS)]
    return Recording(
        name=row["name"],
        won=row["result"] is True,
        first=first,
        turns=tuple((action, observation) for action, _, observation in turns),
    )


def differences(env: AlfworldEnv, task: Task, recording: Recording) -> list[str]:
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
        try:
            found = env.tasks(split)
        except UserError:
            continue  # no games of this split
        for task in found:
            tasks.setdefault(task.id.split("/", 2)[2], task)
    return tasks


def replay_all(recordings: list[Recording], games: str, workers: int) -> int:
    """Print what differs, in the recordings' order; return how many are the same."""
    envs: queue.SimpleQueue[AlfworldEnv] = queue.SimpleQueue()
    made = [AlfworldEnv(instructions="", max_steps=1000, data=games) for _ in range(workers)]
    tasks = tasks_by_name(made[0])
    for env in made:
        envs.put(env)

    def replay(recording: Recording) -> list[str]:
        if recording.name not in tasks:
            return ["no such game"]
        env = envs.get()
        try:
            return differences(env, tasks[recording.name], recording)
        finally:
            envs.put(env)

    same = 0
    try:
        with ThreadPoolExecutor(workers) as pool:
            for recording, found in zip(recordings, pool.map(replay, recordings)):
                same += not found
                for text in found:
                    print(f"{recording.name}: {text}", flush=True)
    finally:
        for env in made:
            env.close()
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay recorded ALFWorld runs through our adapter.")
    parser.add_argument("trajectories", type=Path, help="recorded runs, .jsonl or .jsonl.gz")
    parser.add_argument("--games", required=True, help="the games they were played on: a folder or a tar archive")
    parser.add_argument("--limit", type=int, help="replay the first N only")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="games played at once")
    args = parser.parse_args()
    opener = gzip.open if args.trajectories.suffix == ".gz" else open
    with opener(args.trajectories, "rt", encoding="utf-8") as file:
        recordings = [read_recording(line) for line in file if line.strip()][: args.limit]
    try:
        same = replay_all(recordings, args.games, args.workers)
    except UserError as error:
        sys.exit(str(error))
    print(f"same {same}/{len(recordings)}")
    return 0 if same == len(recordings) else 1


if __name__ == "__main__":
    sys.exit(main())
