"""How long scripts/tables.py takes over many runs: made-up episodes of the size of real ones, written to a folder.

    python -m scripts.bench.bench_tables [--runs 100] [--episodes 500] [--steps 12] [--keep FOLDER]

Prints one line; --keep leaves the made-up runs there (they say so in their manifest), to be looked at or reported on.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from core.types import content_id

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("no_memory", "synapse", "awm", "reasoningbank", "matts_parallel")
TYPES = ("pick", "look", "clean", "heat", "cool")


def make_run(folder: Path, arm: str, seed: int, n_episodes: int, n_steps: int) -> Path:
    """One made-up run directory: success by a coin that memory loads a little."""
    rng = random.Random(f"{arm} {seed}")
    path = folder / f"{arm}-seed{seed}"
    (path / ".hydra").mkdir(parents=True)
    task_ids = [f"made_up/{TYPES[n % len(TYPES)]}/{n}" for n in range(n_episodes)]
    workflow = {"_target_": "made_up", "k": 3 if arm == "matts_parallel" else None, "r": None, "learn_from": "both"}
    config = {
        "seed": seed,
        "workflow": workflow,
        "retrieval": {"top_k": 1},
        "setting": {"name": "test_time"},
        "arm": arm,
    }
    dataset = {"dataset": "made_up", "sha256": None, "tasks": content_id(task_ids)}
    manifest = {
        "schema": 1,
        "made_up": True,
        "command": ["main.py", f"arm={arm}", f"seed={seed}"],
        "config": config,
        "task_ids": task_ids,
        "models": {"agent": {"model": "made-up"}},
        "run": content_id(config),
        "fingerprint": {"config": config, "prompts": {}, "dataset": dataset},
        "git": {"sha": None, "dirty": []},
    }
    choices = {"arm": arm, "env": "made_up", "workflow": arm, "judge": "llm", "llm": "made_up"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    (path / ".hydra" / "config.yaml").write_text(json.dumps(config))
    (path / ".hydra" / "hydra.yaml").write_text(json.dumps({"runtime": {"choices": choices}}))
    chance = 0.4 + 0.05 * ARMS.index(arm)
    with (path / "episodes.jsonl").open("w") as file:
        for index, task_id in enumerate(task_ids):
            file.write(json.dumps(make_row(rng, arm, index, task_id, chance, n_steps)) + "\n")
    return path


def make_row(rng: random.Random, arm: str, index: int, task_id: str, chance: float, n_steps: int) -> dict:
    """One made-up episode."""
    attempts = [make_attempt(rng, n, chance, n_steps) for n in range(3 if arm == "matts_parallel" else 1)]
    won, remembers = attempts[0]["success"], arm != "no_memory"
    said = "success" if won == (rng.random() < 0.8) else "failure"
    verdict = {"label": said, "source": "llm", "confidence": None, "reason": "", "parsed": True, "truncated": False}
    silent = {"label": None, "source": "none", "confidence": None, "reason": "", "parsed": True, "truncated": False}
    lesson = {
        "title": "Look first",
        "description": "Where to look.",
        "content": "Open what is closed before you go on.",
    }
    broken = rng.random() < 0.01
    return {
        "index": index,
        "task_id": task_id,
        "task_type": task_id.split("/")[1],
        "query": f"made-up task {index}",
        "status": "infra_error" if broken else "success" if won else "failure",
        "reward": float(won),
        "verdict": verdict if remembers else silent,
        "verdicts": [verdict if remembers else silent for _ in attempts],
        "retrieved": [{"id": f"{index:016x}", "score": rng.random()}] if remembers and index else [],
        "trajectories": attempts,
        "chosen": 0,
        "lessons": [lesson] if remembers else [],
        "n_dropped": 0,
        "n_truncated": 0,
        "usage": {"agent": attempts[0]["usage"]} | ({"judge": attempts[0]["usage"]} if remembers else {}),
        "selection": None,
        "learning_errors": [],
        "records": [],
        "schema": 2,
    }


def make_attempt(rng: random.Random, sample: int, chance: float, n_steps: int) -> dict:
    """One made-up attempt."""
    steps = [
        {
            "text": f"Thought: I have looked in drawer {n} and go on to the next one.\nAction: go to drawer {n + 1}",
            "thought": f"I have looked in drawer {n} and go on to the next one.",
            "action": f"go to drawer {n + 1}",
            "observation": f"You arrive at drawer {n + 1}. It is closed. " + "On it you see nothing. " * 9,
            "valid": True,
            "finish_reason": "stop",
        }
        for n in range(rng.randint(2, 2 * n_steps - 2))
    ]
    won = rng.random() < chance
    used = {"calls": len(steps), "prompt_tokens": 900 * len(steps), "completion_tokens": 40 * len(steps)}
    return {
        "id": f"{rng.getrandbits(64):016x}",
        "sample": sample,
        "opening": [{"role": "system", "content": "You are in a house. " * 40}, {"role": "user", "content": "Look."}],
        "steps": steps,
        "answer": None,
        "ended_by": "goal" if won else "step_limit",
        "reward": float(won),
        "success": won,
        "gold": "",
        "info": {},
        "usage": used | {"reasoning_tokens": 0, "cost_usd": 0.001 * len(steps)},
        "error": None,
    }


def make_runs(folder: Path, n_runs: int, n_episodes: int, n_steps: int) -> None:
    for number in range(n_runs):
        make_run(folder, ARMS[number % len(ARMS)], number // len(ARMS), n_episodes, n_steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--steps", type=int, default=12, help="of an attempt, on average")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        make_runs(folder, given.runs, given.episodes, given.steps)
        size = sum(path.stat().st_size for path in folder.rglob("episodes.jsonl")) / 1e6
        began = time.monotonic()
        words = [sys.executable, "-m", "scripts.tables", str(folder), "--table", "main"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        took = time.monotonic() - began
    if "| no_memory |" not in done.stdout:  # how fast it fails is of no interest
        sys.exit(done.stderr)
    what = f"{given.runs} runs x {given.episodes} episodes ({size:.0f} MB)"
    print(f"tables.py over {what}: {took:.1f} s (wanted: under 10)")


if __name__ == "__main__":
    main()
