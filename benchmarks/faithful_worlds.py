"""Does experiment=faithfulness name what an agent uses? Worlds in which it uses one thing, or nothing.

    python -m benchmarks.faithful_worlds [--runs 20] [--start 0] [--world NAME] [--into outputs/faithful_worlds]

Each world is env=toy with a label on each box, so that no two seeds are alike, and with luck: the right word opens a
box mostly, another one sometimes, and the same luck decides for every arm. Scripted players play it. Each run is
a study of its own, by the documented command with the arms that the answer needs, with seeds that no other run has.
Prints for each world how often the answer is the true one.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analysis.faithfulness import build_faithfulness
from analysis.tables import load_episodes
from benchmarks.broken_worlds import LUCK, SEEDS_APART, play_encouraged
from benchmarks.lines import Lines, lines_parser
from core.seeding import derive_seed
from core.types import Message, Task
from envs.toy import ToyEnv
from envs.toy_script import GUESS, play

ARMS = "no_memory,empty_block,placebo,corrupt,reasoningbank"
N_SEEDS = 5


@dataclass(kw_only=True)
class LabelledToyEnv(ToyEnv):
    """Boxes with a label that differs from seed to seed and says nothing."""

    def _reset(self, task: Task) -> str:
        return f"{super()._reset(task)} Its label is {derive_seed(self.seed, task.id, 'label')}."


def play_deaf(messages: list[Message], role: str, sample: int) -> str:
    """An agent that ignores what it is shown: it always guesses."""
    return play(messages, role, sample) if role != "agent" else f"Thought: Let me guess.\nAction: say {GUESS}"


def play_any_text(messages: list[Message], role: str, sample: int) -> str:
    """An agent that acts only with a lesson before it, whatever it says."""
    if role == "agent" and "[1] " not in messages[0]["content"]:
        return "Thought: Where to begin?\nAction: look around"
    return play_encouraged(messages, role, sample)


LABELS = (*LUCK, "env._target_=benchmarks.faithful_worlds.LabelledToyEnv")
WORLDS = {  # {what the agent uses: words on the command line}
    "content": LABELS,
    "nothing": (*LABELS, "llm.script.path=benchmarks.faithful_worlds.play_deaf"),
    "form": (*LABELS, "env.p_guess=0.9", "llm.script.path=benchmarks.broken_worlds.play_encouraged"),
    "length": (*LABELS, "env.p_guess=0.9", "llm.script.path=benchmarks.faithful_worlds.play_any_text"),
}


def answer(world: str, run: int, into: Path) -> str:
    """The sentence of one study."""
    folder, first = into / world / str(run), SEEDS_APART * run
    command = [sys.executable, "main.py", "experiment=faithfulness", "env=toy", "llm=scripted", "embedder=hashing"]
    command += [f"arm={ARMS}", f"seed=range({first},{first + N_SEEDS})", f"run_dir={folder}", *WORLDS[world]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{world}, run {run}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    _, [uses, *_] = build_faithfulness(load_episodes([str(folder)]))
    return uses.notes[0]


def main() -> int:
    options = lines_parser(__doc__)
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--start", type=int, default=0)
    options.add_argument("--world", choices=WORLDS, action="append")
    options.add_argument("--into", type=Path, default=Path("outputs/faithful_worlds"))
    given, lines = options.parse_args(), Lines()
    for world in given.world or WORLDS:
        found = [answer(world, run, given.into) for run in range(given.start, given.start + given.runs)]
        right = sum(said.startswith(f"The agent uses {world}") for said in found)
        note = "; ".join(f"{n} x {said}" for said, n in Counter(found).items())
        lines.add(f"{world}, named rightly", right, len(found), f"of {len(found)}", least=True, note=note)
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
