"""What the services of env=scenarios share: typed calls, rules that end a job, and the reading of an action.

A service is a state machine. Its calls are the methods marked `@offered`: their signatures say which arguments they
take (`str` or `int`), and their docstrings are the manual that the agent reads. Everything that differs between
variants is drawn by hashing the variant's seed. Time is counted and never slept; nothing leaves the process.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from core.seeding import derive_seed
from core.types import Lesson

MAX_CHARS = 2000  # of an action: a longer one is no call
FORM = 'Write one call on one line, e.g. name(text="abc", number=5): text in quotes, numbers bare.'
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va".split()

_CALL = re.compile(r"([a-z_]+)\((.*)\)[.;:]?", re.DOTALL)
_ARGUMENT = re.compile(r"""\s*(?:([a-z_]+)\s*=\s*)?(?:"([^"]*)"|'([^']*)'|([0-9]{1,9}))\s*(?:,|$)""")

Value = str | int


class BadCall(ValueError):
    """An action that is no call, or a call that the service does not have; its text tells the agent."""


def parse_call(text: str) -> tuple[str, list[Value], dict[str, Value]]:
    """(name, arguments by place, arguments by name) of an action such as `wait(seconds=5)`, which may also be written
    `wait(5)`. Raises BadCall; nothing is ever evaluated."""
    found = _CALL.fullmatch(text.strip()) if len(text) <= MAX_CHARS else None
    if found is None:
        raise BadCall(FORM)
    name, rest = found[1], found[2].strip()
    placed: list[Value] = []
    named: dict[str, Value] = {}
    place = 0
    while place < len(rest):
        one = _ARGUMENT.match(rest, place)
        if one is None or one[1] in named or (named and not one[1]):
            raise BadCall(FORM)
        value = int(one[4]) if one[4] else one[2] or one[3] or ""
        if one[1]:
            named[one[1]] = value
        else:
            placed.append(value)
        place = one.end()
    return name, placed, named


def write_call(name: str, **arguments: str | int) -> str:
    """The text of a call: what parse_call reads. (Texts of a service hold no quotes.)"""
    texts = (f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in arguments.items())
    return f"{name}({', '.join(texts)})"


def offered(call: Callable[..., str]) -> Callable[..., str]:
    """Marks a method as a call that the agent may make."""
    call.offered = True
    return call


@dataclass(kw_only=True)
class JobService:
    """One job of one variant.

    job     its name; the task's type
    title   of the lesson that carries over
    rules   name -> the rule in words. They hold in every variant; breaking one ends the job, and the feedback states it
    """

    job: ClassVar[str]
    title: ClassVar[str]
    rules: ClassVar[dict[str, str]]

    seed: int
    done: bool = field(default=False, init=False)
    solved: bool = field(default=False, init=False)

    @property
    def query(self) -> str:
        """The task in one sentence."""
        raise NotImplementedError

    def open(self) -> str:
        """Start afresh: what the agent is told beside the query."""
        raise NotImplementedError

    def walkthrough(self) -> list[str]:
        """Calls that solve the job from its start. What they use of the hidden state, the feedback would have told."""
        raise NotImplementedError

    def choices(self) -> list[str]:
        """The sensible calls at this moment, in a stable order, with what the agent was told or shown so far."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the job holds. Idempotent."""

    def call(self, name: str, placed: Sequence[Value], named: dict[str, Value]) -> str:
        """Make a call: the service's answer. Raises BadCall where there is no such call or the arguments do not fit."""
        call = self._calls().get(name)
        if call is None:
            raise BadCall(f"There is no such call. The calls are:\n{self.manual()}")
        signature = inspect.signature(call, eval_str=True)
        try:
            given = signature.bind(*placed, **named).arguments
        except TypeError:  # too many, too few, or a name that it does not have
            given = None
        if given is None or any(
            type(value) is not signature.parameters[key].annotation for key, value in given.items()
        ):
            raise BadCall(f"The arguments do not fit. The call is: {_form(name, call)}")
        return call(**given)

    def manual(self) -> str:
        """The calls, one a line."""
        return "\n".join(f"{_form(name, call)} - {call.__doc__}" for name, call in self._calls().items())

    @classmethod
    def lesson(cls) -> Lesson:
        """The ideal lesson of the job: all its rules."""
        about = f"The rules that hold for every job of the kind {cls.job}."
        return Lesson(title=cls.title, description=about, content=" ".join(cls.rules.values()))

    def win(self, text: str) -> str:
        """End the job, solved."""
        self.done = self.solved = True
        return text

    def fail(self, rule: str | None, text: str) -> str:
        """End the job, not solved, and state the rule that was broken; None: it was none of them."""
        self.done = True
        stated = f" The rule here: {self.rules[rule]}" if rule else ""
        return f"{text} The job is over and has failed.{stated}"

    def draw(self, options: Sequence, *names: object):
        """One of the options, drawn by hashing the variant's seed and the names."""
        return options[derive_seed(self.seed, *names) % len(options)]

    def shuffled(self, options: Sequence, *names: object) -> list:
        """The options in an order drawn by the variant's seed and the names."""
        return sorted(options, key=lambda one: derive_seed(self.seed, one, *names))

    def word(self, *names: object, syllables: int = 3) -> str:
        """A made-up word, for names and tokens."""
        return "".join(self.draw(SYLLABLES, *names, place) for place in range(syllables))

    def words(self, count: int, *names: object) -> list[str]:
        """Made-up words that all differ."""
        found: list[str] = []
        place = 0
        while len(found) < count:
            word, place = self.word(*names, place), place + 1
            if word not in found:
                found.append(word)
        return found

    def _calls(self) -> dict[str, Callable[..., str]]:
        return {name: getattr(self, name) for name, one in vars(type(self)).items() if hasattr(one, "offered")}


def _form(name: str, call: Callable[..., str]) -> str:
    kinds = {str: "TEXT", int: "NUMBER"}
    wanted = inspect.signature(call, eval_str=True).parameters.items()
    return f"{name}({', '.join(f'{key}={kinds[one.annotation]}' for key, one in wanted)})"
