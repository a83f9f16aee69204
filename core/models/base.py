"""ChatModel: what every provider offers; Role: a model with the decoding of one of its jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from core.errors import InfraError
from core.models.meter import Meter
from core.models.reply_text import storable
from core.types import Message, Usage


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's answer. `sent` holds the decoding parameters that really left, after what the provider cannot take."""

    text: str
    usage: Usage
    finish_reason: str  # stop | length | tool_calls | content_filter | refusal, or the provider's own word
    model: str  # as the provider returned it
    sent: dict[str, Any] = field(default_factory=dict)
    reasoning: str = ""  # what the model thought aloud, where the provider returns it apart from the text
    retries: int = 0
    from_cache: bool = False  # no call was made


class ChatModel(Protocol):
    """A provider. Thread-safe. Raises StopRun when no call can succeed, else InfraError for this call."""

    name: str  # for records: provider and model
    supports_schema: bool  # whether `schema` constrains the output

    def chat(
        self,
        messages: list[Message],
        *,
        role: str,
        sample: int = 0,
        seed: int | None = None,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: dict | None = None,
    ) -> Reply:
        """One call. role is agent | judge | extractor | selector; sample tells k otherwise equal requests apart."""
        ...

    def identity(self) -> dict[str, Any]:
        """What makes two models of one name different ones (server, file, own limits): part of the cache's key."""
        ...

    def problem(self) -> str | None:
        """One sentence on why no call can succeed, known without making one (a missing key); None when all is well."""
        ...

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What so many tokens would cost in USD; None when that is unknown."""
        ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class Role:
    """One job of a model, with its decoding from `roles.<name>` in the config; every call goes through the meter.

    max_tokens   None leaves the limit to the model's own, then to the provider
    seed         what this role's seeds are derived from; None takes the run's
    """

    name: str
    llm: ChatModel
    temperature: float | None
    max_tokens: int | None
    seed: int | None = None
    meter: Meter = field(default_factory=Meter, repr=False)
    sent: dict[str, Any] = field(default_factory=dict, init=False)  # of the last call, for the manifest

    def chat(
        self,
        messages: list[Message],
        *,
        task: str = "",
        sample: int = 0,
        seed: int | None = None,
        schema: dict | None = None,
    ) -> Reply:
        """One call with this role's decoding, logged and charged to `task`. Raises OverBudget instead of calling.

        `schema` is passed on only where the model can be held to it.
        """
        self.meter.check(task, self.name)
        began = time.perf_counter()
        facts = {"role": self.name, "task": task, "sample": sample, "requested": self.llm.name, "messages": messages}
        try:
            reply = self.llm.chat(
                messages,
                role=self.name,
                sample=sample,
                seed=seed,
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                schema=schema if self.llm.supports_schema else None,
            )
        except InfraError as error:
            self.meter.failed(facts, error, time.perf_counter() - began)
            raise
        reply = replace(reply, text=storable(reply.text or ""), reasoning=storable(reply.reasoning or ""))
        self.meter.add(facts, reply, time.perf_counter() - began)
        self.sent = {"model": reply.model, **reply.sent}
        return reply

    def describe(self) -> dict[str, Any]:
        """For the manifest: what was asked for, and what the last call really sent."""
        return {
            "model": self.llm.name,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "sent": {name: value for name, value in self.sent.items() if name != "seed"},
        }
