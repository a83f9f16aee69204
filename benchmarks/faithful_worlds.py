"""Does experiment=faithfulness name what an agent uses? Worlds in which it uses one thing, or nothing.

    python -m benchmarks.faithful_worlds [--runs 20] [--start 0] [--world NAME] [--into outputs/faithful_worlds]

Each world is env=toy with a label on each box, so that no two seeds are alike, and with luck: the right word opens a
box mostly, another one sometimes, and the same luck decides for every arm. Scripted players play it. Each run is
a study of its own, by the documented command with the arms that the answer needs, with seeds that no other run has.
Prints for each world how often the answer is the true one.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analysis.faithfulness import build_faithfulness
from analysis.tables import load_episodes
from benchmarks.broken_worlds import LUCK, SEEDS_APART, measure, play_encouraged, played
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


def answer(world: str, run: int, folder: Path) -> str:
    """The sentence of one study."""
    seeds = f"seed=range({SEEDS_APART * run},{SEEDS_APART * run + N_SEEDS})"
    played(f"{world}, run {run}", "experiment=faithfulness", f"arm={ARMS}", seeds, f"run_dir={folder}", *WORLDS[world])
    _, [uses, *_] = build_faithfulness(load_episodes([str(folder)]))
    return uses.notes[0]


def rate(world: str, found: list[str]) -> tuple[int, str]:
    right = sum(said.startswith(f"The agent uses {world}") for said in found)
    return right, "; ".join(f"{n} x {said}" for said, n in Counter(found).items())


if __name__ == "__main__":
    sys.exit(measure(__doc__, WORLDS, answer, rate, "outputs/faithful_worlds"))
