"""llm=free: no model at all. It plays any env by lot, and draws what a judge, a distiller and a selector would say.

For whoever writes an env, and for trying out an arm: the whole loop runs, in seconds and at no cost. What comes out
says nothing about memory: every action is drawn by the seed of its step, and no lesson is read. So arms with one
attempt a task act alike, and a difference between them is a fault of the env or of the harness.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from core.models.base import ChatModel, Reply
from core.seeding import derive_seed
from core.types import MEMORY, Message, Usage

Draw = Callable[[str, int], int]  # (what for, n) -> one of 0 ... n - 1

_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.]*\d)")
_OPTION = re.compile(r"^\(?([A-Z])[).] ", re.MULTILINE)  # "(B) a lever", "B. a lever"
_TRIED = re.compile(r"^(?:Action: |The answer is )(.+)$", re.MULTILINE)
_ATTEMPT = re.compile(r"^Attempt \d+\b.*:$", re.MULTILINE)


@dataclass(kw_only=True)
class FreePlayer(ChatModel):
    """Answers every role by lot: a function of the messages, the role, the sample and the seed. A token is a word.

    agent     one of the admissible actions, where the env lists them; else it is drawn from what the task's text holds:
              the letters of its options, the numbers between its least and its greatest, its words
    others    whatever the schema of the reply allows; lessons quote what was tried
    """

    name: ClassVar[str] = "free (no model)"
    supports_schema: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    cache: ClassVar[str] = "off"

    def chat(
        self, messages: list[Message], *, role, sample=0, seed=None, temperature=0.0, max_tokens=None, schema=None
    ) -> Reply:
        text = self._play(messages, sample, seed) if role == "agent" else self._learn(messages, role, sample, schema)
        prompt = sum(len(message["content"].split()) for message in messages)
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=len(text.split()), cost_usd=0.0)
        return Reply(text=text, usage=usage, finish_reason="stop", model=self.name)

    def identity(self) -> dict[str, Any]:
        return {"model": self.name}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    def _play(self, messages: list[Message], sample: int, seed: int | None) -> str:
        """An action in the form that the agent asks for."""
        actions, said = _offered(messages)
        number = derive_seed(sample, len(said)) if seed is None else seed
        told = MEMORY.sub("", said[0]["content"]).lower()
        if not actions:
            actions = _possible("\n".join(MEMORY.sub("", m["content"]) for m in said if m["role"] == "user"))
            if "action" not in told:
                return f"The answer is \\boxed{{{actions[number % len(actions)]}}}."
        action = actions[number % len(actions)]
        if "```bash" in told:
            return f"No model plays here; I draw one of {len(actions)} commands.\n\n```bash\n{action}\n```"
        if "action:" not in told and "one action" not in told:
            return action
        thought = f"Thought: No model plays here; I draw one of {len(actions)} actions.\n" if "thought:" in told else ""
        return f"{thought}Action: {action}"

    def _learn(self, messages: list[Message], role: str, sample: int, schema: dict | None) -> str:
        """What a judge, a distiller or a selector says."""
        prompt = messages[-1]["content"]

        def draw(purpose: str, n: int) -> int:
            return derive_seed(role, sample, purpose, prompt) % n

        if schema is None:
            return "No model speaks here (llm=free)."
        return json.dumps(_filled(schema, "", prompt, draw), ensure_ascii=False)


def _offered(messages: list[Message]) -> tuple[list[str], list[Message]]:
    """(the admissible actions, the conversation without the message that lists them)."""
    try:
        return json.loads(messages[-1]["content"])["admissible"], messages[:-1]
    except (ValueError, TypeError, KeyError):  # asked by somebody who offers none
        return [], messages


def _possible(text: str) -> range | list[str]:
    """What an answer to a text may be, as far as that can be told without understanding it; never empty."""
    if len(letters := sorted(set(_OPTION.findall(text)))) > 1:
        return letters
    if numbers := [int(number) for number in _NUMBER.findall(text)]:
        return range(min(numbers), max(numbers) + 1)
    return re.findall(r"[^\W\d_]+", text) or ["look"]


def _filled(schema: dict, name: str, prompt: str, draw: Draw) -> Any:
    """A value that a JSON schema allows (objects, one item of an array, plain values)."""
    if "enum" in schema:
        return schema["enum"][draw(name, len(schema["enum"]))]
    kind = schema["type"]
    if kind == "object":
        return {key: _filled(value, key, prompt, draw) for key, value in schema["properties"].items()}
    if kind == "array":
        return [_filled(schema["items"], name, prompt, draw) for _ in range(max(schema.get("minItems", 0), 1))]
    if kind == "boolean":
        return draw(name, 2) == 1
    least = schema.get("minimum", 0)
    if kind == "integer":  # without a maximum: the number of one of the attempts
        most = schema.get("maximum", max(least, len(_ATTEMPT.findall(prompt))))
        return least + draw(name, most - least + 1)
    if kind == "number":
        return least + (schema.get("maximum", least + 1) - least) * draw(name, 101) / 100
    return _text(name, prompt, draw)[: schema.get("maxLength")]


def _text(name: str, prompt: str, draw: Draw) -> str:
    """A text by the name of its field."""
    tried = _TRIED.findall(prompt)
    quoted = tried[draw("tried", len(tried))] if tried else "what the text above says"
    return {
        "title": f"Tried: {quoted}",
        "description": "No model wrote this lesson: llm=free quotes an attempt.",
        "content": f"An attempt at a task of this kind went so: {quoted}",
    }.get(name, "No model thinks here: this was drawn by lot.")


# llm=scripted: a deterministic model for tests and demos. What it says is a function of what it is told.

Script = Callable[[list[Message], str, int], str]  # (messages, role, sample) -> text


@dataclass(kw_only=True)
class ScriptedModel(ChatModel):
    """Answers with `script(messages, role, sample)`; a token is a word.

    delay_s makes each call take that long, to watch a progress bar or to test concurrency; 0 answers at once.
    cache, cache_path and fallbacks as for every model, see core/models/cache.py and core/models/fallback.py.
    """

    script: Script
    delay_s: float = 0.0
    name: str = "scripted"
    cache: str = "off"
    cache_path: str = "outputs/.cache/replies.sqlite"
    fallbacks: list[Any] | None = None
    supports_schema: bool = field(default=False, init=False)

    def chat(
        self, messages: list[Message], *, role, sample=0, seed=None, temperature=0.0, max_tokens=None, schema=None
    ) -> Reply:
        if self.delay_s:
            time.sleep(self.delay_s)
        text = self.script(messages, role, sample)
        prompt = sum(len(m["content"].split()) for m in messages)
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=len(text.split()), cost_usd=0.0)
        return Reply(text=text, usage=usage, finish_reason="stop", model=self.name)

    def identity(self) -> dict[str, Any]:
        named = self.script if hasattr(self.script, "__qualname__") else type(self.script)
        return {"model": self.name, "script": f"{named.__module__}.{named.__qualname__}"}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0
