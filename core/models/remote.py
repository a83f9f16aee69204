"""llm=openai|anthropic|gemini|vllm|ollama|remote: any provider through litellm, the one road to remote models."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from core.errors import InfraError, TransientError, UserError
from core.models.base import Reply
from core.models.endpoint import Endpoint, load_litellm
from core.models.faults import within
from core.models.limits import Limiter
from core.models.price import check_price, expected, usage_of
from core.models.retry import Retry
from core.types import Message

_TOKENS_OF_A_REPLY = 1000  # for tokens_per_min, until the real number is known


@dataclass(kw_only=True)
class LiteLLMModel:
    """One remote model.

    model             litellm's name, provider first: "openai/gpt-4o-mini"
    api_key_env       the environment variable that holds the key (the key itself is never in a config); None: no key
    api_base          the server, for vllm, ollama and other OpenAI-compatible ones
    timeout_s         limit of one try, in seconds
    attempts          tries for one answer when errors are transient; 1 never retries
    retry_s           no try begins later than this many seconds after the first
    max_in_flight     calls at once; this and the next two are shared by all models of the provider; None: no limit
    requests_per_min  calls a minute
    tokens_per_min    prompt and reply tokens a minute
    max_tokens        limit of a reply when the role sets none; None leaves it to the provider
    json_schema       hold judge and distiller to a JSON schema; for models and servers that support it
    price_per_mtok    {prompt, completion, cached} in USD for a million tokens; None takes litellm's table
    cache             off | read_write | replay, see core/models/reply_cache.py; kept in cache_path
    """

    model: str
    api_key_env: str | None = None
    api_base: str | None = None
    timeout_s: float = 120.0
    attempts: int = 4
    retry_s: float = 180.0
    max_in_flight: int | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    max_tokens: int | None = None
    json_schema: bool = False
    price_per_mtok: dict[str, float] | None = None
    cache: str = "off"
    cache_path: str = "outputs/.cache/replies.sqlite"
    name: str = field(init=False)
    supports_schema: bool = field(init=False)
    endpoint: Endpoint = field(init=False)
    _known: frozenset[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UserError(f"llm.attempts={self.attempts}: give at least 1.")
        check_price(self.price_per_mtok)
        self.name, self.supports_schema = self.model, self.json_schema
        self.endpoint = Endpoint(
            model=self.model,
            api_key_env=self.api_key_env,
            api_base=self.api_base,
            timeout_s=self.timeout_s,
            retry=Retry(attempts=self.attempts, total_s=self.retry_s),
            limiter=Limiter(
                max_in_flight=self.max_in_flight,
                requests_per_min=self.requests_per_min,
                tokens_per_min=self.tokens_per_min,
            ),
        )

    def chat(
        self, messages: list[Message], *, role, sample=0, seed=None, temperature=0.0, max_tokens=None, schema=None
    ) -> Reply:
        wanted: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens or self.max_tokens}
        if schema:
            wanted["response_format"] = {"type": "json_schema", "json_schema": {"name": role, "schema": schema}}
        sent = self._supported({k: v for k, v in wanted.items() if v is not None})
        asked = sum(len(message["content"]) for message in messages) // 4 + (
            sent.get("max_tokens") or _TOKENS_OF_A_REPLY
        )
        response, retries = self.endpoint.call("completion", asked, self._checked, messages=messages, **sent)
        choice = response.choices[0]
        if "response_format" in sent:
            sent["response_format"] = "json_schema"
        return Reply(
            text=_text(choice.message),
            usage=usage_of(response, self.price_per_mtok),
            finish_reason=_finish_reason(choice),
            model=response.model or self.model,
            sent=sent,
            reasoning=getattr(choice.message, "reasoning_content", None) or "",
            retries=retries,
        )

    def identity(self) -> dict[str, Any]:
        return {"model": self.model, "api_base": self.api_base, "max_tokens": self.max_tokens}

    def problem(self) -> str | None:
        return self.endpoint.problem()

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return expected(self.model, self.price_per_mtok, prompt_tokens, completion_tokens)

    def close(self) -> None:
        self.endpoint.close()

    def _checked(self, response: Any) -> Any:
        if not getattr(response, "choices", None):
            raise TransientError(f"{self.model}: the answer holds no choice", "bad_reply")
        choice = response.choices[0]
        if failure := within(choice, self.model):
            raise failure
        if choice.finish_reason == "content_filter" and not _text(choice.message).strip():
            raise InfraError(f"{self.model}: the provider's filter left nothing of the answer", "content_filter")
        return response

    def _supported(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if self._known is None:
            self._known = frozenset(load_litellm().get_supported_openai_params(model=self.model) or ())
        return {k: v for k, v in wanted.items() if k in self._known}


def _text(message: Any) -> str:
    """What the model said. Nobody offered it tools, so an answer in the shape of a tool call is text like any other."""
    if message.content:
        return message.content
    calls = [call.function for call in getattr(message, "tool_calls", None) or []]
    if calls:
        return "\n".join(json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in calls)
    return _refusal(message)


def _refusal(message: Any) -> str:
    return (getattr(message, "provider_specific_fields", None) or {}).get("refusal") or ""


def _finish_reason(choice: Any) -> str:
    refused = not choice.message.content and _refusal(choice.message)
    return "refusal" if refused else choice.finish_reason or ""


def share_limits(models: list[Any]) -> None:
    """Give all models of one provider the same limiter, with the strictest of their numbers."""
    by_provider: dict[str, list[Endpoint]] = {}
    for model in models:
        endpoint = getattr(getattr(model, "inner", model), "endpoint", None)
        if endpoint is not None:
            by_provider.setdefault(endpoint.provider, []).append(endpoint)
    for endpoints in by_provider.values():
        shared = endpoints[0].limiter.strictest(e.limiter for e in endpoints[1:])
        for endpoint in endpoints:
            endpoint.limiter = shared
