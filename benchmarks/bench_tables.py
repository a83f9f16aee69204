"""How long scripts.tables takes over many runs of the size of real ones, written to a folder.

    python -m benchmarks.bench_tables [--runs 100] [--episodes 500] [--steps 12] [--keep FOLDER]

An arm is run once, in the toy world, and lengthened; its other seeds are copies in which a coin, loaded a little by
memory, says how each episode ended. Prints one line; --keep leaves the runs there, to be looked at or reported on.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from core.checksum import read_whole, whole_json
from core.jsonl import JsonLines, read_lines
from scripts.command_line import REPO, command_of, parser

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
    """As a run writes them, with checksums."""
    (run / "episodes.jsonl").unlink(missing_ok=True)
    with closing(JsonLines(run / "episodes.jsonl", chained=True)) as lines:
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
    write_episodes(path, [row | {"status": end} for row, end in zip(rows, ends)])
    return path


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=100)
    options.add_argument("--episodes", type=int, default=500)
    options.add_argument("--steps", type=int, default=12, help="of an attempt")
    options.add_argument("--keep", type=Path, metavar="FOLDER")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, runs = (given.keep or Path(temporary) / "runs").resolve(), []
        real = make_runs(Path(temporary) / "real", ARMS, given.episodes, given.steps)
        for place, (run, rows) in enumerate(real.items()):
            numbers = range(place, given.runs, len(ARMS))
            runs += [with_seed(run, rows, ARMS[place], number // len(ARMS), folder) for number in numbers]
        began = time.monotonic()
        words = command_of("scripts.tables", folder, "--table", "main")
        done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
        took = time.monotonic() - began
        what = f"{given.runs} runs x {given.episodes} episodes ({size_mb(runs):.0f} MB)"
    if "| no_memory |" not in done.stdout:  # how fast it fails is of no interest
        sys.exit(done.stderr)
    print(f"tables.py over {what}: {took:.1f} s (wanted: under 10)")


if __name__ == "__main__":
    main()
