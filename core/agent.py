"""Agents: how a task is opened and how a model's text is read. The loop that drives them is workflows/rollout.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from core.llm.base import Reply, Role
from core.reply_text import spoken
from core.types import Lesson, Message, Scored
from prompts import registry

Policy = Callable[[list[Message], int, int], Reply]

_ACTION = re.compile(r"^[ \t*_#>]*action[ \t*_]*:[ \t*_]*(.*)$", re.IGNORECASE | re.MULTILINE)
_THOUGHT = re.compile(r"^[ \t*_#>]*thought[ \t*_]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)


@dataclass(kw_only=True)
class Agent:
    """What cot and react share.

    answer_format      tells the model how to write its reply; part of the system prompt
    max_memory_chars   cap on all retrieved lessons together; whole items are left out beyond it
    """

    answer_format: str
    max_memory_chars: int = 6000
    uses_gold: ClassVar[bool] = False

    def begin(self, env: Any, role: Role, task: str) -> Policy:
        """What answers in one attempt: the role's model, here; core/players.py has others."""
        return lambda messages, sample, seed: role.chat(messages, task=task, sample=sample, seed=seed)

    def opening(self, observation: str, instructions: str, memories: list[Scored]) -> list[Message]:
        """The system prompt (with the memory block, empty when nothing was retrieved) and the first observation."""
        system = registry.render(
            registry.SYSTEM_INSTRUCTION_WITH_MEMORY,
            instructions=instructions.strip(),
            answer_format=self.answer_format.strip(),
            memory_block=memory_block(memories, self.max_memory_chars),
        )
        return [{"role": "system", "content": system}, {"role": "user", "content": observation}]

    def parse(self, text: str) -> tuple[str, str | None]:
        """(thought, action) of a reply; action None when there is none to be read."""
        raise NotImplementedError


@dataclass(kw_only=True)
class CoTAgent(Agent):
    """Single turn, chain of thought: the whole reply, less a <think> block, is the action; the env reads the answer."""

    def parse(self, text: str) -> tuple[str, str | None]:
        answer = spoken(text).strip()
        return text.strip(), answer or None


@dataclass(kw_only=True)
class ReActAgent(Agent):
    """Multi turn (Yao et al. 2023): Thought before Action; what a model invents after its first action is dropped."""

    def parse(self, text: str) -> tuple[str, str | None]:
        visible = spoken(text)
        match = _ACTION.search(visible)
        if match is None:
            return visible.strip(), None
        thought = _THOUGHT.sub("", visible[: match.start()]).strip()
        return thought, match.group(1).strip().strip("`*").strip() or None


def memory_block(memories: list[Scored], max_chars: int) -> str:
    """Retrieved lessons as delimited, escaped, capped data; "" when there are none."""
    items: list[Lesson] = []
    used = 0
    for item in (item for memory in memories for item in memory.record.items):
        texts = [_escape(text) for text in (item.title, item.description, item.content)]
        used += sum(map(len, texts))
        if used > max_chars:
            break
        items.append(Lesson(title=texts[0], description=texts[1], content=texts[2]))
    return registry.render(registry.MEMORY_BLOCK, items=items) if items else ""


def _escape(text: str) -> str:
    # A lesson must not be able to close its own block, nor to end the turn in a chat template.
    text = re.sub(r"<(?=/?\s*memory_items)", "&lt;", text, flags=re.IGNORECASE)
    return text.replace("<|", "< |").replace("\x00", "")
