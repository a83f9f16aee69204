"""BaseEnv: the contract between the harness and a benchmark.

Only workflows/rollout.py drives an env, like this:

    observation = env.reset(task)            # env.reset() takes the next task of its own stream
    while not done:
        observation, reward, done, info = env.step(action)
    success = env.evaluate(answer)

A subclass implements `_tasks`, `_reset`, `_step`, `get_ground_truth` and `evaluate`; this class enforces the rules of
the contract, so that they are the same for every env. What an env may offer beside them is in offers.py. A single-turn
benchmark is an env whose first step is the answer and ends the episode.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, SupportsFloat

from core.errors import UserError, check_returned
from core.types import Task, content_id
from envs.offers import Offers


class EnvStateError(RuntimeError):
    """The caller broke the contract: step before reset, after the end, or after close."""


class EnvView:
    """What an agent is handed of the env that it plays in: its limits and its actions, no answer and no evaluation.

    Everything else of BaseEnv is a UserError, the `walkthrough` unless the agent declares `uses_gold`.
    """

    def __init__(self, env: BaseEnv, *, uses_gold: bool) -> None:
        # Functions of their own: a bound method would lead to the env (`__self__`).
        self.instructions, self.max_steps = env.instructions, env.max_steps
        self.admissible = lambda: env.admissible()
        self.equip = lambda outfit: env.equip(outfit)
        self._running = lambda: env.running
        if uses_gold:
            self.walkthrough = lambda: env.walkthrough()

    @property
    def running(self) -> bool:
        """Whether an episode is going on."""
        return self._running()

    def __getattr__(self, name: str) -> Any:
        if hasattr(BaseEnv, name):
            why = "only one with uses_gold=True is" if name == "walkthrough" else "only the harness asks for it"
            raise UserError(f"this agent is not handed env.{name}: {why}.")
        raise AttributeError(f"an agent is handed no env.{name}: see EnvView in envs/base.py")


@dataclass(kw_only=True)
class BaseEnv(Offers, AbstractContextManager):
    """A benchmark's tasks, and one episode at a time. Not thread-safe: k concurrent rollouts have k envs.

    instructions   the benchmark's part of the agent's system prompt
    max_steps      actions allowed in one episode: the env's default, which the top-level `max_steps` overrides
    seed           every random choice of the env is derived by hashing this with names
    workers        max. concurrent envs (used by EnvPool); None: one per concurrent attempt
    """

    instructions: str
    max_steps: int
    seed: int = 0
    workers: int | None = None
    _state: str = field(default="new", init=False, repr=False)  # new | running | over | closed
    _stream: Iterator[Task] | None = field(default=None, init=False, repr=False)  # the tasks for reset() without a task
    _aborted: bool = field(default=False, init=False, repr=False)

    # What an env defines. What it may define beside, with a default for each, is in Offers.

    @abstractmethod
    def _tasks(self, split: str | None) -> list[Task]: ...

    @abstractmethod
    def _reset(self, task: Task) -> str: ...

    @abstractmethod
    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]: ...

    @abstractmethod
    def get_ground_truth(self) -> str:
        """The running task's gold answer (or goal), for metrics and setting=train; never for a test_time prompt."""

    @abstractmethod
    def evaluate(self, prediction: str | None) -> bool:
        """Whether the episode's task is solved: single turn by the prediction, multi turn by the env's state.

        This is the ground truth, by the benchmark's own rules. The `evaluate` of the loop (workflows/) is the judge.
        """

    def tasks(self, split: str | None = None) -> list[Task]:
        """All tasks of a split (None: the configured one), in the benchmark's own order. Raises UserError if absent."""
        found = self._tasks(split)
        right = isinstance(found, list) and all(isinstance(task, Task) for task in found)
        self._must(right, "_tasks", "a list of Task", found)
        return found

    def reset(self, task: Task | None = None) -> str:
        """Start an episode and return its first observation, which states the task. Allowed at any time before close.

        task   None: the next one of `tasks()`, starting with the first

        Raises EnvStateError after close, and without a task once all of `tasks()` were taken.
        """
        if self.closed:
            raise EnvStateError("reset after close")
        self._state = "new"
        task = self._next() if task is None else task
        observation = self._reset(task)
        self._must(isinstance(observation, str), "_reset", "the first observation, a text", observation)
        self._state = "running"
        return observation

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Take an action: (observation, reward, done, info).

        An unknown action does not raise: the observation says so, and info["valid"] is False. The rewards of an episode
        sum to its final score, 1.0 for a solved task. Further keys of info, each only where an env has it:

        hint_chars   length of the hint appended to the observation: text that helps the agent and reports nothing
        won          True once the goal is reached
        evaluated    False at the end of an episode: graded outside the harness

        Raises EnvStateError if the env is not running, and InfraError if its engine breaks; the next reset then starts
        afresh.
        """
        if not self.running:
            raise EnvStateError(f"step while {self._state}: call reset first")
        self._state = "new"  # stays so when the engine breaks: only a reset can go on from there
        made = self._step(action)
        kinds = (str, SupportsFloat, object, dict)
        right = isinstance(made, tuple | list) and len(made) == 4 and all(map(isinstance, made, kinds))
        self._must(right, "_step", "(observation: str, reward: float, done: bool, info: dict)", made)
        observation, reward, done, info = made
        self._state = "running"
        if done:
            self._state = "over"
        return observation, float(reward), bool(done), info

    def walkthrough(self) -> list[str]:
        """Actions that solve the running task, played by agent=gold. To be called before the first step."""
        return [self.get_ground_truth()]

    def first_of_type(self) -> dict[str, Task]:
        """{type of task: its first task}."""
        return {task.type: task for task in reversed(self.tasks())}

    def close(self) -> None:
        """Release processes and files. Idempotent."""
        self._state = "closed"

    def abort(self) -> None:
        """Abort the call in progress, from another thread: that call raises, and external processes are killed."""
        self._aborted = True

    @property
    def closed(self) -> bool:
        """Whether this env was closed or aborted, and cannot be used again."""
        return self._aborted or self._state == "closed"

    @property
    def running(self) -> bool:
        """Whether an episode is going on."""
        return self._state == "running" and not self._aborted

    def describe(self) -> dict[str, Any]:
        """{dataset, sha256, ...} for the manifest: all that identifies the tasks, so that runs can be compared.

        By default the hash is that of the tasks; an env adds what else determines an episode, such as hidden answers.
        """
        return {"dataset": type(self).__name__, "sha256": content_id([asdict(task) for task in self.tasks()])}

    def __exit__(self, *_exc) -> None:
        self.close()

    def _must(self, right: bool, method: str, what: str, found: Any) -> None:
        """Raise UserError for a method of a subclass that returns something else."""
        check_returned(right, f"{type(self).__name__}.{method}", what, found)

    def _next(self) -> Task:
        """The next task for a reset() without one."""
        self._stream = iter(self.tasks()) if self._stream is None else self._stream
        if (task := next(self._stream, None)) is None:
            raise EnvStateError("no task is left: give reset one, or make the env anew")
        return task
