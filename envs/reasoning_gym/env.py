"""reasoning-gym: families of small puzzles that a program makes, as many as are wanted, each with its gold answer.

    Your task is to convert a number between two different bases. ... Convert the base-4 number 32200 to hexadecimal

One reply is the whole episode: its answer is read out of it (single_turn_bench/verbatim.py) and scored by the family's
own scorer. Success is a score of exactly 1.0; the reward is the score, part marks included.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from typing import Any

from core.errors import InfraError, UserError
from core.process import WorkerTimeout
from core.seeding import derive_seed
from core.types import Task, content_id, digest
from envs.base import BaseEnv
from envs.reasoning_gym.families import check, wrong_gold
from envs.reasoning_gym.worker import Gyms, shared_gyms
from single_turn_bench.answers import stated_in
from single_turn_bench.verbatim import tagged, verbatim_answer

SPLITS = ("train", "test")
MOST_BATCHES = 100  # looked through for the tasks of one family; half of what they hold belongs to the other split


@dataclass(frozen=True, kw_only=True)
class Puzzle:
    """A task with the seed and the index in its batch, from which the package makes it again."""

    id: str
    family: str
    seed: int
    index: int
    question: str
    gold: str


@dataclass(kw_only=True)
class ReasoningGymEnv(BaseEnv):
    """The package lives in worker processes that all envs share, started at the first use.

    Its keys: config/env/reasoning_gym.yaml.
    """

    families: list[str]
    per_family: int
    split: str = "test"
    order: str = "interleaved"
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    timeout_s: float = 5.0
    _made: dict[str, list[Puzzle]] = field(default_factory=dict, init=False, repr=False)
    _left_out: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _gyms: Gyms = field(init=False, repr=False)
    _playing: Puzzle | None = field(default=None, init=False, repr=False)
    _scored: tuple[tuple[str, str | None], tuple[float, str]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check(self.families, self.options)
        if self.per_family < 1:
            raise UserError(f"env.per_family={self.per_family}: give at least 1")
        if self.order not in ("interleaved", "blocked"):
            raise UserError(f"env.order={self.order!r} is not one of interleaved, blocked")
        self._gyms = shared_gyms(self.timeout_s, json.dumps(self.options, sort_keys=True))

    def walkthrough(self) -> list[str]:
        return [tagged(self._playing.gold)]

    def get_ground_truth(self) -> str:
        return self._playing.gold

    def evaluate(self, prediction: str | None) -> bool:
        read = verbatim_answer(prediction or "")
        return self._score(read.answer if read.rule == "tag" else prediction)[0] == 1.0

    def describe(self) -> dict[str, Any]:
        """Identify the tasks. left_out: tasks that are not played, as their gold answer is refused or wrong."""
        puzzles = [[puzzle.id, puzzle.question, puzzle.gold] for puzzle in self._puzzles(self.split)]
        return {
            "dataset": "reasoning_gym",
            "version": version("reasoning-gym"),
            "sha256": digest(puzzles),
            "split": self.split,
            "left_out": dict(sorted(self._left_out.items())),
        }

    def _tasks(self, split: str | None) -> list[Task]:
        return [Task(id=each.id, query=each.question, type=each.family) for each in self._puzzles(split or self.split)]

    def _reset(self, task: Task) -> str:
        split = task.id.split("/")[1] if task.id.count("/") == 3 else ""
        found = next((each for each in self._puzzles(split) if each.id == task.id), None) if split in SPLITS else None
        if found is None:
            raise UserError(f"{task.id!r} is not a task of these families, options and seed")
        self._playing = found
        return found.question

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        read = verbatim_answer(action)
        score, scorer = self._score(read.answer)
        stated = stated_in(action, read, verbatim_answer, cut_off=self.cut_off)
        facts = {"score": score, "scorer": scorer, "rule": read.rule, "stated": stated}
        return "", score, True, {"valid": True, "won": score == 1.0, "answer": read.answer, **facts}

    def _score(self, answer: str | None) -> tuple[float, str]:
        # Asked twice for each episode, by the step and by the rollout; the second time costs nothing.
        if self._scored is None or self._scored[0] != (self._playing.id, answer):
            self._scored = ((self._playing.id, answer), self._asked(answer) if answer else (0.0, "no answer"))
        return self._scored[1]

    def _asked(self, answer: str) -> tuple[float, str]:
        """(score, "ok" or how the scorer broke). It is the answer's fault, and the answer wrong, if the scorer breaks
        at it twice and not at the gold answer in between; else InfraError."""
        for _ in range(2):
            try:
                score, broke = self._score_of(answer)
                if broke == "ok":
                    return score, broke
            except WorkerTimeout:
                broke = "timeout"
            except InfraError:
                broke = "died"
            if self._score_of(self._playing.gold.strip())[0] != 1.0:
                raise InfraError(f"the scorer of {self._playing.id} no longer takes its own gold answer")
        return 0.0, broke

    def _score_of(self, answer: str) -> tuple[float, str]:
        it = self._playing
        return self._gyms.score(it.family, it.seed, it.index, digest(it.question), answer, self.timeout_s)

    def _puzzles(self, split: str) -> list[Puzzle]:
        if split not in SPLITS:
            raise UserError(f"env.split={split!r} is not one of {', '.join(SPLITS)}")
        if split not in self._made:
            columns = [list(self._of_family(family, split)) for family in self.families]
            rows = columns if self.order == "blocked" else zip(*columns)
            self._made[split] = list(chain(*rows))
        return self._made[split]

    def _of_family(self, family: str, split: str) -> Iterator[Puzzle]:
        """The first per_family different tasks; fewer tasks are the beginning of more."""
        known: set[str] = set()
        for batch in range(MOST_BATCHES):
            # Seeds that are hashes: in the package, task 1 of seed 0 is task 0 of seed 1.
            seed = derive_seed(self.seed, "reasoning_gym", family, split, batch)
            for index, (question, gold, score) in enumerate(self._gyms.draw(family, seed)):
                name = content_id(" ".join(question.split()))
                if name in known or SPLITS[int(name, 16) % 2] != split:
                    continue
                if score != 1.0 or wrong_gold(family, question, gold):
                    self._left_out[family] += 1
                    continue
                known.add(name)
                where = {"family": family, "seed": seed, "index": index}
                yield Puzzle(id=f"reasoning_gym/{split}/{family}/{name}", question=question, gold=gold, **where)
                if len(known) == self.per_family:
                    return
        raise UserError(
            f"reasoning-gym made only {len(known)} different tasks of {family} in {MOST_BATCHES} batches: lower "
            f"env.per_family, or make them harder by env.options.{family}"
        )
