"""Agents: the first messages of an attempt, and how a model's reply is read. workflows/rollout.py runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from core.errors import UserError, check_choice, check_numbers
from core.models.base import Reply, Role
from core.models.reply_text import strip_thinking
from core.page import escape, has_page, without_page
from core.types import Lesson, Message, Scored, Usage
from prompts import registry
from prompts.registry import PROJECT, Prompts

Responder = Callable[[list[Message], int, int], Reply]  # (messages, sample, seed) -> the next reply

# "Action:" at a line's start, perhaps numbered or in a list; and within a line, which counts only without the former.
_ACTION = re.compile(r"^[ \t*_#>•-]*(?:\d+[.)] *)?action[ \t]*\d*[ \t*_]*:[ \t*_]*(.*)$", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(r"(?<=[\s.!?;*_])Action[ \t]*\d*[*_]*:[ \t*_]*(\S.*)$", re.MULTILINE)
_TAG = re.compile(r"[ \t*_#>•-]*(?:thought|action|observation)[ \t]*\d*[ \t*_]*:", re.IGNORECASE)
_THOUGHT = re.compile(r"^[ \t*_#>•-]*(?:\d+[.)] *)?thought[ \t]*\d*[ \t*_]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
_BASH = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)  # as mini-swe-agent reads it
_NOTHING = re.compile(r"\s*(```\w*)?\s*")  # an empty line, or a code fence
LEFT_OUT = "(The page as it was then is left out.)"


@dataclass(kw_only=True)
class Agent:
    """What all agents share.

    answer_format      tells the model how to write its reply; part of the system prompt
    max_memory_chars   of all retrieved lessons together; from the first that does not fit on, lessons are left out
    max_memory_tokens  the same in tokens, by a cautious estimate (`estimate_tokens`); None has no such cap
    inject             system (the paper) | user: which message holds the retrieved lessons
    prompts            the templates of its messages
    """

    answer_format: str
    max_memory_chars: int = 24000
    max_memory_tokens: int | None = None
    inject: str = "system"
    prompts: Prompts = PROJECT
    uses_gold: ClassVar[bool] = False
    thinks: ClassVar[bool] = True  # whether a reply has room for a thought beside the action
    keep_observations: ClassVar[int | None] = None  # how many of the newest pages a prompt has; None: all

    def __post_init__(self) -> None:
        check_choice(self, "memory", "inject", ("system", "user"))

    def begin(self, env: Any, role: Role, task: str) -> Responder:
        """The function that gives the replies of one attempt: here the role's model is asked."""

        def ask(messages: list[Message], sample: int, seed: int) -> Reply:
            sent = [*messages, offer(env)] if role.llm.draws else messages
            return role.chat(sent, task=task, sample=sample, seed=seed)

        return ask

    def opening(self, observation: str, instructions: str, memories: list[Scored]) -> list[Message]:
        """The system prompt and the first observation, one of them with the retrieved lessons where there are any."""
        block = self.memory_block(memories)
        system = self.prompts.render(
            registry.SYSTEM_INSTRUCTION_WITH_MEMORY,
            instructions=instructions.strip(),
            answer_format=self.answer_format.strip(),
            memory_block=block if self.inject == "system" else "",
        )
        user = f"{block}\n\n{observation}" if block and self.inject == "user" else observation
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def memory_block(self, memories: list[Scored]) -> str:
        """Retrieved lessons as delimited, escaped, capped data; "" when there are none."""
        texts = [text for memory in memories for text in _texts(memory)][: sum(self.shown(memories))]
        items = [Lesson(title=title, description=description, content=content) for title, description, content in texts]
        return self.prompts.render(registry.MEMORY_BLOCK, items=items, thinks=self.thinks) if items else ""

    def shown(self, memories: list[Scored]) -> list[int]:
        """How many lessons of each record fit into the prompt; of the one at which the room ends, the first."""
        counts, chars, tokens, most = [0] * len(memories), 0, 0, self.max_memory_tokens
        for number, memory in enumerate(memories):
            for texts in _texts(memory):
                chars += sum(map(len, texts))
                tokens += sum(map(estimate_tokens, texts))
                if chars > self.max_memory_chars or (most is not None and tokens > most):
                    return counts
                counts[number] += 1
        return counts

    def seen(self, messages: list[Message]) -> list[Message]:
        """What the model is sent of a conversation: here all of it, so that providers find its beginning cached."""
        return list(messages)

    def parse(self, text: str) -> tuple[str, str | None]:
        """(thought, action) of a reply; action None when none can be read."""
        raise NotImplementedError


@dataclass(kw_only=True)
class CoTAgent(Agent):
    """Single turn, chain of thought: the action is the whole reply without <think> blocks; the env finds the answer."""

    def parse(self, text: str) -> tuple[str, str | None]:
        answer = strip_thinking(text).strip()
        return text.strip(), answer or None


@dataclass(kw_only=True)
class ReActAgent(Agent):
    """Multi turn (Yao et al. 2023): Thought, then Action; what the model wrote after its first action is dropped.

    unread   ask: a reply without an action is answered by saying so, and the model is asked again | act: it goes to the
             env as it is, as a benchmark has it that takes one reply for each step
    """

    unread: str = "ask"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "agent", "unread", ("ask", "act"))

    def parse(self, text: str) -> tuple[str, str | None]:
        visible = strip_thinking(text)
        thought, action = self._read(visible)
        return thought, visible.strip() if action is None and self.unread == "act" else action

    def _read(self, visible: str) -> tuple[str, str | None]:
        match = _ACTION.search(visible) or next(reversed(list(_INLINE.finditer(visible))), None)
        if match is None:
            return visible.strip(), None
        thought = _THOUGHT.sub("", visible[: match.start()]).strip().rstrip("*_ ")
        action = _bare(match.group(1)) or _bare(_line_of(visible[match.end() :]))
        return thought, action or None


@dataclass(kw_only=True)
class ActAgent(Agent):
    """Multi turn without thoughts, the "Act" of Yao et al. 2023: the reply's first line is the action.

    For models that are too small, or machines that are too slow, for thoughts.
    """

    thinks: ClassVar[bool] = False

    def parse(self, text: str) -> tuple[str, str | None]:
        first = _line_of(strip_thinking(text), tagged=True)
        tagged = _ACTION.match(first)
        return "", _bare(tagged.group(1) if tagged else first) or None


@dataclass(kw_only=True)
class BashAgent(Agent):
    """Multi turn: a thought, then the action in a fenced block of bash, one block a reply, as in mini-swe-agent."""

    def parse(self, text: str) -> tuple[str, str | None]:
        visible = strip_thinking(text)
        blocks = list(_BASH.finditer(visible))
        if len(blocks) != 1:
            return visible.strip(), None
        thought = _THOUGHT.sub("", visible[: blocks[0].start()]).strip()
        return thought, blocks[0][1].strip() or None


@dataclass(kw_only=True)
class WebAgent(ReActAgent):
    """agent=web, in a browser: thought, then one action (Yao et al. 2023), over pages as long as all the rest together.

    It sees the page as it is now, and of the steps before what it thought and did, and the errors that it met.

    keep_observations   how many pages a prompt has, the newest; in the place of an older one stands a line. None: all
                        pages, and a conversation that only grows
    """

    keep_observations: int | None = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "agent", "keep_observations", least=1, whole=True)

    def seen(self, messages: list[Message]) -> list[Message]:
        if self.keep_observations is None:
            return list(messages)
        pages = [n for n, one in enumerate(messages) if one["role"] == "user" and has_page(one["content"])]
        old = set(pages[: -self.keep_observations])
        return [
            one | {"content": without_page(one["content"], LEFT_OUT)} if n in old else one
            for n, one in enumerate(messages)
        ]


# Agents that ask no model: `gold` plays the solution, `random` draws. They give a table its ceiling and its floor.


@dataclass(kw_only=True)
class Player(Agent):
    """An agent whose whole reply is the action."""

    answer_format: str = ""

    def parse(self, text: str) -> tuple[str, str | None]:
        return "", text or None


@dataclass(kw_only=True)
class GoldAgent(Player):
    """Plays the env's walkthrough, to show that the env can be won. Refused where gold must not be learned from."""

    uses_gold: ClassVar[bool] = True

    def begin(self, env: Any, role: Role, task: str) -> Responder:
        actions = iter(env.walkthrough())
        return lambda messages, sample, seed: _reply(next(actions, ""), "gold")


@dataclass(kw_only=True)
class RandomAgent(Player):
    """Draws uniformly from the admissible actions, by the seed of the step."""

    def begin(self, env: Any, role: Role, task: str) -> Responder:
        def play(messages: list[Message], sample: int, seed: int) -> Reply:
            actions = env.admissible()
            return _reply(actions[seed % len(actions)], "random")

        return play


def _reply(text: str, name: str) -> Reply:
    return Reply(text=text, usage=Usage(), finish_reason="stop", model=name)


def offer(env: Any) -> Message:
    """For a model that draws (`ChatModel.draws`): {"admissible": the actions}, [] where there is no such list."""
    try:
        actions = env.admissible() if env.running else []
    except UserError:  # this env has none
        actions = []
    return {"role": "user", "content": json.dumps({"admissible": actions})}


def _texts(memory: Scored) -> list[list[str]]:
    """[title, description, content] of each lesson of a record, as they stand in a prompt."""
    warning = f"(warning: {memory.warning}) " if memory.warning else ""
    return [
        [escape(text) for text in (f"{warning}{item.title}", item.description, item.content)]
        for item in memory.record.items
    ]


def _line_of(text: str, *, tagged: bool = False) -> str:
    """The first line that is neither empty nor a code fence; unless `tagged`, "" where it begins with a tag."""
    first = next((line for line in text.splitlines() if not _NOTHING.fullmatch(line)), "")
    return first if tagged or not _TAG.match(first) else ""


def _bare(action: str) -> str:
    return action.strip().strip("`*").strip()


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, rather too many than too few. (A tokenizer would fit one provider only.)

    A word is one token for each 6 letters begun; a digit, a sign and a character of another script are one each.
    """
    return sum(-(-len(word) // 6) for word in re.findall(r"[A-Za-z]+|[^\sA-Za-z]", text))
