"""The players of the toy world for llm=scripted: a student, a judge and a distiller that know only their prompt."""

from __future__ import annotations

import json
import re

from core.errors import UserError
from core.types import Message

_HELD = re.compile(r"^The (?:experiences|playbook as it stands):$", re.MULTILINE)  # heads notes in prompts/rivals
GUESS = "sesame"  # never a family's word
_FAMILY = re.compile(r"of the (\w+) family")
_LESSON = re.compile(r'word of the (\w+) family is "(\w+)"')
_FEEDBACK = re.compile(r'word of the (\w+) family (?:was indeed|would have been) "(\w+)"')


def play(messages: list[Message], role: str, sample: int) -> str:
    """What the player of a role says; a function of its messages alone."""
    players = {
        "agent": _student,
        "judge": _judge,
        "extractor": _distiller,
        "selector": _selector,
        "corrupter": _corrupter,
    }
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
    """The lessons of the families whose words stand in the prompt, in the form that it asks for.

    Families of which it holds a lesson, as a cheatsheet does, come first.
    """
    prompt = messages[-1]["content"]
    seen = dict(_FEEDBACK.findall(prompt))
    if not seen and (held := _HELD.search(prompt)):  # what an attempt has shown stands before, in a model's words
        seen = dict(_LESSON.findall(prompt[: held.start()]))
    if not seen:
        return "There is nothing to learn from this."
    if '"keywords"' in prompt:
        return json.dumps({"keywords": list(seen), "context": "A box was tried.", "tags": ["boxes"]})
    if '"connections"' in prompt:
        return json.dumps({"connections": _noted(prompt, _FEEDBACK, next(iter(seen))), "neighbours": []})
    if '"operations"' in prompt:
        thoughts = " ".join(_lesson(family, word) for family, word in seen.items())
        return json.dumps({"thoughts": thoughts, "operations": _operations(prompt, seen)}, ensure_ascii=False)
    return _items(dict(_LESSON.findall(prompt)) | seen)


def _corrupter(messages: list[Message]) -> str:
    """Each lesson in the prompt with its family's word spelt backwards."""
    return _items({family: word[::-1] for family, word in _LESSON.findall(messages[-1]["content"])})


def _items(words: dict[str, str]) -> str:
    items = [
        f"# Memory Item {number}\n## Title Word of the {family} family\n"
        f"## Description All boxes of the {family} family open to one word.\n"
        f"## Content {_lesson(family, word)}"
        for number, (family, word) in enumerate(words.items(), 1)
    ]
    return "```\n" + "\n".join(items) + "\n```"


def _operations(prompt: str, seen: dict[str, str]) -> list[dict[str, str]]:
    """A vote for the notes on the families seen, and a new note on each without one, as far as the prompt has these."""
    vote = next((name for name in ("HELPFUL", "UPVOTE") if name in prompt), None)
    done = []
    for family, word in seen.items():
        notes = _noted(prompt, _LESSON, family)
        done += [{"operation": vote, "note": note} for note in notes if vote]
        if not notes and "ADD" in prompt:
            done.append({"operation": "ADD", "title": f"The {family} family", "content": _lesson(family, word)})
    return done


def _noted(prompt: str, told: re.Pattern, family: str) -> list[str]:
    """The ids of the notes that tell a family's word."""
    blocks = re.split(r"^\[(\d+-\d+)\]", prompt, flags=re.MULTILINE)[1:]
    return [id for id, text in zip(blocks[::2], blocks[1::2], strict=True) if family in dict(told.findall(text))]


def _lesson(family: str, word: str) -> str:
    return f'The word of the {family} family is "{word}".'
