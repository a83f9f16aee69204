"""BaseEnv: the one contract between the harness and a benchmark.

An env is driven like this, by workflows/rollout.py alone:

    observation = env.reset(task)            # env.reset() takes the next task of its own stream
    while not done:
        observation, reward, done, info = env.step(action)
    success = env.evaluate(answer)

A subclass writes `_tasks`, `_reset`, `_step`, `get_ground_truth` and `evaluate`; this class holds the rules of the
contract, so that every env has the same. Single-turn benchmarks are envs whose first step is the answer and the end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from core.errors import UserError
from core.types import Lesson, Task


class EnvStateError(RuntimeError):
    """The caller broke the contract: step before reset, after the end, or after close."""


@dataclass(kw_only=True)
class BaseEnv(AbstractContextManager):
    """Not thread-safe: one live episode at a time, k rollouts have k envs.

    instructions   what the agent is told about this benchmark, in the system prompt
    max_steps      actions allowed in one episode; the env's default, the top-level `max_steps` overrides it
    seed           every random choice of the env comes from hashing this with names
    workers        how many such envs live at once, at most; None: as many as there are attempts at once. For the pool
    grader         asks the judge's model, (task id, question) -> reply, where a benchmark's own evaluation asks a model
    """

    instructions: str
    max_steps: int
    seed: int = 0
    workers: int | None = None
    pages: ClassVar[bool] = False  # whether every observation is about as long as the first: dry_run goes by that
    page_tokens: ClassVar[int | None] = None  # of an observation, so that dry_run need not start the engine
    late: ClassVar[bool] = False  # whether only `evaluate` knows the success, and the attempt's reward follows from it
    slow_to_list: ClassVar[bool] = False  # whether `tasks` starts an engine: a sweep's quick estimate goes without
    grader: Callable[[str, str], str] | None = field(default=None, init=False, repr=False)
    _state: str = field(default="new", init=False, repr=False)  # new | running | over | closed
    _stream: Iterator[Task] | None = field(default=None, init=False, repr=False)  # what reset() without a task takes
    _aborted: bool = field(default=False, init=False, repr=False)

    def tasks(self, split: str | None = None) -> list[Task]:
        """All tasks of a split (None: the configured one), in the benchmark's own order. Raises UserError if absent."""
        return self._tasks(split)

    def reset(self, task: Task | None = None) -> str:
        """Start an episode: the first observation, which states the task. Allowed at any time before close.

        Without a task: the next one of `tasks()`, from the first on. After the last this raises EnvStateError.
        """
        if self.closed:
            raise EnvStateError("reset after close")
        self._state = "new"
        task = self._next() if task is None else task
        observation = self._reset(task)
        self._state = "running"
        return observation

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Take an action: (observation, reward, done, info).

        An action that the env does not know never raises: it gives an observation, with info["valid"] False.
        info["hint_chars"] is how many characters at the observation's end help the agent and report nothing.
        info["won"] is True once the goal is reached. The rewards of an episode sum to its final score, 1.0 for a solved
        task. info["evaluated"] is False at the end of an episode of which only others can say whether it is solved.
        Stepping an env that is not running raises EnvStateError; an engine that breaks raises InfraError, and the next
        reset starts afresh.
        """
        if not self.running:
            raise EnvStateError(f"step while {self._state}: call reset first")
        self._state = "new"  # stays so when the engine breaks: only a reset can go on from there
        observation, reward, done, info = self._step(action)
        self._state = "running"
        if done:
            self._state = "over"
        return observation, float(reward), bool(done), info

    def walkthrough(self) -> list[str]:
        """Actions that solve the running task, to be asked for before the first step; what agent=gold plays."""
        return [self.get_ground_truth()]

    def admissible(self) -> list[str]:
        """The actions the env would accept now, in a stable order; what agent=random draws from."""
        raise UserError(f"{type(self).__name__} has no list of actions to draw from: agent=random cannot play it.")

    def lessons(self) -> list[tuple[Task, Lesson]]:
        """For each kind of task one of them, and the lesson that a perfect extractor would make of it: setting=told."""
        raise UserError(f"{type(self).__name__} has no lessons to tell: setting=told cannot be used with it.")

    @classmethod
    def follows(cls, task: Task, observation: str, lesson: str, actions: Sequence[str]) -> bool | None:
        """Whether an attempt did what a lesson says is to be done in this task; by a rule, from what is recorded.

        None where the lesson says nothing of this task, or where it is open to doubt. It is noted beside the lesson in
        the episode's record, and the audit asks again.

        observation   the attempt's first
        lesson        its title, description and content
        actions       those that the env accepted as valid, in their order
        """
        return None

    @classmethod
    @contextmanager
    def regrader(cls, config: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], bool | None]]:
        """What grades recorded attempts again, for the audit: whether one solved its task; None where that is unknown.

        Where an answer cannot be graded afresh, it is what the env noted at the time, info["won"].

        config    the env's own part of the run's configuration
        The attempts are those of an episode's record: {answer, gold, info, ...}. No task is played.
        """
        yield lambda attempt: attempt["info"].get("won")

    def measures(self) -> dict[str, tuple[float, int]]:
        """What is measured on the episode beside reward and success: {name: (sum, over how many)}, each in [0, 1]."""
        return {}

    def close(self) -> None:
        """Release processes and files. Idempotent."""
        self._state = "closed"

    def abort(self) -> None:
        """Called by another thread than the one at work here, whose call then raises. What lives outside is killed."""
        self._aborted = True

    @property
    def closed(self) -> bool:
        """Whether this env is of no further use."""
        return self._aborted or self._state == "closed"

    @property
    def running(self) -> bool:
        """Whether an episode is going on."""
        return self._state == "running" and not self._aborted

    def files(self, answers: dict[str, str | None], model: str) -> dict[str, str]:
        """{name: text} of what a run leaves beside its records. answers: by task id, those that count; model: whose."""
        return {}

    def describe(self) -> dict[str, Any]:
        """For the manifest: {dataset, sha256, ...}; whatever is needed to know that two runs saw the same tasks."""
        return {"dataset": type(self).__name__, "sha256": None}

    def __exit__(self, *_exc) -> None:
        self.close()

    def _next(self) -> Task:
        """The next task of the env's own stream."""
        self._stream = iter(self.tasks()) if self._stream is None else self._stream
        if (task := next(self._stream, None)) is None:
            raise EnvStateError("no task is left: give reset one, or make the env anew")
        return task

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
        """What is true: whether the task is solved; what the learner believes is in `ReasoningBank.evaluate`.

        Single turn decides by the prediction, multi turn by the env's state.
        """
