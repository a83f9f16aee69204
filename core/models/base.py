"""ChatModel: the interface of a provider (Request -> Reply). Role: a model plus sampling parameters for one purpose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from core.errors import check_choice, check_returned
from core.models.limits import Limiter
from core.models.meter import Meter
from core.models.reply_text import without_surrogates
from core.models.system_role import without_system
from core.redact import redactor
from core.types import Message, Usage
from prompts.registry import PROJECT, Prompts

# Sampling parameters besides temperature, max_tokens and seed: fields of Role, sent only if they are set.
EXTRA_SAMPLING = ("top_p", "stop", "reasoning_effort", "thinking_tokens", "extra_body")
LEAST_LEARNING = 1024  # tokens that a reply of judge, distiller, selector or grader may have, however few the agent's
CACHE_PATH = "outputs/.cache/replies.sqlite"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of a model.

    role     agent | judge | extractor | selector
    sample   sample index, so that k identical requests are cached apart
    schema   JSON schema of the reply; set only if the model `supports_schema`
    more     the role's values of `EXTRA_SAMPLING`; always {} for a model that does not override `unsupported`
    proven   whether the model has answered a call of this run, in an earlier start of it included
    """

    messages: list[Message]
    role: str
    sample: int = 0
    seed: int | None = None
    temperature: float | None = 0.0
    max_tokens: int | None = None
    schema: dict[str, Any] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    proven: bool = False


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's reply to one Request."""

    text: str
    usage: Usage
    finish_reason: str  # stop | length | tool_calls | content_filter | refusal, or the provider's own word
    model: str  # as the provider returned it
    sent: dict[str, Any] = field(default_factory=dict)  # the sampling parameters that were really sent
    reasoning: str = ""  # the model's reasoning, if the provider returns it separately
    provider: str = ""  # who answered behind a router, if the response says so
    system_fingerprint: str = ""  # the provider's fingerprint of its system, likewise
    fallback: str = ""  # the model of `llm.fallbacks` that answered; "": the first model did
    failed: list[dict[str, str]] = field(default_factory=list)  # {model, error} of the models that failed before it
    retries: int = 0
    prompt_cut: int = 0  # least tokens of the prompt, if the server read far fewer (core/models/cut_prompts.py)
    usage_corrected: bool = False  # the reported token counts contradicted each other (core/models/token_counts.py)
    from_cache: bool = False  # served from the cache (the models in `failed` may still have been called)
    paid: Usage | None = None  # with from_cache: actual cost of those failed calls, a part of `usage`; None: nothing


class ChatModel(Protocol):
    """A provider's chat model. Thread-safe.

    A subclass must define chat, identity, name, supports_schema; the rest is optional.

    name              provider and model, for records
    supports_schema   whether a request's `schema` constrains the output
    draws             True for a stand-in that picks from listed actions (llm=free): the agent's calls then end with a
                      message that lists the admissible ones
    cache             off | read_write | replay, see core/models/cache.py
    cache_path        the cache's file
    fallbacks         the models to call after this one has failed for good, see core/models/fallback.py
    provider          models with the same provider share a limiter (core/models/limits.py)
    limiter           limits its calls; None: no limit
    """

    name: str
    supports_schema: bool
    tokens_per_s: float | None = None  # roughly, of its replies; None: not known
    draws: ClassVar[bool] = False
    cache: str = "off"
    cache_path: str = CACHE_PATH
    fallbacks: list[ChatModel] | None = None
    provider: str = ""
    limiter: Limiter | None = None

    @abstractmethod
    def chat(self, request: Request) -> Reply:
        """One call. Raises StopRun when no call can succeed, else InfraError for this call."""
        ...

    def unsupported(self, more: dict[str, Any]) -> str | None:
        """One sentence that names the parameters in `more` (`Request.more`) that the model does not take; None: none.

        Called before the run.
        """
        return f"{self.name} takes no {', '.join(more)}." if more else None

    def identity(self) -> dict[str, Any]:
        """What distinguishes models of the same name (server, file, own limits); part of the response cache's key."""
        ...

    def problem(self) -> str | None:
        """Why no call can succeed, in one sentence, if that is known without a call (e.g. a missing key); else None."""
        return None

    def prepare(self) -> None:
        """Load what its first call would load: called in the background while a run begins."""

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """The cost of these tokens in USD; None if unknown."""
        return None

    def close(self) -> None:
        """Release connections, files and memory."""


def share_limits(models: Iterable[ChatModel]) -> None:
    """Give all models of one provider the same limiter, with the strictest of their numbers."""
    by_provider: dict[str, list[ChatModel]] = {}
    for model in models:
        if model.limiter is not None:
            by_provider.setdefault(model.provider, []).append(model)
    for together in by_provider.values():
        first, *others = (model.limiter for model in together if model.limiter is not None)
        shared = first.strictest(others)
        for model in together:
            model.limiter = shared


@dataclass(kw_only=True)
class ConfiguredModel(ChatModel):
    """A model with the keys that each model's YAML has: `cache`, `cache_path` and `fallbacks`, see ChatModel."""

    cache: str = "off"
    cache_path: str = CACHE_PATH
    fallbacks: list[Any] | None = None


@dataclass(kw_only=True)
class Role:
    """A model plus sampling parameters for one purpose (`roles.<name>` in the config); calls go through the meter.

    temperature  None: not sent
    max_tokens   None: the model's own `max_tokens`, else the provider's
    seed         the base of this role's seeds; None: the run's
    inject       system | user: no system message is sent, its text goes in front of the first user message
    prompts      the templates of its prompts
    sent         model and parameters of the last call, for the manifest

    The following are not sent if None; a value that the model does not take is an error before the run:

    top_p             nucleus sampling, in (0, 1]
    stop              texts that end a reply
    reasoning_effort  minimal | low | medium | high, or the provider's own word
    thinking_tokens   token budget of a reply's reasoning
    extra_body        further fields of the provider's request, sent unchanged
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
    inject: str = "system"
    meter: Meter = field(default_factory=Meter, repr=False)
    prompts: Prompts = PROJECT
    sent: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_choice(self, "agent", "inject", ("system", "user"))

    def chat(
        self,
        messages: list[Message],
        *,
        task: str = "",
        sample: int = 0,
        seed: int | None = None,
        schema: dict | None = None,
        temperature: float | None = None,
    ) -> Reply:
        """One call with this role's sampling parameters, logged and charged to `task`.

        task          the account of an episode (`account_of`)
        schema        passed on only if the model `supports_schema`
        temperature   of this call; None: the role's

        Raises OverBudget, without calling, if a budget is used up; else the errors of `ChatModel.chat`.
        """
        moved = self.inject == "user" and not self.llm.draws and without_system(messages) != messages
        request = Request(
            messages=without_system(messages) if moved else messages,
            role=self.name,
            sample=sample,
            seed=seed,
            temperature=self.temperature if temperature is None else temperature,
            max_tokens=self.max_tokens,
            schema=schema if self.llm.supports_schema else None,
            more=self.more,
            proven=self.meter.has_answered(self.llm.name),
        )
        facts = {"role": self.name, "task": task, "sample": sample, "requested": self.llm.name, "messages": messages}
        with self.meter.call(facts) as answered:
            reply = self.llm.chat(request)
            check_returned(isinstance(reply, Reply), f"{type(self.llm).__name__}.chat", "a Reply", reply)
            clean = redactor().values  # a server may repeat what it was sent, and lessons are made of its replies
            said = {name: clean(without_surrogates(getattr(reply, name) or "")) for name in ("text", "reasoning")}
            reply = replace(reply, **said)
            reply = replace(reply, sent=reply.sent | {"inject": "user"}) if moved else reply
            answered(reply)
        self.sent = {"model": reply.model, **reply.sent}
        return reply

    @property
    def more(self) -> dict[str, Any]:
        """The values of `EXTRA_SAMPLING` that are set."""
        return extra_sampling_of(vars(self))

    def describe(self) -> dict[str, Any]:
        """For the manifest: the requested parameters, and those that the last call really sent."""
        return {
            "model": self.llm.name,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            **self.more,
            "sent": {name: value for name, value in self.sent.items() if name != "seed"},
        }


def reply_limit(request: Request, own: int | None) -> int | None:
    """The most tokens of a reply: the role's limit, else the model's `own`; None: the provider's.

    `own` is chosen for the agent's answers. The JSON of the other roles, useless where it is cut, gets LEAST_LEARNING.
    """
    if request.max_tokens or own is None or request.role == "agent":
        return request.max_tokens or own
    return max(own, LEAST_LEARNING)


def extra_sampling_of(role: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `EXTRA_SAMPLING` that are set in a role, or in its entry in the configuration."""
    return {name: value for name in EXTRA_SAMPLING if (value := role.get(name)) is not None}
