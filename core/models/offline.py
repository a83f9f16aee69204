"""Stand-ins for a model, without network or cost: llm=scripted replies by a function, llm=free replies at random."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from core.models.base import ChatModel, ConfiguredModel, Reply, Request
from core.seeding import derive_seed
from core.types import MEMORY, Message, Usage

Script = Callable[[list[Message], str, int], str]  # (messages, role, sample) -> text
Draw = Callable[[str, int], int]  # (purpose, n) -> a pseudo-random number from 0 to n - 1


@dataclass(kw_only=True)
class ScriptedModel(ConfiguredModel):
    """llm=scripted, for tests and demos: replies with `script(messages, role, sample)`; words are counted as tokens.

    delay_s   seconds that each call takes, to watch a progress bar or to test concurrency
    """

    script: Script
    delay_s: float = 0.0
    name: str = "scripted"
    supports_schema: bool = field(default=False, init=False)

    def chat(self, request: Request) -> Reply:
        if self.delay_s:
            time.sleep(self.delay_s)
        return _reply(request, self.script(request.messages, request.role, request.sample), self.name)

    def identity(self) -> dict[str, Any]:
        source = self.script if hasattr(self.script, "__qualname__") else type(self.script)  # a function, or an object
        return {"model": self.name, "script": f"{source.__module__}.{source.__qualname__}"}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0


def _reply(request: Request, text: str, model: str) -> Reply:
    prompt = sum(len(message["content"].split()) for message in request.messages)
    usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=len(text.split()), cost_usd=0.0)
    return Reply(text=text, usage=usage, finish_reason="stop", model=model)


_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.]*\d)")
_OPTION = re.compile(r"^\(?([A-Z])[).] ", re.MULTILINE)  # "(B) a lever", "B. a lever"
_TRIED = re.compile(r"^(?:Action: |The answer is )(.+)$", re.MULTILINE)
_ATTEMPT = re.compile(r"^Attempt \d+\b.*:$", re.MULTILINE)


@dataclass(kw_only=True)
class FreePlayer(ChatModel):
    """llm=free: draws the agent's actions at random, and the replies of judge, distiller and selector. No model.

    To try out an env or an arm: the whole loop runs in seconds. Its results say nothing about memory: each action is
    drawn by the seed of its step, and lessons are ignored. So all arms with one attempt per task act alike, and a
    difference between them is a bug in the env or the harness. A reply is a function of the messages, the role, the
    sample and the seed. Words are counted as tokens.

    agent     draws from the admissible actions if the env lists them; else from the task's text: the letters of its
              options, the range of its numbers, its words
    others    draw a value that the reply's schema allows; lessons quote what was tried
    """

    name: ClassVar[str] = "free (no model)"
    supports_schema: ClassVar[bool] = True
    draws: ClassVar[bool] = True

    def chat(self, request: Request) -> Reply:
        return _reply(request, self._act(request) if request.role == "agent" else self._fill(request), self.name)

    def identity(self) -> dict[str, Any]:
        return {"model": self.name}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    def _act(self, request: Request) -> str:
        """A random action in the format that the agent's instructions require."""
        actions, messages = _offered(request.messages)
        number = derive_seed(request.sample, len(messages)) if request.seed is None else request.seed
        instructions = MEMORY.sub("", messages[0]["content"]).lower()
        if not actions:
            actions = _possible("\n".join(MEMORY.sub("", m["content"]) for m in messages if m["role"] == "user"))
            if "action" not in instructions:
                return f"The answer is \\boxed{{{actions[number % len(actions)]}}}."
        action = actions[number % len(actions)]
        if "```bash" in instructions:
            return f"No model plays here; I draw one of {len(actions)} commands.\n\n```bash\n{action}\n```"
        if "action:" not in instructions and "one action" not in instructions:
            return str(action)
        thought = f"Thought: No model plays here; I draw one of {len(actions)} actions.\n"
        return f"{thought if 'thought:' in instructions else ''}Action: {action}"

    def _fill(self, request: Request) -> str:
        """The reply of a judge, a distiller or a selector: a random value that the schema allows."""
        if request.schema is None:
            return "No model speaks here (llm=free)."
        prompt = request.messages[-1]["content"]

        def draw(purpose: str, n: int) -> int:
            return derive_seed(request.role, request.sample, purpose, prompt) % n

        return json.dumps(_filled(request.schema, "", prompt, draw), ensure_ascii=False)


def _offered(messages: list[Message]) -> tuple[list[str], list[Message]]:
    """(the admissible actions, the conversation without the message that lists them)."""
    try:
        return json.loads(messages[-1]["content"])["admissible"], messages[:-1]
    except (ValueError, TypeError, KeyError):  # a caller that lists no actions
        return [], messages


def _possible(text: str) -> range | list[str]:
    """Possible answers to a text, guessed from its form; never empty."""
    if len(letters := sorted(set(_OPTION.findall(text)))) > 1:
        return letters
    if numbers := [int(number) for number in _NUMBER.findall(text)]:
        return range(min(numbers), max(numbers) + 1)
    return re.findall(r"[^\W\d_]+", text) or ["look"]


def _filled(schema: dict, name: str, prompt: str, draw: Draw) -> Any:
    """A random value that a JSON schema allows (objects, arrays of one or `minItems` items, plain values)."""
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
    if kind == "integer":  # without a maximum: an attempt's number, 1 to the number of attempts
        most = schema.get("maximum", max(least, len(_ATTEMPT.findall(prompt))))
        return least + draw(name, most - least + 1)
    if kind == "number":
        return least + (schema.get("maximum", least + 1) - least) * draw(name, 101) / 100
    return _text(name, prompt, draw)[: schema.get("maxLength")]


def _text(name: str, prompt: str, draw: Draw) -> str:
    """A text for a field of this name."""
    tried = _TRIED.findall(prompt)
    quoted = tried[draw("tried", len(tried))] if tried else "what the text above says"
    return {
        "title": f"Tried: {quoted}",
        "description": "No model wrote this lesson: llm=free quotes an attempt.",
        "content": f"An attempt at a task of this kind went so: {quoted}",
    }.get(name, "No model thinks here: this was drawn by lot.")
