"""Scripted players that try out an arm in any env without a model: they go from place to place and win only by luck.

python main.py env=alfworld env.split=generated llm=scripted llm.script.path=envs.wanderer.play arm=matts_parallel
"""

from __future__ import annotations

import hashlib
import re

from core.types import Message

_THING = re.compile(r"\ban? ([a-z]+ \d+)")  # ALFWorld: "you see a cabinet 2, a cabinet 1"
_DOOR = re.compile(r"door to the ([a-z ]+?)(?: \(|,|\.|\n|$)")  # ScienceWorld: "A door to the kitchen (that is open)"
LESSON = "# Memory Item 1\n## Title Look elsewhere\n## Description {0} was tried.\n## Content Do not begin with {0}."


def play(messages: list[Message], role: str, sample: int) -> str:
    """What the player of a role says; a function of its messages and the sample alone."""
    last = messages[-1]["content"]
    if role == "agent":
        return _wander(messages, sample)
    if role == "judge":
        return f'Thoughts: A coin was thrown.\nStatus: "{("failure", "success")[_draw(last, 2)]}"'
    if role == "selector":
        attempts = len(re.findall(r"^Attempt \d+:$", last, flags=re.MULTILINE))
        return f'{{"analysis": "A die was thrown.", "index": {1 + _draw(last, max(attempts, 1))}}}'
    tried = re.search(r"^Action: (.+)$", last, flags=re.MULTILINE | re.IGNORECASE)
    return LESSON.format(tried.group(1) if tried else "the first answer that comes to mind")


def _wander(messages: list[Message], sample: int) -> str:
    """An action for worlds of places, and an answer for questions."""
    turn = sum(message["role"] == "assistant" for message in messages)
    places = list(dict.fromkeys(_THING.findall(messages[1]["content"])))
    doors = list(dict.fromkeys(_DOOR.findall("\n".join(m["content"] for m in messages[1:]))))
    if places:
        action = f"go to {places[(turn + 7 * sample) % len(places)]}"
    elif doors and turn % 3:
        door = doors[(turn // 3 + sample) % len(doors)]
        action = f"open door to {door}" if turn % 3 == 1 else f"go to {door}"
    elif doors:
        action = "look around"
    else:
        return f"Thought: Let me guess.\nThe answer is \\boxed{{{turn + sample}}}."
    return f"Thought: Let me see what is there.\nAction: {action}"


def _draw(text: str, sides: int) -> int:
    return hashlib.sha256(text.encode()).digest()[0] % sides
