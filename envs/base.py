"""BaseEnv: the contract between the harness and a benchmark.

Only workflows/rollout.py drives an env, like this:

    observation = env.reset(task)            # env.reset() takes the next task of its own stream
    while not done:
        observation, reward, done, info = env.step(action)
    success = env.evaluate(answer)

A subclass implements `_tasks`, `_reset`, `_step`, `get_ground_truth` and `evaluate`; this class enforces the rules of
the contract, so that they are the same for every env. A single-turn benchmark is an env whose first step is the answer
and ends the episode.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, SupportsFloat

from core.errors import UserError, check_returned
from core.outfit import Outfit
from core.types import Lesson, Task, content_id

OpenAnswers = Callable[[Task, Sequence[str], str], bool]  # (task, gold answers, answer); raises InfraError


class EnvStateError(RuntimeError):
    """The caller broke the contract: step before reset, after the end, or after close."""


class EnvView:
    """What an agent is handed of the env that it plays in: its limits and its actions, no answer and no evaluation.

    Everything else of BaseEnv is a UserError, the `walkthrough` unless the agent declares `uses_gold`.
    """

    def __init__(self, env: BaseEnv, *, uses_gold: bool) -> None:
        # Functions of their own: a bound method would lead to the env (`__self__`).
        self.instructions, self.max_steps = env.instruct(), env.max_steps
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
class BaseEnv(AbstractContextManager):
    """A benchmark's tasks, and one episode at a time. Not thread-safe: k concurrent rollouts have k envs.

    instructions   the benchmark's part of the agent's system prompt
    max_steps      actions allowed in one episode: the env's default, which the top-level `max_steps` overrides
    seed           every random choice of the env is derived by hashing this with names
    workers        max. concurrent envs (used by EnvPool); None: one per concurrent attempt
    grader         asks the grader's model: (task id, question) -> reply; for benchmarks that a model has to grade
    open_answers   grader=model: whether an answer means the same as one of the gold ones; None: not asked for
    cut_off        whether the reply with the next action was cut off, or refused, so that its end may be missing
    """

    instructions: str
    max_steps: int
    seed: int = 0
    workers: int | None = None
    pages: ClassVar[bool] = False  # constant-length observations: dry_run takes the first one's length for all
    page_tokens: ClassVar[int | None] = None  # tokens of an observation, so that dry_run need not start the engine
    late: ClassVar[bool] = False  # success known only after `evaluate`, which then also sets the attempt's reward
    grader: Callable[[str, str], str] | None = field(default=None, init=False, repr=False)
    open_answers: OpenAnswers | None = field(default=None, init=False, repr=False)
    cut_off: bool = field(default=False, init=False, repr=False)
    _state: str = field(default="new", init=False, repr=False)  # new | running | over | closed
    _stream: Iterator[Task] | None = field(default=None, init=False, repr=False)  # the tasks for reset() without a task
    _aborted: bool = field(default=False, init=False, repr=False)

    # What an env defines. Everything below has a default, and enforces the contract or serves what some envs have.

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

    @classmethod
    def settled(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Values for keys of the env's configuration that are left open and depend on the machine, such as its data.

        A run asks once, when it first starts, and records them; its later starts and all cells of its sweep keep them.
        """
        return {}

    @classmethod
    def notice(cls, config: Mapping[str, Any]) -> str:
        """A line that a run prints first where something was `settled`; "": none. config: with those values."""
        return ""

    def share(self, other: BaseEnv) -> None:
        """Take from another env of the same configuration what need not be read again, such as a dataset."""

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

    def instruct(self) -> str:
        """The benchmark's part of the system prompt for the running task; without one, what is the same for all."""
        return self.instructions

    def answer_kind(self, task: Task) -> str:
        """How a task's answer is read and graded, where tasks of one env differ in that: dry_run shows each kind."""
        return ""

    def admissible(self) -> list[str]:
        """The actions that the env would accept now, in a stable order; agent=random draws from them."""
        raise UserError(f"{type(self).__name__} has no list of actions to draw from: agent=random cannot play it.")

    def equip(self, outfit: Outfit) -> None:
        """Prepare what agent=command needs for the next step, whose action is its command, and for `SUBMIT_LEFT`."""
        raise UserError(f"{type(self).__name__} runs no programs: agent=command needs env=swe or env=folders.")

    def first_of_type(self) -> dict[str, Task]:
        """{type of task: its first task}."""
        return {task.type: task for task in reversed(self.tasks())}

    def lessons(self) -> list[tuple[Task, Lesson]]:
        """One (example task, ideal lesson) pair per task type, for setting=told."""
        raise UserError(f"{type(self).__name__} has no lessons to tell: setting=told cannot be used with it.")

    @classmethod
    def follows(cls, task: Task, observation: str, lesson: str, actions: Sequence[str]) -> bool | None:
        """Whether an attempt at this task followed a lesson, by a rule on recorded data.

        None: not applicable, or undecidable.
        The result is written beside the lesson in the episode's record; the audit calls this again to check it.

        observation   the first observation of the attempt
        lesson        title, description and content of the lesson, as one text
        actions       the actions that the env accepted as valid, in their order
        """
        return None

    @classmethod
    @contextmanager
    def regrader(cls, config: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], bool | None]]:
        """Context manager yielding grade(attempt): True if the attempt solved its task; None if that is unknown.

        The audit grades recorded attempts with it; no task is played. An env that cannot grade an answer afresh returns
        what it noted at the time, info["won"], which is the default.

        config    the env's own part of the run's configuration
        attempt   an attempt of an episode's record: {answer, gold, info, ...}
        """
        yield lambda attempt: attempt["info"].get("won")

    def measures(self) -> dict[str, tuple[float, int]]:
        """Measures of the episode beside reward and success: {name: (sum, count)}; each summand is in [0, 1]."""
        return {}

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

    def files(self, answers: dict[str, str | None], model: str) -> dict[str, str]:
        """The extra output files of a run: {file name: text}.

        answers   {task id: the answer that counts; None: the attempt gave none}
        model     name of the agent's model
        """
        return {}

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
