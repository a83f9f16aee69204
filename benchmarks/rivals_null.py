"""Does a rival keep its level where no lesson can help?

    python -m benchmarks.rivals_null [--seeds 30] [--studies 2000] [--boxes 10] [--arms ace,expel]

The real loop on env=toy, but the agent tosses a coin: by a hash of its whole prompt it says a box's word or a wrong
one. So lessons change how a coin falls, and never how often. Each arm and no_memory play the seeds once; a study is 3
seeds of an arm against 3 of no_memory, drawn by lot. level: the share of the studies in which p is under 0.05. As
studies share runs, their rate beside that of no_memory over all seeds, which should be 50 %, is printed as well.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from analysis.load import load_runs
from analysis.measure import grid
from analysis.stats import paired
from benchmarks.lines import Lines, lines_parser
from benchmarks.null_simulation import MOST
from core.seeding import derive_seed
from core.types import Message
from envs.toy import ToyEnv
from envs.toy_script import GUESS, play
from scripts.command_line import REPO

RIVALS = "dc_cumulative,dc_synthesis,ace,expel,memp,grpo,amem"
PER_STUDY = 3  # seeds


class Coin:
    """The players of env=toy, with an agent that is right with probability 1/2 whatever its prompt says."""

    def __init__(self, seed: int) -> None:
        self.seed, self.env = seed, ToyEnv(instructions="", max_steps=1, seed=seed)

    def __call__(self, messages: list[Message], role: str, sample: int) -> str:
        if role != "agent":
            return play(messages, role, sample)
        prompt = "\n".join(message["content"] for message in messages)
        family = re.findall(r"of the (\w+) family", messages[1]["content"])[-1]
        right = derive_seed(self.seed, prompt, sample, "coin") % 2
        return f"Thought: A coin says so.\nAction: say {self.env.word(family) if right else GUESS}"


def play_all(folder: Path, arms: list[str], n_seeds: int, boxes: int) -> dict[str, np.ndarray]:
    """{arm: its outcomes, (tasks, seeds) of 0 and 1}."""
    coin = ("~llm.script.path", "llm.script._target_=benchmarks.rivals_null.Coin", "+llm.script.seed=${seed}")
    words = ("env=toy", "llm=scripted", "embedder=hashing", f"env.boxes_per_family={boxes}", *coin)
    sweep = (f"arm={','.join(['no_memory', *arms])}", f"seed=range(0,{n_seeds})", f"run_dir={folder}")
    command = [sys.executable, str(REPO / "main.py"), "-m", *words, *sweep]
    subprocess.run(command, cwd=REPO, check=True, stdout=subprocess.DEVNULL)
    frame = load_runs([folder])
    return {arm: grid(frame[frame["arm"] == arm]).to_numpy() for arm in ("no_memory", *arms)}


def level(arm: np.ndarray, baseline: np.ndarray, n: int, rng: np.random.Generator) -> float:
    """The share of n studies, in per cent, in which p is under 0.05."""
    found = 0
    for _ in range(n):
        ours, theirs = (each[:, rng.choice(each.shape[1], PER_STUDY, replace=False)] for each in (arm, baseline))
        p = paired(ours, theirs)["p"]
        found += p is not None and p < 0.05
    return 100 * found / n


def main() -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--seeds", type=int, default=30)
    options.add_argument("--studies", type=int, default=2000)
    options.add_argument("--boxes", type=int, default=10, help="of each of the four families")
    options.add_argument("--arms", default=RIVALS)
    given, lines = options.parse_args(), Lines()
    if given.quick:
        given.seeds, given.studies, given.boxes = 6, 200, 5
    arms = given.arms.split(",")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = play_all(Path(folder) / "runs", arms, given.seeds, given.boxes)
    base = outcomes["no_memory"]
    for number, arm in enumerate(arms):
        share = level(outcomes[arm], base, given.studies, np.random.default_rng(number))
        note = f"{100 * outcomes[arm].mean():.1f} % solved, no_memory {100 * base.mean():.1f} %"
        lines.add(f"level, {arm} against no_memory", share, MOST, "%", note=note)
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
