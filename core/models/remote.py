"""llm=openai|anthropic|gemini|vllm|ollama|remote: any provider through litellm, the one road to remote models."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from core.checks import check_choice
from core.errors import AttemptOver, TransientError, UserError
from core.models import direct
from core.models.base import Reply
from core.models.connections import load_litellm
from core.models.endpoint import Endpoint
from core.models.faults import within
from core.models.price import expected, usage_of_response
from core.types import Message

_TOKENS_OF_A_REPLY = 1000  # for tokens_per_min, until the real number is known


@dataclass(kw_only=True)
class LiteLLMModel(Endpoint):
    """One remote chat model. Beside the keys of Endpoint:

    client        litellm | openai: the openai SDK without litellm, for a server of one's own (hosted_vllm/NAME)
    max_tokens    limit of a reply when the role sets none; None leaves it to the provider
    json_schema   hold judge and distiller to a JSON schema; for models and servers that support it
    cache         off | read_write | replay, see core/models/reply_cache.py; kept in cache_path
    fallbacks     the models to ask where this one fails for good, see core/models/fallback.py; None: there are none
    """

    client: str = "litellm"
    max_tokens: int | None = None
    json_schema: bool = False
    cache: str = "off"
    cache_path: str = "outputs/.cache/replies.sqlite"
    fallbacks: list[Any] | None = None
    name: str = field(init=False)
    supports_schema: bool = field(init=False)
    _known: frozenset[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "llm", "client", ("litellm", "openai"))
        if self.client == "openai" and not (self.model.startswith(f"{direct.PROVIDER}/") and self.addresses.urls):
            raise UserError(f"llm.client=openai: {self.model} is no model of a server of your own; take llm=vllm.")
        self.name, self.supports_schema = self.model, self.json_schema

    def chat(
        self,
        messages: list[Message],
        *,
        role,
        sample=0,
        seed=None,
        temperature=0.0,
        max_tokens=None,
        schema=None,
        more=None,
    ) -> Reply:
        wanted: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens or self.max_tokens}
        if schema:
            wanted["response_format"] = {"type": "json_schema", "json_schema": {"name": role, "schema": schema}}
        sent = self._supported({k: v for k, v in wanted.items() if v is not None})
        sent |= _as_sent(more or {})
        asked = sum(len(message["content"]) for message in messages) // 4 + (
            sent.get("max_tokens") or _TOKENS_OF_A_REPLY
        )
        response, retries, refused = self.call("completion", asked, self._checked, messages=messages, **sent)
        choice = response.choices[0]
        declined = not choice.message.content and _refusal(choice.message)
        if "response_format" in sent:
            sent["response_format"] = "json_schema"
        return Reply(
            text=_text(choice.message),
            usage=usage_of_response(response, self.price_per_mtok) + refused,
            finish_reason="refusal" if declined else choice.finish_reason or "",
            model=response.model or self.model,
            sent=sent,
            provider=str(getattr(response, "provider", None) or ""),
            system_fingerprint=getattr(response, "system_fingerprint", None) or "",
            reasoning=getattr(choice.message, "reasoning_content", None) or "",
            retries=retries,
        )

    def identity(self) -> dict[str, Any]:
        first = next(iter(self.addresses.urls), None)  # its copies answer as it would
        return {"model": self.model, "api_base": first, "max_tokens": self.max_tokens}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return expected(self.model, self.price_per_mtok, prompt_tokens, completion_tokens)

    def refuses(self, more: dict[str, Any]) -> str | None:
        """litellm knows what each of its models takes; `extra_body` is sent unread."""
        wanted = _as_sent(more)
        if unknown := set(wanted) - set(self._supported(wanted)) - {"extra_body"}:
            return (
                f"{self.model} takes no {', '.join(sorted(unknown))}: what litellm does not know, extra_body can hold."
            )
        return None

    def _checked(self, response: Any) -> Any:
        if not getattr(response, "choices", None):
            raise TransientError(f"{self.model}: the answer holds no choice", "bad_reply")
        choice = response.choices[0]
        if failure := within(choice, self.model, self.api_key_env):
            raise failure
        if choice.finish_reason == "content_filter" and not _text(choice.message).strip():
            raise AttemptOver(f"{self.model}: the provider's filter left nothing of the answer", "content_filter")
        return response

    def _send(self, function: str, address: str | None, request: dict[str, Any]) -> Any:
        if self.client == "litellm":
            return super()._send(function, address, request)
        return direct.complete(self._openai_client(address), self.model, self.timeout_s, request)

    def _supported(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if self.client == "openai":
            self._known = direct.TAKEN
        if self._known is None:
            self._known = frozenset(load_litellm().get_supported_openai_params(model=self.model) or ())
        return {k: v for k, v in wanted.items() if k in self._known}


def _as_sent(more: dict[str, Any]) -> dict[str, Any]:
    """A role's further decoding as arguments of litellm."""
    tokens = more.get("thinking_tokens")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens else {}
    return {name: value for name, value in more.items() if name != "thinking_tokens"} | thinking


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


def share_limits(models: list[Any]) -> None:
    """Give all models of one provider the same limiter, with the strictest of their numbers."""
    by_provider: dict[str, list[Endpoint]] = {}
    for model in models:
        remote = getattr(model, "inner", model)  # a cache is no endpoint, what it wraps may be one
        if hasattr(remote, "limiter"):
            by_provider.setdefault(remote.provider, []).append(remote)
    for endpoints in by_provider.values():
        shared = endpoints[0].limiter.strictest(e.limiter for e in endpoints[1:])
        for endpoint in endpoints:
            endpoint.limiter = shared
