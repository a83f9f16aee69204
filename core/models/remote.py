"""llm=openai|anthropic|gemini|vllm|ollama|remote: a chat model of any provider, through litellm."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core.errors import AttemptOver, TransientError, UserError, check_choice
from core.models import direct
from core.models.base import CACHE_PATH, ChatModel, Reply, Request
from core.models.endpoint import Endpoint, expected_cost, load_litellm, usage_of_response
from core.models.message import SETTING, misplaced_text
from core.models.retry import error_within
from core.reply_marks import answer_of

notices = logging.getLogger("run.notices")  # each text is shown once (core/run/display.py)
_TOKENS_OF_A_REPLY = 1000  # estimate for tokens_per_min, until the real number is known


@dataclass(kw_only=True)
class LiteLLMModel(Endpoint, ChatModel):
    """One remote chat model. Besides the keys of Endpoint (core/models/endpoint.py):

    client        litellm | openai: the openai SDK without litellm, for the user's own server (hosted_vllm/NAME)
    max_tokens    limit of a reply if the role sets none; None: the provider's
    json_schema   constrain the replies of judge and distiller by a JSON schema; only if the server supports it
    cache         off | read_write | replay, see core/models/cache.py
    cache_path    the cache's file
    fallbacks     the models to call after this one has failed for good, see core/models/fallback.py; None: none
    """

    client: str = "litellm"
    max_tokens: int | None = None
    json_schema: bool = False
    cache: str = "off"
    cache_path: str = CACHE_PATH
    fallbacks: list[Any] | None = None
    name: str = field(init=False)
    supports_schema: bool = field(init=False)
    _params: frozenset[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "llm", "client", ("litellm", "openai"))
        if self.client == "openai" and not (self.model.startswith(f"{direct.PROVIDER}/") and self.addresses.urls):
            raise UserError(f"llm.client=openai: {self.model} is no model of a server of your own; take llm=vllm.")
        self.name, self.supports_schema = self.model, self.json_schema

    def chat(self, request: Request) -> Reply:
        wanted = {
            "temperature": request.temperature,
            "seed": request.seed,
            "max_tokens": request.max_tokens or self.max_tokens,
        }
        if request.schema:
            json_schema = {"name": request.role, "schema": request.schema}
            wanted["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        sent = self._supported({name: value for name, value in wanted.items() if value is not None})
        sent |= _as_sent(request.more)
        messages = request.messages
        tokens = sum(len(message["content"]) for message in messages) // 4
        tokens += sent.get("max_tokens") or _TOKENS_OF_A_REPLY
        check = partial(self._checked, schema=request.schema)
        response, retries, rejected = self.call("completion", tokens, check, messages=messages, **sent)
        choice = response.choices[0]
        declined = not choice.message.content and _refusal(choice.message)
        if "response_format" in sent:
            sent["response_format"] = "json_schema"
        return Reply(
            text=_text(choice.message),
            usage=usage_of_response(response, self.price_per_mtok) + rejected,
            finish_reason="refusal" if declined else choice.finish_reason or "",
            model=response.model or self.model,
            sent=sent,
            provider=str(getattr(response, "provider", None) or ""),
            system_fingerprint=getattr(response, "system_fingerprint", None) or "",
            reasoning=getattr(choice.message, "reasoning_content", None) or "",
            retries=retries,
        )

    def identity(self) -> dict[str, Any]:
        first = next(iter(self.addresses.urls), None)  # all servers have the same model, so the first identifies it
        return {"model": self.model, "api_base": first, "max_tokens": self.max_tokens}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return expected_cost(self.model, self.price_per_mtok, prompt_tokens, completion_tokens)

    def unsupported(self, more: dict[str, Any]) -> str | None:
        """As in ChatModel, by litellm's list of supported parameters; `extra_body` is not checked."""
        wanted = _as_sent(more)
        if unknown := set(wanted) - set(self._supported(wanted)) - {"extra_body"}:
            return (
                f"{self.model} takes no {', '.join(sorted(unknown))}: what litellm does not know, extra_body can hold."
            )
        return None

    def _checked(self, response: Any, schema: dict[str, Any] | None = None) -> Any:
        """The response, its text in the right field. Raises the error that it reports; TransientError without a choice.

        schema   as in `Request`
        """
        if not getattr(response, "choices", None):
            raise TransientError(f"{self.model}: the answer holds no choice", "bad_reply")
        choice = response.choices[0]
        if failure := error_within(choice, self.model, self.api_key_env):
            raise failure
        if choice.finish_reason == "content_filter" and not _text(choice.message).strip():
            raise AttemptOver(f"{self.model}: the provider's filter left nothing of the answer", "content_filter")
        if choice.finish_reason == "stop":
            self._put_right(choice.message, schema)
        return response

    def _put_right(self, message: Any, schema: dict[str, Any] | None) -> None:
        """Move a reply that stands in the field for reasoning, and say so; see `misplaced_text`."""
        reasoning = getattr(message, "reasoning_content", None) or ""
        if reasoning.strip() and not answer_of(_text(message)).strip():
            notices.warning("%s: %s.", self.model, SETTING)
            message.content, message.reasoning_content = misplaced_text(reasoning, schema)

    def _send(self, function: str, address: str | None, request: dict[str, Any]) -> Any:
        if self.client == "litellm":
            return super()._send(function, address, request)
        return direct.complete(self._openai_client(address), self.model, self.timeout_s, request)

    def _supported(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """The parameters that the model supports; the others are not sent."""
        if self.client == "openai":
            self._params = direct.TAKEN
        if self._params is None:
            self._params = frozenset(load_litellm().get_supported_openai_params(model=self.model) or ())
        return {k: v for k, v in wanted.items() if k in self._params}


def _as_sent(more: dict[str, Any]) -> dict[str, Any]:
    """A role's `more` as arguments of litellm."""
    tokens = more.get("thinking_tokens")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens else {}
    return {name: value for name, value in more.items() if name != "thinking_tokens"} | thinking


def _text(message: Any) -> str:
    """The reply's text. A reply in the form of a tool call is returned as JSON text, because no tools were offered."""
    if message.content:
        return message.content
    calls = [call.function for call in getattr(message, "tool_calls", None) or []]
    if calls:
        return "\n".join(json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in calls)
    return _refusal(message)


def _refusal(message: Any) -> str:
    return (getattr(message, "provider_specific_fields", None) or {}).get("refusal") or ""
