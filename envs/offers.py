"""What an env may offer beside the five members of BaseEnv. Each has a default here, so an env needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from core.errors import UserError
from core.outfit import Outfit
from core.types import Lesson, Task


class Offers:
    """Inherited by BaseEnv; the harness asks every env for these.

    pages        constant-length observations: dry_run takes the first one's length for all
    page_tokens  tokens of an observation, so that dry_run need not start the engine; None: not known
    late         success is known only after `evaluate`, which then also sets the attempt's reward
    cut_off      set before each step: whether the reply with the action was cut off, or refused, so that its end may be
                 missing
    """

    pages: ClassVar[bool] = False
    page_tokens: ClassVar[int | None] = None
    late: ClassVar[bool] = False
    cut_off: bool = False

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

    def share(self, other: Offers) -> None:
        """Take from another env of the same configuration what need not be read again, such as a dataset."""

    def answer_kind(self, task: Task) -> str:
        """How a task's answer is read and graded, where tasks of one env differ in that: dry_run shows each kind."""
        return ""

    def admissible(self) -> list[str]:
        """The actions that the env would accept now, in a stable order; agent=random draws from them."""
        raise UserError(f"{type(self).__name__} has no list of actions to draw from: agent=random cannot play it.")

    def equip(self, outfit: Outfit) -> None:
        """Prepare what agent=command needs for the next step, whose action is its command, and for `SUBMIT_LEFT`."""
        raise UserError(f"{type(self).__name__} runs no programs: agent=command needs env=swe or env=folders.")

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

    def files(self, answers: dict[str, str | None], model: str) -> dict[str, str]:
        """The extra output files of a run: {file name: text}.

        answers   {task id: the answer that counts; None: the attempt gave none}
        model     name of the agent's model
        """
        return {}
