"""The engine of env=scenarios: plays the job that a file of this folder describes (JOB.yaml).

    title, rules   of the lesson that carries over. Breaking a rule ends the job, and the feedback states it
    values     {name: expression}: what differs by variant, drawn by hashing its seed; or a template that writes a list
    query, open    templates: the task in one sentence; what the agent is told beside it
    state      {name: expression}: what calls change. database: a script that fills a database in memory
    locked     what a second refusal adds, which ends the job
    calls      {name: {about, takes: {argument: TEXT or NUMBER, or [that, default]}, steps}}
    walkthrough, choices   templates, a call on each line: one way that solves it; what is sensible at this moment

The steps of a call are tried in order. One with `when` counts where that is true; one without an answer only sets
something, and the next is tried; the first with an answer ends the call:

    set   {name: expression}, in the state           say    a template: the answer
    win   true: the job is solved                    fail   the rule that was broken (null: none); the job is over
    refuse   as fail, from the second time on        sql    a statement, `with` its values: SQLite answers

Expressions and templates are Jinja's, with the values, the state, the call's arguments, draw, shuffled, word, words
(below), call (writes one) and rows (of a query). Time is counted and never slept; nothing leaves the process.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from core.seeding import derive_seed
from core.types import Lesson

MAX_CHARS = 2000  # of an action: a longer one is no call
FORM = 'Write one call on one line, e.g. name(text="abc", number=5): text in quotes, numbers bare.'
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va".split()
KINDS = {"TEXT": str, "NUMBER": int}

_CALL = re.compile(r"([a-z_]+)\((.*)\)[.;:]?", re.DOTALL)
_ARGUMENT = re.compile(r"""\s*(?:([a-z_]+)\s*=\s*)?(?:"([^"]*)"|'([^']*)'|([0-9]{1,9}))\s*(?:,|$)""")
_JINJA = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
_expression = cache(lambda text: _JINJA.compile_expression(text, undefined_to_none=False))
_template = cache(_JINJA.from_string)

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


def write_call(name: str, **arguments: Value) -> str:
    """The text of a call: what parse_call reads. (Texts of a service hold no quotes.)"""
    texts = (f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in arguments.items())
    return f"{name}({', '.join(texts)})"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A JOB.yaml; its name is the tasks' type."""

    name: str
    title: str
    rules: dict[str, str]
    query: str
    open: str
    calls: dict[str, dict[str, Any]]
    walkthrough: str
    choices: str
    values: dict[str, str] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    database: str = ""
    locked: str = ""

    def lesson(self) -> Lesson:
        """The ideal lesson: all rules."""
        about = f"The rules that hold for every job of the kind {self.name}."
        return Lesson(title=self.title, description=about, content=" ".join(self.rules.values()))

    def form(self, call: str) -> str:
        takes = self.calls[call].get("takes", {})
        return f"{call}({', '.join(f'{name}={kind_of(kind)}' for name, kind in takes.items())})"

    def manual(self) -> str:
        """The calls, one a line."""
        return "\n".join(f"{self.form(name)} - {call['about']}" for name, call in self.calls.items())


def kind_of(takes: str | list) -> str:
    return takes if isinstance(takes, str) else takes[0]


def read_job(name: str) -> Scenario:
    path = Path(__file__).with_name(f"{name}.yaml")
    return Scenario(name=name, **yaml.safe_load(path.read_text(encoding="utf-8")))


class SimulatedService:
    """A job of one variant: a state machine."""

    def __init__(self, job: Scenario, seed: int) -> None:
        self.job, self.seed = job, seed
        self.done = self.solved = False
        self.refused = 0
        self._db: sqlite3.Connection | None = None
        names = ("draw", "shuffled", "word", "words", "rows")
        self.scope: dict[str, Any] = {"call": write_call, **{name: getattr(self, name) for name in names}}
        self._set(job.values, self.scope)
        self.query = self._text(job.query)

    def open(self) -> str:
        """Start: what the agent is told beside the query."""
        self._set(self.job.state, self.scope)
        if self.job.database:
            self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._db.executescript(self._text(self.job.database))
        return self._text(self.job.open)

    def close(self) -> None:
        """Idempotent."""
        if self._db is not None:
            self._db.close()

    def walkthrough(self) -> list[str]:
        """Calls that solve the job from its start. What they use of the hidden state, the feedback would have told."""
        return self._lines(self.job.walkthrough)

    def choices(self) -> list[str]:
        """The sensible calls at this moment, in a stable order, with what the agent was told or shown so far."""
        return self._lines(self.job.choices)

    def call(self, name: str, placed: Sequence[Value], named: dict[str, Value]) -> str:
        """Make a call: the service's answer. Raises BadCall where there is no such call or the arguments do not fit."""
        call = self.job.calls.get(name)
        if call is None:
            raise BadCall(f"There is no such call. The calls are:\n{self.job.manual()}")
        takes = call.get("takes", {})
        given = dict(zip(takes, placed, strict=False))
        wanted = {key: kind[1] for key, kind in takes.items() if isinstance(kind, list)} | given | named
        fits = len(placed) <= len(takes) and not given.keys() & named.keys() and wanted.keys() == takes.keys()
        if not fits or any(type(wanted[key]) is not KINDS[kind_of(kind)] for key, kind in takes.items()):
            raise BadCall(f"The arguments do not fit. The call is: {self.job.form(name)}")
        scope = {**self.scope, **wanted}
        for step in call["steps"]:
            if "when" in step and not _expression(step["when"])(scope):
                continue
            self._set(step.get("set", {}), scope)
            if "sql" in step:
                return self._changed(_template(step["sql"]).render(scope), [scope[key] for key in step.get("with", ())])
            if "say" in step:
                return self._answer(step, _template(step["say"]).render(scope))
        raise AssertionError(f"{self.job.name}: no step of {name} answers")

    def draw(self, options: Sequence, *names: object) -> Any:
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

    def rows(self, query: str) -> list[list]:
        return [list(row) for row in self._db.execute(query)]

    def _set(self, values: dict[str, str], scope: dict[str, Any]) -> None:
        """Evaluate in order, into the state and the scope of a call."""
        for name, text in values.items():
            made = yaml.safe_load(_template(text).render(scope)) if "{%" in text else _expression(text)(scope)
            self.scope[name] = scope[name] = made

    def _text(self, template: str) -> str:
        return _template(template).render(self.scope)

    def _lines(self, template: str) -> list[str]:
        return [line.strip() for line in self._text(template).splitlines() if line.strip()]

    def _answer(self, step: dict[str, Any], text: str) -> str:
        """What a step says, and what it makes of the job."""
        if step.get("win"):
            self.done = self.solved = True
        over = "fail" in step
        if "refuse" in step:
            self.refused += 1
            over = self.refused > 1
            text += f" {self.job.locked}" if over else ""
        if not over:
            return text
        self.done = True
        rule = step.get("fail", step.get("refuse"))
        stated = f" The rule here: {self.job.rules[rule]}" if rule else ""
        return f"{text} The job is over and has failed.{stated}"

    def _changed(self, statement: str, values: Sequence[Value]) -> str:
        """Run a statement: what SQLite says."""
        try:
            done = self._db.execute(statement, values)
        except (sqlite3.IntegrityError, sqlite3.OperationalError) as error:
            return f"409 Conflict: {error}. Nothing was changed."
        return f"200 OK: {max(done.rowcount, 0)} rows." if values else "200 OK"
