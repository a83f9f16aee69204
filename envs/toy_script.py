"""The players of the toy world for llm=scripted: a student, a judge and a distiller that know only their prompt."""

from __future__ import annotations

import re

from core.errors import UserError
from core.types import Message

GUESS = "sesame"  # never a family's word
_FAMILY = re.compile(r"of the (\w+) family")
_LESSON = re.compile(r'word of the (\w+) family is "(\w+)"')
_FEEDBACK = re.compile(r'word of the (\w+) family (?:was indeed|would have been) "(\w+)"')


def play(messages: list[Message], role: str, sample: int) -> str:
    """What the player of a role says; a function of its messages alone."""
    players = {"agent": _student, "judge": _judge, "extractor": _distiller, "selector": _selector}
    return players[role](messages)


def _student(messages: list[Message]) -> str:
    told = messages[0]["content"]  # lessons, or a whole attempt at another box
    whole = messages[0]["role"] == "user"  # agent.inject=user: the box stands below them
    boxes = _FAMILY.findall(told)[-1:] if whole else _FAMILY.findall(messages[1]["content"])
    if not boxes:
        raise UserError("llm=scripted plays env=toy and nothing else: give env=toy, another llm or another llm.script.")
    family = boxes[0]
    seen = "\n".join(message["content"] for message in messages[2 - whole :] if message["role"] == "user")
    by_feedback = dict(_FEEDBACK.findall(seen))
    known = dict([*_LESSON.findall(f"{told}\n{seen}"), *_FEEDBACK.findall(told)]) | by_feedback
    if family in known:
        source = "The feedback" if family in by_feedback else "A memory item"
        return f"Thought: {source} names the word of this family.\nAction: say {known[family]}"
    return f"Thought: Nothing I was told names the word of this family.\nAction: say {GUESS}"


def _selector(messages: list[Message]) -> str:
    attempts = re.split(r"^Attempt \d+:$", messages[-1]["content"], flags=re.MULTILINE)[1:]
    best = next((n for n, text in enumerate(attempts, 1) if "The box is open" in text), 1)
    return f'{{"analysis": "The first that opened the box, if any did.", "index": {best}}}'


def _judge(messages: list[Message]) -> str:
    opened = "The box is open" in messages[-1]["content"]
    return f'Thoughts: The last observation tells.\nStatus: "{"success" if opened else "failure"}"'


def _distiller(messages: list[Message]) -> str:
    seen = _FEEDBACK.search(messages[-1]["content"])
    if seen is None:
        return "There is nothing to learn from this."
    family, word = seen.groups()
    return (
        f"```\n# Memory Item 1\n## Title Word of the {family} family\n"
        f"## Description All boxes of the {family} family open to one word.\n"
        f'## Content The word of the {family} family is "{word}".\n```'
    )
