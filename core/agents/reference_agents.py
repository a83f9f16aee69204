"""Agents that ask no model: `gold` plays the solution, `random` draws. They give a table its ceiling and its floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from core.agents.agent import Agent, Responder
from core.models.base import Reply, Role
from core.types import Message, Usage


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
