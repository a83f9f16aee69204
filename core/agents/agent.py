"""Agents: how a task is opened and how a model's text is read. The loop that drives them is workflows/rollout.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from core.errors import UserError
from core.models.base import Reply, Role
from core.models.reply_text import strip_thinking
from core.types import Lesson, Message, Scored
from prompts import registry

Responder = Callable[[list[Message], int, int], Reply]  # (messages, sample, seed) -> what answers them

# The tag at a line's start, numbered or in a list or not; and one within a line, which only counts without such a one.
_ACTION = re.compile(r"^[ \t*_#>•-]*(?:\d+[.)] *)?action[ \t]*\d*[ \t*_]*:[ \t*_]*(.*)$", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(r"(?<=[\s.!?;*_])Action[ \t]*\d*[*_]*:[ \t*_]*(\S.*)$", re.MULTILINE)
_TAG = re.compile(r"[ \t*_#>•-]*(?:thought|action|observation)[ \t]*\d*[ \t*_]*:", re.IGNORECASE)
_THOUGHT = re.compile(r"^[ \t*_#>•-]*(?:\d+[.)] *)?thought[ \t]*\d*[ \t*_]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
_NOTHING = re.compile(r"\s*(```\w*)?\s*")  # an empty line, or one that opens or closes a code block


@dataclass(kw_only=True)
class Agent:
    """What cot and react share.

    answer_format      tells the model how to write its reply; part of the system prompt
    max_memory_chars   cap on all retrieved lessons together; whole items are left out beyond it
    max_memory_tokens  the same in tokens, by a cautious estimate (`estimate_tokens`); None has no such cap
    inject             system (the paper) | user: which message holds the retrieved lessons
    """

    answer_format: str
    max_memory_chars: int = 6000
    max_memory_tokens: int | None = None
    inject: str = "system"
    uses_gold: ClassVar[bool] = False
    thinks: ClassVar[bool] = True  # whether a reply has room for a thought beside the action

    def __post_init__(self) -> None:
        if self.inject not in ("system", "user"):
            raise UserError(f"memory.inject={self.inject}: give system or user.")

    def begin(self, env: Any, role: Role, task: str) -> Responder:
        """What answers in one attempt: the role's model, here; core/agents/reference_agents.py has others."""
        return lambda messages, sample, seed: role.chat(messages, task=task, sample=sample, seed=seed)

    def opening(self, observation: str, instructions: str, memories: list[Scored]) -> list[Message]:
        """The system prompt and the first observation, with the memory block (empty when nothing was retrieved)."""
        block = memory_block(memories, self.max_memory_chars, self.max_memory_tokens, thinks=self.thinks)
        system = registry.render(
            registry.SYSTEM_INSTRUCTION_WITH_MEMORY,
            instructions=instructions.strip(),
            answer_format=self.answer_format.strip(),
            memory_block=block if self.inject == "system" else "",
        )
        user = f"{block}\n\n{observation}" if block and self.inject == "user" else observation
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def parse(self, text: str) -> tuple[str, str | None]:
        """(thought, action) of a reply; action None when there is none to be read."""
        raise NotImplementedError


@dataclass(kw_only=True)
class CoTAgent(Agent):
    """Single turn, chain of thought: the whole reply, less a <think> block, is the action; the env reads the answer."""

    def parse(self, text: str) -> tuple[str, str | None]:
        answer = strip_thinking(text).strip()
        return text.strip(), answer or None


@dataclass(kw_only=True)
class ReActAgent(Agent):
    """Multi turn (Yao et al. 2023): Thought before Action; what a model invents after its first action is dropped."""

    def parse(self, text: str) -> tuple[str, str | None]:
        visible = strip_thinking(text)
        match = _ACTION.search(visible) or next(reversed(list(_INLINE.finditer(visible))), None)
        if match is None:
            return visible.strip(), None
        thought = _THOUGHT.sub("", visible[: match.start()]).strip().rstrip("*_ ")
        action = _bare(match.group(1)) or _bare(_line_of(visible[match.end() :]))
        return thought, action or None


@dataclass(kw_only=True)
class ActAgent(Agent):
    """Multi turn without thoughts, the "Act" of Yao et al. 2023: the reply's first line is the action.

    For models that are too small, or a machine that is too slow, to think in between.
    """

    thinks: ClassVar[bool] = False

    def parse(self, text: str) -> tuple[str, str | None]:
        first = _line_of(strip_thinking(text), tagged=True)
        tagged = _ACTION.match(first)
        return "", _bare(tagged.group(1) if tagged else first) or None


def _line_of(text: str, *, tagged: bool = False) -> str:
    """The first line that says something, a code block's fence aside; "" where it is another tag's, unless `tagged`."""
    first = next((line for line in text.splitlines() if not _NOTHING.fullmatch(line)), "")
    return first if tagged or not _TAG.match(first) else ""


def _bare(action: str) -> str:
    return action.strip().strip("`*").strip()


def memory_block(memories: list[Scored], max_chars: int, max_tokens: int | None = None, *, thinks: bool = True) -> str:
    """Retrieved lessons as delimited, escaped, capped data; "" when there are none."""
    items: list[Lesson] = []
    chars = tokens = 0
    for warning, item in ((memory.warning, item) for memory in memories for item in memory.record.items):
        title = f"(warning: {warning}) {item.title}" if warning else item.title
        texts = [escape(text) for text in (title, item.description, item.content)]
        chars += sum(map(len, texts))
        tokens += sum(map(estimate_tokens, texts))
        if chars > max_chars or (max_tokens is not None and tokens > max_tokens):
            break
        items.append(Lesson(title=texts[0], description=texts[1], content=texts[2]))
    return registry.render(registry.MEMORY_BLOCK, items=items, thinks=thinks) if items else ""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is for a model, rather too many than too few: no tokenizer fits every provider.

    A word is one token for each 6 letters begun; a digit, a sign, and a character of another script are one each.
    """
    return sum(-(-len(part) // 6) for part in re.findall(r"[A-Za-z]+|[^\sA-Za-z]", text))


def escape(text: str) -> str:
    """A lesson's text, unable to close its own block or to end the turn in a chat template."""
    text = re.sub(r"<(?=/?\s*memory_items)", "&lt;", text, flags=re.IGNORECASE)
    return text.replace("<|", "< |").replace("\x00", "")
