"""ScienceWorld (arXiv 2203.07540): 30 kinds of elementary science tasks in a simulated house, played in text.

    Your task is to boil tin. For compounds without a boiling point, combusting the substance is also acceptable. First,
    focus on the substance. Then, take actions that will cause it to change its state of matter.

Success is a score of 100. The rewards of an episode add up to its final score, as a fraction; the -100 of a task that
was spoiled for good (a wrong `focus on`) counts as 0. An episode ends by the goal, by being spoiled, or by the caller's
step limit; the engine's own limit belongs to its Python class and has no part here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain, zip_longest
from typing import Any

from core.errors import UserError
from core.types import Task
from envs.base import BaseEnv, EnvStateError
from envs.scienceworld.engine import Engine, jar_path

SPLITS = ("train", "dev", "test")
REFUSALS = ("No known action", "Unknown action.", "Ambiguous request:")  # what the engine says instead of acting
MAX_ACTION = 1000  # characters; no action is that long, and the parser's time grows with it
TELEPORT = "\nThere is also teleport to LOCATION: be in any room at once, without doors."


@dataclass(kw_only=True)
class ScienceWorldEnv(BaseEnv):
    """One JVM per env, started at its first use and kept over all tasks. Its keys: config/env/scienceworld.yaml."""

    split: str = "test"
    variations_per_task: int | None = 1
    task_names: list[str] | None = None
    simplification: str = "easy"
    show_valid: bool = False
    jvm_heap: str = "256m"
    timeout_s: float = 120.0
    _engine: Engine = field(init=False, repr=False)
    _listed: dict[str, list[Task]] = field(default_factory=dict, init=False, repr=False)
    _playing: tuple[str, int] = field(default=("", 0), init=False, repr=False)  # task name, variation
    _moves: int = field(default=0, init=False, repr=False)
    _score: int = field(default=0, init=False, repr=False)  # 0 to 100
    _goal: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+[kmgKMG]", self.jvm_heap):
            raise UserError(f"env.jvm_heap={self.jvm_heap!r} is not a size such as 256m")
        if self.variations_per_task is not None and self.variations_per_task < 1:
            raise UserError("env.variations_per_task must be at least 1, or null for all")
        if {"easy", "teleportAction"} & set(self.simplification.split(",")):
            self.instructions = self.instructions.rstrip() + TELEPORT
        self._engine = Engine(heap=self.jvm_heap, timeout_s=self.timeout_s)

    def walkthrough(self) -> list[str]:
        """The engine's own solution of the task being played (not the shortest; searching it takes 0.1 to 20 s)."""
        if not self._playing[0]:
            raise EnvStateError("walkthrough before reset")
        with self._idle_engine() if self._moves else self._rewound() as engine:
            engine.load(*self._playing, self.simplification, gold=True)
            return engine.gold_path()

    def admissible(self) -> list[str]:
        """All valid actions of the moment, sorted. Costs 10 to 100 ms and draws from the game's random numbers."""
        if self._state != "running":
            raise EnvStateError(f"admissible while {self._state}: call reset first")
        return self._engine.valid_actions()

    def get_ground_truth(self) -> str:
        return self._goal

    def evaluate(self, prediction: str | None) -> bool:
        return self._score == 100

    def describe(self) -> dict[str, Any]:
        return {
            "dataset": "scienceworld",
            "version": version("scienceworld"),
            "sha256": hashlib.sha256(jar_path().read_bytes()).hexdigest(),
            "split": self.split,
            "simplification": self.simplification,
        }

    def close(self) -> None:
        super().close()
        self._engine.close()

    def abort(self) -> None:
        super().abort()
        self._engine.abort()

    def _tasks(self, split: str | None) -> list[Task]:
        split = split or self.split
        if split not in SPLITS:
            raise UserError(f"env.split={split!r} is not one of {', '.join(SPLITS)}")
        if split not in self._listed:
            topics = self._topics()
            with self._idle_engine() as engine:
                columns = [
                    [(name, number) for number in engine.variations(name, split)[: self.variations_per_task]]
                    for name in topics
                ]
                # interleaved: the first variation of every task, then the second of every task, ...
                drawn = [pair for pair in chain(*zip_longest(*columns)) if pair]
                self._listed[split] = [self._task(engine, name, number, topics[name]) for name, number in drawn]
        return list(self._listed[split])

    def _task(self, engine: Engine, name: str, number: int, topic: str) -> Task:
        engine.load(name, number, self.simplification)
        return Task(id=f"scienceworld/{name}/{number}", query=engine.description(), type=topic)

    def _topics(self) -> dict[str, str]:
        """The wanted tasks in the official order, or in the order asked for, with their topics."""
        jar_path()  # says what to install
        from scienceworld.constants import TASKS
        from scienceworld.utils import infer_task

        known = {row["task_name"]: row["topic"] for row in TASKS}
        names = list(known) if self.task_names is None else [infer_task(str(name)) for name in self.task_names]
        if unknown := [name for name in names if name not in known]:
            raise UserError(f"env.task_names: no task {', '.join(unknown)}; there are {', '.join(known)}")
        wired = [name for name in names if "power-component" in name or "conductivity" in name]
        if wired and "noElectricalAction" in self.simplification:
            raise UserError(f"env.simplification: {wired[0]} cannot be solved with noElectricalAction; easy can")
        return {name: known[name] for name in names}

    def _reset(self, task: Task) -> str:
        self._playing, self._moves, self._score = _parse(task.id), 0, 0
        self._start(self._engine)
        self._engine.load(*self._playing, self.simplification)
        self._goal = "; ".join(self._engine.goals())
        return f"{self._engine.description()}\n\n{self._look()}"

    def _look(self) -> str:
        # As the package's own reset does. It is an action in the engine's history, but takes no time in the game and
        # does not count against our limit; and it replaces the score that the last episode left behind.
        text, _, _ = self._engine.step("look around")
        return self._shown(text)

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        text, raw, completed = self._engine.step(_printable(action))
        before, self._score = self._score, max(raw, 0)
        self._moves += 1
        done = completed or raw < 0
        info = {
            "valid": not text.startswith(REFUSALS),
            "won": raw == 100,
            "score": self._score,
            "raw_score": raw,
            "simplification": self.simplification,
        }
        return text if done else self._shown(text), (self._score - before) / 100, done, info

    def _shown(self, text: str) -> str:
        if not self.show_valid:
            return text
        return "\n".join([text, "", "Valid actions:", *self._engine.valid_actions()])

    def _start(self, engine: Engine) -> None:
        engine.start()
        known = ["easy", *engine.simplifications()]
        if unknown := [name for name in self.simplification.split(",") if name and name not in known]:
            raise UserError(f"env.simplification: no {', '.join(unknown)}; there are {', '.join(known)}")

    @contextmanager
    def _idle_engine(self) -> Iterator[Engine]:
        """An engine that may load other tasks: ours, or a temporary one while an episode is being played in ours."""
        if self._state != "running":
            self._start(self._engine)
            yield self._engine
            return
        spare = Engine(heap=self.jvm_heap, timeout_s=self.timeout_s)
        try:
            self._start(spare)
            yield spare
        finally:
            spare.close()

    @contextmanager
    def _rewound(self) -> Iterator[Engine]:
        """Our engine, before the episode's first move; the episode is set up again afterwards."""
        yield self._engine
        self._engine.load(*self._playing, self.simplification)
        self._look()


def _parse(task_id: str) -> tuple[str, int]:
    match = re.fullmatch(r"scienceworld/([a-z0-9-]+)/(\d+)", task_id)
    if match is None:
        raise UserError(f"{task_id!r} is not a ScienceWorld task: scienceworld/NAME/VARIATION")
    return match[1], int(match[2])


def _printable(action: str) -> str:
    """One line without control characters or halves of surrogate pairs, none of which the wire would carry."""
    text = action.encode("utf-8", "replace").decode()
    return " ".join("".join(c if c.isprintable() else " " for c in text[:MAX_ACTION]).split())
