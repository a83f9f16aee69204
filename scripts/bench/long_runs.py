"""Runs of any length, for benchmarks of what reads them: real ones of the toy world, lengthened afterwards."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.command_line import REPO

TOY = ("env=toy", "llm=scripted", "embedder=hashing", "experiment=main_table", "seed=0")


def make_runs(folder: Path, arms: Sequence[str], n_episodes: int, n_steps: int) -> list[Path]:
    """A run of each arm: attempts of n_steps, their observations random words, some 300 characters. In the arms' order.

    A household task looks so. The words repeat as seldom as those of a text do, or more so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = (f"arm={','.join(arms)}", f"env.boxes_per_family={-(-n_episodes // 4)}", f"limit={n_episodes}")
    command = [sys.executable, str(REPO / "main.py"), *TOY, *words, f"run_dir={folder}"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    runs = [folder / f"toy-scripted-{arm}-seed0" for arm in arms]
    for run in runs:
        rng, rows = random.Random(run.name), read_episodes(run)
        for attempt in (attempt for row in rows for attempt in row["trajectories"]):
            first = attempt["steps"][0]
            attempt["steps"] = [first | {"observation": babble(rng)} for _ in range(n_steps - 1)] + attempt["steps"]
        write_episodes(run, rows)
    return runs


def babble(rng: random.Random) -> str:
    return " ".join("".join(rng.choices("aeinorstlmd", k=rng.randint(2, 8))) for _ in range(50))


def read_episodes(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]


def write_episodes(run: Path, rows: list[dict]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "episodes.jsonl").write_text(text, encoding="utf-8")


def size_mb(runs: Sequence[Path]) -> float:
    """Of the episodes of some runs."""
    return sum((run / "episodes.jsonl").stat().st_size for run in runs) / 1e6
