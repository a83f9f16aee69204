"""env=customs: small jobs under a hidden house rule, the positive control for real models.

    task        Ravel machine: start the Ravel grinder number 31.
    first page  Choose one:
                - press the green button
                - press the red button
                ...
    action      press the green button
    feedback    It does not start, and the job is over. The rule here: every Ravel machine must be started with its
                red button.

A family is a brand. Its rule cannot be known beforehand; a wrong attempt ends the job and is told the rule in words.
Hall, number and kind of machine differ from job to job, so only the rule carries over. An agent without memory solves
what it guesses, one with the right lesson all that it understands, and every stage between them (what is found, what
is followed, what is learned) can be measured apart. The order of the buttons is drawn for each job: no place is right.
The actions are listed because a small model given the rule follows it then, and without such a list often does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError, check_choice, check_numbers
from core.seeding import derive_seed
from core.types import Lesson, Task, content_id
from envs.base import BaseEnv

BRANDS = "Ravel Ostrand Kimble Tavex Brunel Corvin Lindor Marsk Pelton Quill Sarno Wexley".split()
KINDS = "grinder mixer press kiln loom pump saw fan oven lathe crane dryer".split()
BUTTONS = "red green blue yellow".split()
LAMPS = ("on", "off")
RULES = ("plain", "condition", "steps")
PAGES = ("brand_first", "brand_last")


@dataclass(frozen=True, kw_only=True)
class HouseRule:
    """What starts the machines of a brand. presses: by state of the lamp, the buttons in their order."""

    brand: str
    presses: dict[str, tuple[str, ...]]

    def words(self) -> str:
        """The rule in one sentence, as the feedback and a perfect lesson say it."""
        on, off = (self.presses[lamp] for lamp in LAMPS)
        start = f"every {self.brand} machine must be started with"
        if on != off:
            return f"{start} its {on[0]} button when its lamp is on, and with its {off[0]} button when its lamp is off."
        if len(on) == 1:
            return f"{start} its {on[0]} button."
        return f"{start} two presses: first its {on[0]} button, then its {on[1]} button."


@dataclass(kw_only=True)
class CustomsEnv(BaseEnv):
    """`families` x `jobs_per_family` tasks, interleaved: job 1 of every brand, then job 2, ...

    Its keys: config/env/customs.yaml.
    """

    families: int = 6
    jobs_per_family: int = 4
    rule: str = "plain"
    page: str = "brand_first"
    _task: Task | None = field(default=None, init=False, repr=False)
    _pressed: tuple[str, ...] = field(default=(), init=False, repr=False)
    _won: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self, "env", "families", "jobs_per_family", least=1)
        check_choice(self, "env", "rule", RULES)
        check_choice(self, "env", "page", PAGES)
        if self.families > len(BRANDS):
            raise UserError(f"env.families={self.families}: there are {len(BRANDS)} brands.")

    def rule_of(self, brand: str) -> HouseRule:
        """The rule of a brand; depends on the seed, the brand and the kind of rule alone."""
        first = BUTTONS[self._drawn(brand, "first") % 4]
        other = [button for button in BUTTONS if button != first][self._drawn(brand, "other") % 3]
        presses = {
            "plain": {"on": (first,), "off": (first,)},
            "condition": {"on": (first,), "off": (other,)},
            "steps": {"on": (first, other), "off": (first, other)},
        }
        return HouseRule(brand=brand, presses=presses[self.rule])

    def lessons(self) -> list[tuple[Task, Lesson]]:
        """One (example task, ideal lesson) pair per family."""
        first = self.first_of_type()
        return [
            (
                first[brand],
                Lesson(
                    title=f"How {brand} machines are started",
                    description=f"The house rule for every machine of the brand {brand}.",
                    content=_sentence(self.rule_of(brand).words()),
                ),
            )
            for brand in BRANDS[: self.families]
        ]

    def _tasks(self, split: str | None) -> list[Task]:
        return [
            Task(id=f"customs/{brand}/{job}", query=self._query(brand, job), type=brand)
            for job in range(1, self.jobs_per_family + 1)
            for brand in BRANDS[: self.families]
        ]

    def _query(self, brand: str, job: int) -> str:
        kind = KINDS[self._drawn(brand, job, "kind") % len(KINDS)]
        hall, number = 1 + self._drawn(brand, job, "hall") % 9, 10 + self._drawn(brand, job, "number") % 90
        if self.page == "brand_first":
            return f"{brand} machine: start the {brand} {kind} number {number}."
        return f"Start the {kind} in hall {hall}, number {number}, before the shift begins; the plate says {brand}."

    def _reset(self, task: Task) -> str:
        self._task, self._pressed, self._won = task, (), False
        lamp = f" Its lamp is {self._lamp()}." if self.rule == "condition" else ""
        return f"{task.query}{lamp} {self._choice()}"

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        said = re.fullmatch(r"press (?:the )?(\w+)(?: button)?\W*", action.strip().lower())
        if said is None or said[1] not in BUTTONS:
            return f"Nothing happens. {self._choice()}", 0.0, False, {"valid": False, "won": False}
        wanted, self._pressed = self._wanted(), (*self._pressed, said[1])
        if self._pressed != wanted[: len(self._pressed)]:
            text = f"It does not start, and the job is over. The rule here: {self._rule().words()}"
            return text, 0.0, True, {"valid": True, "won": False}
        self._won = self._pressed == wanted
        text = "The machine starts. The job is done." if self._won else f"It clicks. {self._choice()}"
        return text, float(self._won), self._won, {"valid": True, "won": self._won}

    @classmethod
    def follows(cls, task: Task, observation: str, lesson: str, actions: Sequence[str]) -> bool | None:
        """See BaseEnv: compares the buttons that the lesson names for the task's brand with those pressed."""
        lamp = re.search(r"\blamp is (on|off)\b", observation)
        wanted = _presses_in(lesson, task.type, lamp and lamp[1])
        pressed = tuple(button for action in actions for button in _BUTTON.findall(action.lower()))
        if wanted is None or (pressed and pressed == wanted[: len(pressed)] != wanted):  # half of two presses
            return None
        return pressed[: len(wanted)] == wanted

    def walkthrough(self) -> list[str]:
        return [f"press the {button} button" for button in self._wanted()]

    def admissible(self) -> list[str]:
        order = sorted(BUTTONS, key=lambda button: self._drawn(self._task.id, button))
        return [f"press the {button} button" for button in order]

    def describe(self) -> dict[str, Any]:
        rules = [self.rule_of(brand).words() for brand in BRANDS[: self.families]]
        return {"dataset": "customs", "sha256": content_id(rules, [task.query for task in self.tasks()])}

    def get_ground_truth(self) -> str:
        return ", then ".join(f"press {button}" for button in self._wanted())  # in words that no page has

    def evaluate(self, prediction: str | None) -> bool:
        return self._won

    def _choice(self) -> str:
        return "\n- ".join(["Choose one:", *self.admissible()])

    def _rule(self) -> HouseRule:
        return self.rule_of(self._task.type)

    def _wanted(self) -> tuple[str, ...]:
        return self._rule().presses[self._lamp()]

    def _lamp(self) -> str:
        return LAMPS[self._drawn(self._task.id, "lamp") % 2]

    def _drawn(self, *names: object) -> int:
        return derive_seed(self.seed, *map(str, names), "customs")


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


_BUTTON = re.compile(rf"\b({'|'.join(BUTTONS)})\b")
_MENTION = re.compile(rf"\b(?:({'|'.join(BUTTONS)})|lamp(?: is)? (on|off))\b")
_DENIED = re.compile(r"\b(?:not|never|avoid\w*|wrong\w*|instead|except|unlike|without)\b|n't\b")


def _presses_in(lesson: str, brand: str, lamp: str | None) -> tuple[str, ...] | None:
    """The presses that a lesson names for a brand; None where it names none, or could mean others.

    lamp   on | off, where the task's page tells
    """
    text = lesson.lower()
    names = [name for name in BRANDS if re.search(rf"\b{name.lower()}\b", text)]
    if brand not in names:
        return None
    others = [name.lower() for name in names if name != brand]
    sentences = [each for each in re.split(r"(?<=[.!?;])\s+|\n+", text) if not _DENIED.search(each)]
    if others:  # then only what names this brand alone is of this brand
        sentences = [each for each in sentences if brand.lower() in each and not any(name in each for name in others)]
    # (button, "") or ("", state of the lamp)
    mentions = [match for each in sentences for match in _MENTION.findall(each)]
    if any(state for _, state in mentions):
        pairs = list(zip(mentions[::2], mentions[1::2], strict=False))
        if len(mentions) % 2 or lamp is None or any(bool(one[0]) == bool(two[0]) for one, two in pairs):
            return None
        pressed = {one[0] or two[0] for one, two in pairs if lamp in (one[1], two[1])}
        return tuple(pressed) if len(pressed) == 1 else None
    buttons = tuple(dict.fromkeys(button for button, _ in mentions))
    in_order = len(buttons) == 2 and re.search(r"\bthen\b", " ".join(sentences)) is not None
    return buttons if len(buttons) == 1 or in_order else None
