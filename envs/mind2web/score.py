"""Parses a reply into an action on a page of Mind2Web and scores it: element accuracy, action F1, step success."""

from __future__ import annotations

import re
import string
from collections.abc import Container
from dataclasses import dataclass

_ACTION = re.compile(r"\b(CLICK|TYPE|SELECT) ?\[([^\]\n]{1,40})\](?: ?\[([^\]\n]*)\])?")
_CHOICE = re.compile(
    r"^[^\w\n]{0,3}([A-Z])\b[^\w\n]{0,3}(?:None of the above\W?|(CLICK|TYPE|SELECT) ?(?:\[([^\]\n]*)\])?)?`?\s*$", re.M
)


@dataclass(frozen=True, kw_only=True)
class Action:
    """A parsed action. said: its text as written, which step_success=whole compares."""

    op: str
    element: str
    value: str
    said: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Scores of one step: whether the element is right; F1 of operation and value; step success (env.step_success)."""

    element: float = 0.0
    f1: float = 0.0
    step: float = 0.0


WRONG = Mark()


def read_action(reply: str) -> Action | None:
    """The last `CLICK [id]`, `TYPE [id] [value]` or `SELECT [id] [value]` of a reply; None where there is none."""
    found = next(reversed(list(_ACTION.finditer(reply))), None)
    if found is None:
        return None
    op, element, value = found.groups()
    return Action(op=op, element=element.strip(), value=(value or "").strip(), said=found[0].strip())


def read_choice(reply: str) -> tuple[str, str, str] | None:
    """(letter, operation, value) of the last line such as `C. TYPE [Leeds]`, or a letter; None where there is none."""
    found = next(reversed(list(_CHOICE.finditer(reply))), None)
    return None if found is None else (found[1], found[2] or "", (found[3] or "").strip())


def written(op: str, element: str, value: str) -> str:
    """An action as it is asked for; a click has no value."""
    return f"{op} [{element}]" + ("" if op == "CLICK" else f" [{value}]")


def marked(action: Action | None, gold: Action, right: Container[str], *, whole: bool) -> Mark:
    """The marks of an action.

    right   ids of the elements that count as the right one
    whole   step success is string equality of the whole action; else a right element and an F1 of 1
    """
    if action is None:
        return WRONG
    element = float(action.element in right)
    f1 = token_f1(_tokens(action), _tokens(gold))
    return Mark(element=element, f1=f1, step=float(action.said == gold.said if whole else element == f1 == 1.0))


def token_f1(said: set[str], gold: set[str]) -> float:
    """F1 of two sets of tokens, case-sensitive."""
    if not said or not gold:
        return float(said == gold)
    return 2 * len(said & gold) / (len(said) + len(gold))


def _tokens(action: Action) -> set[str]:
    """The tokens of operation and value, without pure punctuation, as in Synapse and AWM."""
    words = [action.op, *([] if action.op == "CLICK" else action.value.split())]
    return {word for word in words if word not in string.punctuation}
