"""How often judge=heuristic agrees with the truth, on attempts that others recorded.

    python -m benchmarks.judge_agreement --data FOLDER [--json FILE]

FOLDER holds, each optional:
  trajectories/knowagent_alfworld_d0_510.jsonl.gz           runs of language models on ALFWorld, with their outcome
  trajectories/SwiftSage_scienceworld_oracle_30tasks.jsonl  gold action sequences of ScienceWorld. Of each a copy that
                                                            stops early, at a place drawn by hash, stands for a failure:
                                                            no agent failed so
  grader_pairs/gsm8k_solutions_1000.jsonl                   solutions of GSM8K by four models, graded

The rules were written looking at one half of the games, tasks and problems, `rules`, drawn by a hash of their names;
the figures that count are those of the other half, `unseen`. How an attempt ended is not in the recordings, so
`ended_by` says nothing here. won, lost: successes and failures that were called so.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.stats import calibration, confusion
from benchmarks.lines import Lines, lines_parser, seconds
from benchmarks.replay import THOUGHTS
from core.errors import UserError
from core.learning.judges import heuristic_verdict
from core.seeding import derive_seed
from core.types import Step, Trajectory, content_id
from scripts.command_line import plain_errors
from single_turn_bench.answers import extract_answer
from single_turn_bench.files import read_objects


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """about: the game, task or problem; attempts at one are in the same half."""

    about: str
    trajectory: Trajectory

    @property
    def half(self) -> str:
        return ("rules", "unseen")[int(hashlib.sha256(self.about.encode()).hexdigest(), 16) % 2]


def alfworld(row: dict[str, Any]) -> Iterator[Recorded]:
    """A recording as `replay` describes it; thoughts without an action after them are a step of their own."""
    steps, thoughts = [], []
    for part in re.split(r"^> ", row["traj"], flags=re.MULTILINE)[1:]:
        if part.startswith(THOUGHTS):
            thoughts.append(part.strip())
            continue
        action, _, observation = part.partition("\n")
        steps.append(_step("\n".join([*thoughts, action]), action, observation.strip()))
        thoughts = []
    if thoughts:
        steps.append(_step("\n".join(thoughts), "", ""))
    yield _attempt(row["name"], steps, success=row["result"] is True)


def alfworld_acting(row: dict[str, Any]) -> Iterator[Recorded]:
    """The same without the recordings that break off in a thought, which no attempt that succeeded does."""
    return (attempt for attempt in alfworld(row) if attempt.trajectory.steps[-1].action)


def scienceworld(row: dict[str, Any]) -> Iterator[Recorded]:
    """The gold sequence and a copy that stops after 1 step at least and 9 of 10 at most."""
    steps = [_step(step["action"], step["action"], step["observation"]) for step in row["steps"]]
    yield _attempt(row["task"], steps, success=True)
    end = 1 + derive_seed(0, row["task"], "end") % int(0.9 * len(steps))
    yield _attempt(row["task"], steps[:end], success=False)


def gsm8k(row: dict[str, Any]) -> Iterator[Recorded]:
    text = row["response"]
    yield _attempt(row["problem"], [_step(text, text, "")], answer=extract_answer(text).answer, success=row["expected"])


SOURCES: dict[str, tuple[str, Callable[[dict[str, Any]], Iterator[Recorded]]]] = {
    "ALFWorld": ("trajectories/knowagent_alfworld_d0_510.jsonl.gz", alfworld),
    "ALFWorld, an action last": ("trajectories/knowagent_alfworld_d0_510.jsonl.gz", alfworld_acting),
    "ScienceWorld, cut": ("trajectories/SwiftSage_scienceworld_oracle_30tasks.jsonl", scienceworld),
    "GSM8K": ("grader_pairs/gsm8k_solutions_1000.jsonl", gsm8k),
}


def _step(text: str, action: str, observation: str) -> Step:
    return Step(text=text, thought="", action=action, observation=observation, valid=bool(action))


def _attempt(about: str, steps: list[Step], *, success: bool, answer: str | None = None) -> Recorded:
    said = {"opening": (), "steps": tuple(steps), "answer": answer, "ended_by": "end"}
    made = Trajectory(id=content_id(about, steps), sample=0, **said, reward=float(success), success=success, gold="")
    return Recorded(about=about, trajectory=made)


def measure(lines: Lines, name: str, attempts: list[Recorded]) -> None:
    """The lines of one source and half."""
    verdicts = [heuristic_verdict(attempt.trajectory) for attempt in attempts]
    slowest = max(1000 * min(seconds(heuristic_verdict, a.trajectory) for _ in range(5)) for a in attempts)
    pairs = [(v.label == "success", bool(a.trajectory.success)) for v, a in zip(verdicts, attempts, strict=True)]
    found = confusion(pairs)
    sure = calibration([verdict.confidence for verdict in verdicts], [judged == true for judged, true in pairs])
    note = f"won {found['tp']}/{found['tp'] + found['fn']}, lost {found['tn']}/{found['tn'] + found['fp']}, "
    note += (
        f"kappa {found['kappa'] or 0:.2f}, Brier {sure['brier']:.3f}, ECE {sure['ece']:.3f}, at most {slowest:.2f} ms"
    )
    lines.add(f"{name}: agreement of {found['n']}", 100 * found["agreement"], 0, "%", least=True, note=note)


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = lines_parser(__doc__)
    options.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    given, lines = options.parse_args(arguments), Lines()
    if not any((given.data / place).is_file() for place, _ in SOURCES.values()):
        raise UserError(f"{given.data} holds none of the recordings that --help names.")
    for name, (place, read) in SOURCES.items():
        if not (given.data / place).is_file():
            print(f"{name}: {given.data / place} is not there", file=sys.stderr)
            continue
        attempts = [attempt for _, row in read_objects(given.data / place) for attempt in read(row)]
        for half in ("rules", "unseen"):
            measure(lines, f"{name}, {half}", [attempt for attempt in attempts if attempt.half == half])
    return lines.end(given.json)


if __name__ == "__main__":
    sys.exit(main())
