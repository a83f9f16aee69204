"""Request and Reply; ChatModel: what every provider offers; Role: a model with the decoding of one of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from core.models.limits import Limiter
from core.models.meter import Meter
from core.models.reply_text import storable
from core.types import Message, Usage
from prompts.registry import PROJECT, Prompts

# Decoding beyond temperature, max_tokens and seed: fields of Role, sent only where they are set.
MORE = ("top_p", "stop", "reasoning_effort", "thinking_tokens", "extra_body")
CACHE_PATH = "outputs/.cache/replies.sqlite"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a model is asked for: one reply.

    role     agent | judge | extractor | selector
    sample   tells k otherwise equal requests apart
    schema   JSON schema that the reply is to be held to; read only where the model `supports_schema`
    more     what the role sets of `MORE`; a model that refuses all of it (`ChatModel.refuses`) need not look
    """

    messages: list[Message]
    role: str
    sample: int = 0
    seed: int | None = None
    temperature: float | None = 0.0
    max_tokens: int | None = None
    schema: dict[str, Any] | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's answer."""

    text: str
    usage: Usage
    finish_reason: str  # stop | length | tool_calls | content_filter | refusal, or the provider's own word
    model: str  # as the provider returned it
    sent: dict[str, Any] = field(default_factory=dict)  # the decoding parameters, without those it does not take
    reasoning: str = ""  # what the model thought aloud, where the provider returns it apart from the text
    provider: str = ""  # who answered behind a router, where the reply says so
    system_fingerprint: str = ""  # the provider's mark of the system that answered, likewise
    fallback: str = ""  # the model of `llm.fallbacks` that answered, "" where it was the first one
    failed: list[dict[str, str]] = field(default_factory=list)  # {model, error} of those that were asked before it
    retries: int = 0
    from_cache: bool = False  # no call was made, but by the models in `failed`
    paid: Usage | None = None  # what those took of its usage, where it is from the cache


class ChatModel(Protocol):
    """A provider. Thread-safe.

    A subclass has `chat`, `identity` and the first two fields; what follows them where it needs it.

    name              for records: provider and model
    supports_schema   whether a request's `schema` constrains the output
    draws             no model: the agent's calls end with a message that lists the admissible actions
    cache             off | read_write | replay, see core/models/cache.py; kept in cache_path
    fallbacks         the models to ask where this one fails for good, see core/models/fallback.py
    provider          whose limits hold for it: models of one provider share their limiter (core/models/limits.py)
    """

    name: str
    supports_schema: bool
    draws: ClassVar[bool] = False
    cache: str = "off"
    cache_path: str = CACHE_PATH
    fallbacks: list[ChatModel] | None = None
    provider: str = ""
    limiter: Limiter | None = None

    def chat(self, request: Request) -> Reply:
        """One call. Raises StopRun when no call can succeed, else InfraError for this call."""
        ...

    def refuses(self, more: dict[str, Any]) -> str | None:
        """Why a role's `more` cannot be sent, in one sentence, before anything is called; None: all of it can."""
        return f"{self.name} takes no {', '.join(more)}." if more else None

    def identity(self) -> dict[str, Any]:
        """What tells two models of one name apart (server, file, own limits); a part of the response cache's key."""
        ...

    def problem(self) -> str | None:
        """Why no call can succeed, in one sentence, as far as that is known without making one; None: nothing known."""
        return None

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What so many tokens would cost in USD; None when that is unknown."""
        return None

    def close(self) -> None:
        """Release connections, files and memory."""


@dataclass(kw_only=True)
class Role:
    """One job of a model, with its decoding from `roles.<name>` in the config; every call goes through the meter.

    temperature  None is not sent
    max_tokens   None: the model's own `max_tokens` holds, and without one the provider's
    seed         what this role's seeds are derived from; None takes the run's
    prompts      what it is asked with

    What follows is not sent where it is None, and refused before the run where the model does not take it:

    top_p             nucleus sampling, in (0, 1]
    stop              texts that end a reply
    reasoning_effort  minimal | low | medium | high, or the provider's own word
    thinking_tokens   the budget of a reply's thinking
    extra_body        whatever else the provider's request takes, as it is
    """

    name: str
    llm: ChatModel
    temperature: float | None
    max_tokens: int | None
    seed: int | None = None
    top_p: float | None = None
    stop: list[str] | None = None
    reasoning_effort: str | None = None
    thinking_tokens: int | None = None
    extra_body: dict[str, Any] | None = None
    meter: Meter = field(default_factory=Meter, repr=False)
    prompts: Prompts = PROJECT
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
        request = Request(
            messages=messages,
            role=self.name,
            sample=sample,
            seed=seed,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            schema=schema if self.llm.supports_schema else None,
            more=self.more,
        )
        facts = {"role": self.name, "task": task, "sample": sample, "requested": self.llm.name, "messages": messages}
        with self.meter.call(facts) as answered:
            reply = self.llm.chat(request)
            reply = replace(reply, text=storable(reply.text or ""), reasoning=storable(reply.reasoning or ""))
            answered(reply)
        self.sent = {"model": reply.model, **reply.sent}
        return reply

    @property
    def more(self) -> dict[str, Any]:
        """What is set of `MORE`."""
        return more_of(vars(self))

    def describe(self) -> dict[str, Any]:
        """For the manifest: what was asked for, and what the last call really sent."""
        return {
            "model": self.llm.name,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            **self.more,
            "sent": {name: value for name, value in self.sent.items() if name != "seed"},
        }


def more_of(role: Mapping[str, Any]) -> dict[str, Any]:
    """What a role's entry in the configuration sets of `MORE`."""
    return {name: value for name in MORE if (value := role.get(name)) is not None}
