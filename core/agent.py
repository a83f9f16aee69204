"""Agents: build the first messages of an attempt and parse the model's replies. workflows/rollout.py runs them."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from core.control_tokens import escape
from core.errors import UserError, check_choice, check_numbers
from core.models.base import Reply, Role
from core.page import has_page, without_page
from core.reply_marks import next_turns, own_turn, plain_reply, tagged_answers, untagged
from core.tokens import estimate_tokens
from core.types import Lesson, Message, Scored, Usage
from prompts import registry
from prompts.registry import PROJECT, Prompts

Responder = Callable[[list[Message], int, int], Reply]  # (messages, sample, seed) -> the next reply

# "Action:" at the start of a line, also numbered or in a list; `_INLINE`: within a line, used if there is no other.
_ACTION = re.compile(r"^[ \t*_#>•-]*(?:\d+[.)] *)?action[ \t]*\d*[ \t*_]*:[ \t*_]*(.*)$", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(r"(?<=[\s.!?;*_])Action[ \t]*\d*[*_]*:[ \t*_]*(\S.*)$", re.MULTILINE)
_TAG = re.compile(r"[ \t*_#>•-]*(?:thought|action|observation)[ \t]*\d*[ \t*_]*:", re.IGNORECASE)
_THOUGHT = re.compile(r"^[ \t*_#>•-]*(?:\d+[.)] *)?thought[ \t]*\d*[ \t*_]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
_OBSERVED = re.compile(r"(?<=\S)[ \t]+Observation[ \t]*\d*:")  # an invented one, on the action's own line
_BASH = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)  # as mini-swe-agent reads it
_NOTHING = re.compile(r"\s*(```\w*)?\s*")  # an empty line, or a code fence
LEFT_OUT = "(The page as it was then is left out.)"


@dataclass(kw_only=True)
class Agent(ABC):
    """The base of all agents.

    answer_format      instructions on the reply's format; part of the system prompt
    max_memory_chars   maximum characters of all retrieved lessons; the first that does not fit and all after it are
                       left out; None: no such limit
    max_memory_tokens  the same in tokens, by a cautious estimate (core/tokens.py); None: no such limit
    inject             system (the paper) | user: the message that holds the retrieved lessons
    prompts            the templates of its messages
    """

    answer_format: str
    max_memory_chars: int | None = 24000
    max_memory_tokens: int | None = None
    inject: str = "system"
    prompts: Prompts = PROJECT
    uses_gold: ClassVar[bool] = False
    thinks: ClassVar[bool] = True  # whether a reply contains a thought besides the action
    converses: ClassVar[bool] = True  # whether a further round can follow its attempt (matts_sequential)
    least_steps: ClassVar[int] = 1  # that an attempt takes
    calls_model: ClassVar[bool] = True  # whether it asks the role's model for its first reply
    keep_observations: ClassVar[int | None] = None  # how many of the newest pages a prompt contains; None: all

    def __post_init__(self) -> None:
        check_choice(self, "memory", "inject", ("system", "user"))

    def begin(self, env: Any, role: Role, task: str) -> Responder:
        """The function that returns the replies of one attempt; here it calls the role's model.

        env    what the agent may ask of its env (`EnvView` in envs/base.py)
        task   the account of the episode (`account_of`)
        """

        def ask(messages: list[Message], sample: int, seed: int) -> Reply:
            sent = [*messages, offer(env)] if role.llm.draws else messages
            return role.chat(sent, task=task, sample=sample, seed=seed)

        return ask

    def opening(self, observation: str, instructions: str, memories: list[Scored]) -> list[Message]:
        """The system prompt and the first observation, one of them with the retrieved lessons if there are any."""
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
        """The retrieved lessons as a delimited block, escaped and limited in length; "" if there are none.

        Lessons without a word (retrieval=empty_block) show the frame alone.
        """
        texts = [text for memory in memories for text in _texts(memory)][: sum(self.shown(memories))]
        items = [
            Lesson(title=title, description=description, content=content)
            for title, description, content in texts
            if title or description or content
        ]
        return self.prompts.render(registry.MEMORY_BLOCK, items=items, thinks=self.thinks) if texts else ""

    def shown(self, memories: list[Scored]) -> list[int]:
        """For each record, the number of its lessons that fit into the prompt, taken in order."""
        counts, chars, tokens = [0] * len(memories), 0, 0
        most_chars, most = self.max_memory_chars, self.max_memory_tokens
        for number, memory in enumerate(memories):
            for texts in _texts(memory):
                chars += sum(map(len, texts))
                tokens += sum(map(estimate_tokens, texts))
                if (most_chars is not None and chars > most_chars) or (most is not None and tokens > most):
                    return counts
                counts[number] += 1
        return counts

    def seen(self, messages: list[Message]) -> list[Message]:
        """The messages of a conversation that the model is sent; here all, so that providers can cache the prefix."""
        return list(messages)

    @abstractmethod
    def parse(self, text: str) -> tuple[str, str | None]:
        """(thought, action) of a reply; action None if none can be parsed."""


@dataclass(kw_only=True)
class CoTAgent(Agent):
    """Single turn, chain of thought: the action is the whole reply without thoughts; the env finds the answer."""

    def parse(self, text: str) -> tuple[str, str | None]:
        answer = plain_reply(text).strip()
        return own_turn(text).strip(), answer or None


@dataclass(kw_only=True)
class ReActAgent(Agent):
    """Multi turn (Yao et al. 2023): Thought, then Action; text after the first action is dropped.

    unread   how to treat a reply without an action. ask: tell the model so and call it again | act: send the whole
             reply to the env, as in benchmarks that count one reply per step
    """

    unread: str = "ask"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "agent", "unread", ("ask", "act"))

    def parse(self, text: str) -> tuple[str, str | None]:
        visible = _visible(text)
        thought, action = self._read(visible)
        return thought, visible.strip() if action is None and self.unread == "act" else action

    def _read(self, visible: str) -> tuple[str, str | None]:
        match = _ACTION.search(visible) or next(reversed(list(_INLINE.finditer(_first_turn(visible, _INLINE)))), None)
        if match is None:
            return visible.strip(), None
        thought = _THOUGHT.sub("", visible[: match.start()]).strip().rstrip("*_ ")
        action = _bare(_OBSERVED.split(match.group(1))[0]) or _bare(_line_of(visible[match.end() :]))
        return thought, action or None


@dataclass(kw_only=True)
class ActAgent(Agent):
    """Multi turn without thoughts, the "Act" of Yao et al. 2023: the reply's first line is the action.

    For models that are too small, or machines that are too slow, to write thoughts.
    """

    thinks: ClassVar[bool] = False

    def parse(self, text: str) -> tuple[str, str | None]:
        first = _line_of(_visible(text), tagged=True)
        tagged = _ACTION.match(first)
        return "", _bare(tagged.group(1) if tagged else first) or None


@dataclass(kw_only=True)
class BashAgent(Agent):
    """Multi turn: a thought, then the action in a fenced block of bash, one block a reply, as in mini-swe-agent."""

    def parse(self, text: str) -> tuple[str, str | None]:
        visible = _visible(text)
        blocks = list(_BASH.finditer(_first_turn(visible, _BASH)))
        if len(blocks) != 1:
            return visible.strip(), None
        thought = _THOUGHT.sub("", visible[: blocks[0].start()]).strip()
        return thought, blocks[0][1].strip() or None


@dataclass(kw_only=True)
class WebAgent(ReActAgent):
    """agent=web, in a browser: thought, then one action (Yao et al. 2023). Old pages are left out of the prompt.

    By default a prompt has the current page, and of earlier steps the thoughts, the actions and the errors.

    keep_observations   how many of the newest pages a prompt contains; a line replaces each older one. None: all pages
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


# Agents that call no model: `gold` plays the solution, `random` draws. In tables they are the ceiling and the floor.


@dataclass(kw_only=True)
class Player(Agent):
    """An agent whose whole reply is the action."""

    answer_format: str = ""
    calls_model: ClassVar[bool] = False

    def parse(self, text: str) -> tuple[str, str | None]:
        return "", text or None


@dataclass(kw_only=True)
class GoldAgent(Player):
    """Plays the env's walkthrough, to show that tasks are solvable. Refused if the run learns without gold labels."""

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
    """The message for a model that draws (`ChatModel.draws`): {"admissible": actions}, [] if the env has no list."""
    try:
        actions = env.admissible() if env.running else []
    except UserError:  # this env has none
        actions = []
    return {"role": "user", "content": json.dumps({"admissible": actions})}


def _texts(memory: Scored) -> list[list[str]]:
    """[title, description, content] of each lesson of a record, as written in a prompt."""
    warning = f"(warning: {memory.warning}) " if memory.warning else ""
    return [
        [escape(text) for text in (f"{warning}{item.title}", item.description, item.content)]
        for item in memory.record.items
    ]


def _visible(text: str) -> str:
    """What a reply says. An action that stands in answer tags alone, and is nowhere called one, is called one."""
    said = plain_reply(text)
    visible, tags = untagged(said), tagged_answers(said)
    action = _line_of(tags[-1].content) if tags else ""
    if not action or "```" in said or _ACTION.search(visible) or _INLINE.search(visible):
        return visible
    before = said[: tags[-1].start].rstrip(" \t*_>#-")
    return f"{untagged(before)}\nAction: {action}\n"


def _first_turn(visible: str, stated: re.Pattern) -> str:
    """The text up to where the model, its action stated, invents what the environment or the user says next."""
    end = next((place for place in next_turns(visible, observed=True) if stated.search(visible, 0, place)), None)
    return visible[:end]


def _line_of(text: str, *, tagged: bool = False) -> str:
    """The first line that is neither empty nor a code fence; "" if it begins with a tag, unless `tagged`."""
    first = next((line for line in text.splitlines() if not _NOTHING.fullmatch(line)), "")
    return first if tagged or not _TAG.match(first) else ""


def _bare(action: str) -> str:
    return action.strip().strip("`*").strip()
