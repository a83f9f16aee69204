"""How often judge=heuristic agrees with the truth, on attempts that others recorded.

    python -m benchmarks.judge_agreement --data FOLDER [--resamples 2000] [--repeats 5]

FOLDER holds, each optional:
  trajectories/knowagent_alfworld_d0_510.jsonl.gz           runs of language models on ALFWorld, with their outcome
  trajectories/SwiftSage_scienceworld_oracle_30tasks.jsonl  gold action sequences of ScienceWorld. Of each a copy that
                                                            stops early, at a place drawn by hash, stands for a failure:
                                                            no agent failed so
  grader_pairs/gsm8k_solutions_1000.jsonl                   solutions of GSM8K by four models, graded

The rules were written looking at one half of the games, tasks and problems, `rules`, drawn by a hash of their names;
the figures that count are those of the other half, `unseen`. How an attempt ended is not in the recordings, so
`ended_by` says nothing here. Intervals: 95 %, from a bootstrap over games, tasks or problems.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.judges import resampled
from analysis.stats import calibration, confusion
from analysis.text_table import TextTable, print_table
from benchmarks.lines import seconds
from core.errors import UserError
from core.learning.judges import heuristic_verdict
from core.seeding import derive_seed
from core.types import Step, Trajectory, content_id
from scripts.command_line import parser, plain_errors
from scripts.replay import THOUGHTS
from single_turn_bench.answers import extract_answer
from single_turn_bench.files import read_objects

HEAD = "attempts|half|n|success %|agreement % [95 %]|sensitivity|specificity|kappa [95 %]|Brier|ECE|ms".split("|")


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """about: the game, task or problem; attempts at one are in the same half."""

    about: str
    trajectory: Trajectory

    @property
    def half(self) -> str:
        return ("rules", "unseen")[int(hashlib.sha256(self.about.encode()).hexdigest(), 16) % 2]


def alfworld(row: dict[str, Any]) -> Iterator[Recorded]:
    """A recording as `scripts.replay` describes it; thoughts without an action after them are a step of their own."""
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
    id = content_id(about, steps)
    said = {"opening": (), "steps": tuple(steps), "answer": answer, "ended_by": "end"}
    return Recorded(
        about=about, trajectory=Trajectory(id=id, sample=0, **said, reward=float(success), success=success, gold="")
    )


def measured(attempts: list[Recorded], resamples: int, repeats: int) -> list[str]:
    """The cells of a row of the table, from `n` on."""
    verdicts = [heuristic_verdict(attempt.trajectory) for attempt in attempts]
    times = [1000 * min(seconds(heuristic_verdict, a.trajectory) for _ in range(repeats)) for a in attempts]
    pairs = [(v.label == "success", a.trajectory.success) for v, a in zip(verdicts, attempts, strict=True)]
    found = confusion(pairs)
    sure = calibration([verdict.confidence for verdict in verdicts], [judged == true for judged, true in pairs])
    names = [attempt.about for attempt in attempts]
    drawn = list(map(confusion, resampled(pairs, names, resamples)))
    n_won, n_lost = found["tp"] + found["fn"], found["fp"] + found["tn"]
    return [
        str(found["n"]),
        f"{100 * n_won / found['n']:.1f}",
        _with_interval(found["agreement"], [each["agreement"] for each in drawn], 100, 1),
        f"{found['tp']}/{n_won}",
        f"{found['tn']}/{n_lost}",
        _with_interval(found["kappa"], [each["kappa"] for each in drawn], 1, 2),
        f"{sure['brier']:.3f}",
        f"{sure['ece']:.3f}",
        f"{np.mean(times):.2f}, {max(times):.2f}",
    ]


def _with_interval(value: float | None, drawn: Iterable[float | None], scale: float, digits: int) -> str:
    if value is None:
        return "-"
    ends = np.quantile([each for each in drawn if each is not None], (0.025, 0.975))
    low, high = (f"{scale * end + 0.0:.{digits}f}" for end in ends)
    return f"{scale * value + 0.0:.{digits}f} [{low}, {high}]"


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    options.add_argument("--resamples", type=int, default=2000, help="of the bootstrap (default: %(default)s)")
    options.add_argument("--repeats", type=int, default=5, help="judgements timed of an attempt (default: %(default)s)")
    given = options.parse_args(arguments)
    if not any((given.data / place).is_file() for place, _ in SOURCES.values()):
        raise UserError(f"{given.data} holds none of the recordings that --help names.")
    rows = []
    for name, (place, read) in SOURCES.items():
        if not (given.data / place).is_file():
            print(f"{name}: {given.data / place} is not there", file=sys.stderr)
            continue
        attempts = [attempt for _, row in read_objects(given.data / place) for attempt in read(row)]
        for half in ("rules", "unseen"):
            those = [attempt for attempt in attempts if attempt.half == half]
            rows.append([name, half, *measured(those, given.resamples, given.repeats)])
    notes = [
        "sensitivity: successes that were called one; specificity: failures likewise; Brier, ECE: of the confidence"
        f" that the label is right; ms: of an attempt, each the best of {given.repeats}: mean, and the slowest."
    ]
    print_table(TextTable(title="judge=heuristic against the truth", head=HEAD, rows=rows, notes=notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
