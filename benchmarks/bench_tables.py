"""Time and memory of reasoningbank tables and report over many runs of the size of real ones.

    python -m benchmarks.bench_tables [--runs 200] [--episodes 500] [--steps 12] [--json FILE] [--quick]

An arm is run once, in the toy world, and lengthened; its other seeds are copies in which a coin, loaded a little by
memory, says how each episode ended. A table reads every episode. Beside it stands what Python's own json takes to parse
the same lines.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.lines import Lines, lines_parser
from core.checksum import read_whole, whole_json
from core.jsonl import JsonLines, read_lines
from core.run.files import noted_files
from core.run.metrics import summarise
from scripts.command_line import REPO, command_of

# A process's most memory begins with what its parent has when it is started, so that the parent has to be small.
SMALL_PARENT = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
print("memory", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""
ARMS = ("no_memory", "synapse", "awm", "reasoningbank", "matts_parallel")
ENDS = ("success", "failure", "infra_error")
TOY = ("env=toy", "llm=scripted", "embedder=hashing", "experiment=main_table", "seed=0")


def make_runs(folder: Path, arms: Sequence[str], n_episodes: int, n_steps: int) -> dict[Path, list[dict]]:
    """A run of each arm, in their order: {run directory: its episodes}.

    Attempts have n_steps as a household task's may, with observations of some 300 characters: random words that repeat
    as seldom as those of a text do, or more so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = (f"arm={','.join(arms)}", f"env.boxes_per_family={-(-n_episodes // 4)}", f"limit={n_episodes}")
    command = [sys.executable, str(REPO / "main.py"), *TOY, *words, f"run_dir={folder}"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    runs = {}
    for run in (folder / f"arm={arm},env=toy,llm=scripted,seed=0" for arm in arms):
        rng = random.Random(run.name)
        runs[run] = rows = list(read_lines(run / "episodes.jsonl"))
        for attempt in (attempt for row in rows for attempt in row["trajectories"]):
            first = attempt["steps"][0]
            attempt["steps"] = [first | {"observation": babble(rng)} for _ in range(n_steps - 1)] + attempt["steps"]
        write_episodes(run, rows)
    return runs


def babble(rng: random.Random) -> str:
    return " ".join("".join(rng.choices("aeinorstlmd", k=rng.randint(2, 8))) for _ in range(50))


def write_episodes(run: Path, rows: list[dict]) -> None:
    (run / "episodes.jsonl").unlink(missing_ok=True)
    with closing(JsonLines(run / "episodes.jsonl")) as lines:
        for row in rows:
            lines.append(row)


def size_mb(runs: Iterable[Path]) -> float:
    """Of the episodes of some runs."""
    return sum((run / "episodes.jsonl").stat().st_size for run in runs) / 1e6


def with_seed(run: Path, rows: list[dict], arm: str, seed: int, folder: Path) -> Path:
    """The run as one of another seed, with outcomes by chance: a new run in the folder."""
    rng, chance = random.Random(f"{arm} {seed}"), 0.4 + 0.05 * ARMS.index(arm)
    path = folder / f"{arm}-seed{seed}"
    shutil.copytree(run / ".hydra", path / ".hydra")
    manifest = read_whole(run / "manifest.json") or {}
    manifest |= {"made_up": True, "config": manifest["config"] | {"seed": seed}}
    (path / "manifest.json").write_text(whole_json(manifest), encoding="utf-8")
    ends = rng.choices(ENDS, (chance, 0.99 - chance, 0.01), k=len(rows))
    rows = [ended(row, end) for row, end in zip(rows, ends)]
    write_episodes(path, rows)
    summary = summarise(rows, len(rows), 0.0) | {"files": noted_files(path)}
    (path / "summary.json").write_text(whole_json(summary), encoding="utf-8")
    return path


def ended(row: dict, end: str) -> dict:
    """An episode with another end."""
    if end != "infra_error":
        return row | {"status": end}
    broken = {"error": "server: made up", "ended_by": end}
    return row | {"status": end, "trajectories": [attempt | broken for attempt in row["trajectories"]]}


def looked(folder: Path, module: str, *words: object) -> tuple[float, float, str]:
    """(seconds, megabytes of memory at most, what it printed) of one of the scripts, started in a folder."""
    began = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(REPO)}  # it is started elsewhere
    command = [sys.executable, "-c", SMALL_PARENT, *command_of(module, *words)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:  # how fast it fails is of no interest
        sys.exit(done.stderr)
    out, _, memory = done.stdout.rpartition("memory ")
    return time.monotonic() - began, int(memory) / 1024, out


def parsed_s(runs: Iterable[Path]) -> float:
    """Seconds in which Python's json parses the episodes of some runs, and does nothing else."""
    began = time.monotonic()
    for run in runs:
        with (run / "episodes.jsonl").open("rb") as file:
            for line in file:
                json.loads(line)
    return time.monotonic() - began


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--episodes", type=int, default=500)
    options.add_argument("--steps", type=int, default=12, help="of an attempt")
    given, lines = options.parse_args(), Lines()
    if given.quick:
        given.runs, given.episodes = given.runs // 10, given.episodes // 5
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(temporary)
        real = list(make_runs(where / "real", ARMS, given.episodes, given.steps).items())
        runs = [
            with_seed(*real[number % len(ARMS)], ARMS[number % len(ARMS)], number // len(ARMS), where / "runs")
            for number in range(given.runs)
        ]
        print(f"{given.runs} runs x {given.episodes} episodes, {size_mb(runs):.0f} MB")
        parsed = parsed_s(runs)
        table, page = (where / "runs", "--table", "main"), (where / "runs", "-o", where / "report.html")
        for name, words, limit, limit_x in (
            ("tables", ("scripts.tables", *table), 3.0, 4),
            ("report", ("scripts.report", *page), 6.0, 10),
        ):
            took, memory, said = looked(where, *words)
            if words[0] == "scripts.tables" and "| no_memory |" not in said:
                sys.exit(said)
            lines.add(name, took, limit, "s")
            lines.add(f"{name}, over parsing the lines", took / parsed, limit_x, "x")
            lines.add(f"{name}, memory", memory, 500, "MB")
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
