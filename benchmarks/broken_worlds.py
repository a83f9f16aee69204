"""Does experiment=verdict name the link that is broken? Worlds in which exactly one is.

    python -m benchmarks.broken_worlds [--runs 20] [--start 0] [--world NAME] [--into outputs/broken_worlds]

Each world is env=toy with luck (a wrong word opens a box sometimes, the right one often, and the same luck decides for
every arm), played by scripted players of which at most one does not do its part. Each run is a verdict of its own, by
the documented command, with seeds that no other run has; --start is the number of the first run. Prints for each world
how often the verdict and the link that it names are the true ones.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines, lines_parser
from core.types import Message, Task
from envs.toy import FAMILIES, ToyEnv
from envs.toy_script import play

LUCK = ("env.families=8", "env.boxes_per_family=5", "env.p_word=0.9", "env.p_guess=0.3")
Rate = Callable[[str, list[Any]], tuple[int, str]]
SEEDS_APART = 100  # of one run's seeds from the next one's


@dataclass(kw_only=True)
class UnnamedToyEnv(ToyEnv):
    """Broken retrieval: the task that is searched with does not name its family; the box itself does."""

    def _tasks(self, split: str | None) -> list[Task]:
        return [
            Task(id=f"toy/{family}/{box}", query=f"Open the box on shelf {box * 97 % 89}.", type=family)
            for box in range(1, self.boxes_per_family + 1)
            for family in FAMILIES[: self.families]
        ]

    def _reset(self, task: Task) -> str:
        return super()._reset(task).replace("It is locked", f"It is a box of the {task.type} family. It is locked")


def play_disturbed(messages: list[Message], role: str, sample: int) -> str:
    """Harm by any text: an agent that has any lesson before it forgets how to act."""
    if role == "agent" and re.search(r"^\[1\] ", messages[0]["content"], re.MULTILINE):
        return "Thought: So much to read.\nAction: look around"
    return play(messages, role, sample)


def play_encouraged(messages: list[Message], role: str, sample: int) -> str:
    """Help by any block: an agent that acts only with a block before it, and a distiller whose lessons say nothing."""
    if role == "extractor":
        item = "# Memory Item 1\n## Title Be calm\n## Description Of any box.\n## Content Take your time."
        return f"```\n{item}\n```"
    if role == "agent" and "<memory_items>" not in messages[0]["content"]:
        return "Thought: Where to begin?\nAction: look around"
    return play(messages, role, sample)


def play_mislabelled(messages: list[Message], role: str, sample: int) -> str:
    """Broken labels: a judge that is always wrong, and a distiller that believes it."""
    said = play(messages, role, sample)
    if role == "judge":
        right = "success" if '"success"' in said else "failure"
        return said.replace(right, "failure" if right == "success" else "success")
    if role != "extractor":
        return said
    opened = "The box is open" in messages[-1]["content"]
    believed = any("The attempt below succeeded" in message["content"] for message in messages)
    if opened == believed:
        return said
    return re.sub(r'family is "\w+"', 'family is "sesame"', said)


def play_vague(messages: list[Message], role: str, sample: int) -> str:
    """Broken distiller: its lessons name no word."""
    said = play(messages, role, sample)
    return (
        re.sub(r"The word of the (\w+) family is .*", r"Listen well to a \1 box.", said)
        if role == "extractor"
        else said
    )


@dataclass(frozen=True, kw_only=True)
class World:
    """A world: its words on the command line, the verdicts that are true of it, and the link that is broken."""

    words: tuple[str, ...]
    verdicts: tuple[str, ...]
    broken: str | None


def _script(name: str) -> str:
    return f"llm.script.path=benchmarks.broken_worlds.{name}"


WORLDS = {
    "clear gain": World(words=(*LUCK, "env.families=4"), verdicts=("better",), broken=None),
    "no gain": World(words=(*LUCK, "env.p_word=0.3"), verdicts=("futile", "most"), broken="use"),
    "help by any block": World(
        words=(*LUCK, "env.p_guess=0.9", _script("play_encouraged")), verdicts=("block, better",), broken=None
    ),
    "harm by any text": World(words=(*LUCK, _script("play_disturbed")), verdicts=("block, worse",), broken="any text"),
    "broken retrieval": World(
        words=(*LUCK, "env._target_=benchmarks.broken_worlds.UnnamedToyEnv"),
        verdicts=("better", "futile", "most"),
        broken="retrieval",
    ),
    "broken labels": World(words=(*LUCK, _script("play_mislabelled")), verdicts=("futile", "most"), broken="labels"),
    "broken distiller": World(
        words=(
            *LUCK,
            _script("play_vague"),
            "hydra.sweeper.strong_extractor=['llm@extractor_llm=scripted','extractor_llm.script.path=envs.toy_script.play']",
        ),
        verdicts=("futile", "most"),
        broken="distillation",
    ),
}


def played(where: str, *words: str) -> None:
    """A command of main.py on env=toy with scripted players; where: the world and the run, told if it fails."""
    command = [sys.executable, "main.py", "env=toy", "llm=scripted", "embedder=hashing", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{where}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def measure(doc: str, worlds: Iterable[str], answer: Callable[[str, int, Path], Any], rate: Rate, into: str) -> int:
    """The program: runs of each world, and how many of their answers are the true one.

    answer   of a run of a world: (name, number, folder) -> what it says
    rate     (name, answers) -> (how many are right, a note)
    """
    options = lines_parser(doc)
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--start", type=int, default=0)
    options.add_argument("--world", choices=worlds, action="append")
    options.add_argument("--into", type=Path, default=Path(into))
    given, lines = options.parse_args(), Lines()
    for name in given.world or worlds:
        numbers = range(given.start, given.start + given.runs)
        found = [answer(name, n, given.into / name.replace(" ", "_") / str(n)) for n in numbers]
        right, note = rate(name, found)
        lines.add(f"{name}, named rightly", right, len(found), f"of {len(found)}", least=True, note=note)
    return lines.end(given.json)


def answer(name: str, run: int, folder: Path) -> dict:
    """The verdict of one run of a world."""
    words = ["hydra.sweeper.diagnose=true", "hydra.sweeper.pilot=0", f"hydra.sweeper.first_seed={SEEDS_APART * run}"]
    played(f"{name}, run {run}", "experiment=verdict", *words, *WORLDS[name].words, f"run_dir={folder}")
    return json.loads((folder / "verdict.json").read_text(encoding="utf-8"))


def rate(name: str, found: list[dict]) -> tuple[int, str]:
    true = WORLDS[name]
    right = sum(each["breaks"] == true.broken and each["outcome"] in true.verdicts for each in found)
    verdicts = ", ".join(f"{verdict} {n}" for verdict, n in Counter(each["outcome"] for each in found).items())
    seeds = sum(each["looks"][-1]["n_seeds"] for each in found) / len(found)
    return right, f"broken: {true.broken or '-'}; verdicts: {verdicts}; mean seeds {seeds:.1f}"


if __name__ == "__main__":
    sys.exit(measure(__doc__, WORLDS, answer, rate, "outputs/broken_worlds"))
