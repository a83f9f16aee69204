"""llm=openai|anthropic|gemini|vllm|ollama|remote: any provider through litellm, the one road to remote models."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.errors import AttemptOver, InfraError, StopRun, TransientError, UserError, check_choice
from core.models import direct
from core.models.base import Reply
from core.models.meter import check_price, expected, usage_of_refused, usage_of_response
from core.models.retry import Limiter, Retry, explain, within
from core.models.servers import Replicas, http_client, listed, load_litellm
from core.types import Message, Usage

# One provider's model behind litellm: its address, its key, and how often and how long it may be asked.

# The kind of client that litellm accepts for a provider; for all others it makes its own connections.
_OPENAI_CLIENT = ("openai", "dashscope")
_HTTP_HANDLER = ("hosted_vllm", "ollama_chat", "ollama", "anthropic", "gemini", "deepseek")
log = logging.getLogger("run.retries")


@dataclass(kw_only=True)
class Endpoint:
    """What LiteLLMModel and OpenAIEmbedder share; its fields are keys of their YAMLs. Thread-safe.

    model             litellm's name, provider first: "openai/gpt-4o-mini"
    api_key_env       the environment variable that holds the key (the key itself is never in a config); None: no key
    api_base          the server's address, for vllm, ollama and other OpenAI-compatible ones; a list: servers that
                      have the same model, of which each call takes one
    timeout_s         limit of one try in seconds, the whole answer included
    attempts          tries for one answer when errors are transient; 1 never retries
    retry_s           no try begins later than this many seconds after the first
    max_in_flight     calls at once; this and the next two are shared by all chat models of a provider; None: no limit
    requests_per_min  calls a minute
    tokens_per_min    prompt and reply tokens a minute
    price_per_mtok    {prompt, completion, cached} in USD for a million tokens; None takes litellm's table
    """

    model: str
    api_key_env: str | None = None
    api_base: str | list[str] | None = None
    timeout_s: float = 120.0
    attempts: int = 4
    retry_s: float = 180.0
    max_in_flight: int | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    price_per_mtok: dict[str, float] | None = None
    limiter: Limiter = field(init=False, repr=False)
    addresses: Replicas = field(init=False, repr=False)
    _clients: dict[str | None, Any] = field(default_factory=dict, init=False, repr=False)  # by address
    _http: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _reached: bool = field(default=False, init=False, repr=False)  # whether the server ever answered

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UserError(f"{self.model}: attempts={self.attempts}: give at least 1.")
        check_price(self.price_per_mtok)
        self.addresses = Replicas(urls=listed(self.api_base))
        self._retry = Retry(attempts=self.attempts, total_s=self.retry_s)
        self.limiter = Limiter(
            max_in_flight=self.max_in_flight,
            requests_per_min=self.requests_per_min,
            tokens_per_min=self.tokens_per_min,
        )

    @property
    def provider(self) -> str:
        """Models of one provider share their limits: litellm's name for it, with the server where one is given."""
        return " ".join((self.model.split("/")[0], *self.addresses.urls))

    def problem(self) -> str | None:
        """One sentence when the key is missing from the environment; None when calls can be made."""
        if self.api_key_env and not os.environ.get(self.api_key_env):
            return (
                f"{self.model} needs a key in the environment variable {self.api_key_env}: "
                f"export {self.api_key_env}=..., or name another variable with api_key_env=NAME."
            )
        return None

    def call(self, function: str, tokens: int, check: Callable[[Any], Any], **request: Any) -> tuple[Any, int, Usage]:
        """Call litellm.<function>(**request): (check(response), how often it was asked again, what refused ones took).

        tokens   about how many the call will use, for tokens_per_min
        check    reads the response, and raises TransientError for one that is worth asking for again

        Raises StopRun, InfraError, or after the last try TransientError. Their `usage` is that of the responses that
        `check` refused, which are paid for all the same.
        """

        passed: list[str] = []
        refused: list[Usage] = []

        def once() -> Any:
            with self.limiter.slot(tokens) as slot:
                response = self._once(function, request, passed)
                slot.used = getattr(getattr(response, "usage", None), "total_tokens", None) or tokens
            try:
                return check(response)
            except InfraError:
                refused.append(usage_of_refused(response, self.price_per_mtok))
                raise

        try:
            response, retries = self._retry(once, self.limiter.closing)
        except TransientError as error:
            if error.kind == "unreachable" and not self.addresses.ready():  # gone for all attempts: others would burn
                raise StopRun(f"{error} Is the server running?") from error
            error.retries += len(passed)
            error.usage = _sum(refused)
            raise
        except InfraError as error:
            error.usage = _sum(refused)
            raise
        return response, retries + len(passed), _sum(refused) or Usage()

    def _once(self, function: str, request: dict[str, Any], passed: list[str]) -> Any:
        """One try, at the first server that can be reached; those that cannot are added to `passed`."""
        while True:
            with self.addresses.one() as address:
                try:
                    response = self._send(function, address, request)
                except Exception as error:
                    explained = self._explained(error, address)
                    gone = getattr(explained, "kind", "") == "unreachable" and len(passed) < len(self.addresses.urls)
                    if not gone or not self.addresses.ready():
                        raise explained from error
                    log.warning("another server is asked: %s", explained)
                    passed.append(address)
                    continue
            self._reached = True
            return response

    def _send(self, function: str, address: str | None, request: dict[str, Any]) -> Any:
        """One try through litellm. The two layers of retries below ours are off: they would multiply with it."""
        return getattr(load_litellm(), function)(
            model=self.model,
            api_key=self._key(),
            api_base=address,
            timeout=self.timeout_s,
            num_retries=0,
            max_retries=0,
            **({"client": client} if (client := self._own_client(address)) else {}),
            **request,
        )

    def _explained(self, error: Exception, address: str | None) -> Exception:
        explained = explain(error, self.model, address, self.api_key_env)
        if isinstance(explained, TransientError):
            others = self.addresses.rest(address, explained.retry_after)
            if explained.kind != "unreachable":
                self._reached = True
            elif not self._reached and not others:  # nobody was ever there: more tries would only make a user wait
                return StopRun(f"{explained} Is the server running?")
            if others:  # one of them is asked next, and has not asked for a pause
                explained.retry_after = None
            elif explained.retry_after:
                self.limiter.pause(explained.retry_after)
        return explained

    def _own_client(self, address: str | None) -> Any:
        """The client that litellm is to use: closed with this object, and with a time limit on the whole answer."""
        provider = self.model.split("/")[0]
        if provider == "dashscope" and address is None:
            return None  # the client would ask OpenAI
        if provider not in (*_OPENAI_CLIENT, *_HTTP_HANDLER):
            return None
        if provider in _OPENAI_CLIENT:
            return self._openai_client(address)
        with self._lock:
            if address not in self._clients:
                from litellm.llms.custom_httpx.http_handler import HTTPHandler

                self._http = self._http or http_client()
                self._clients[address] = HTTPHandler(client=self._http)
            return self._clients[address]

    def _openai_client(self, address: str | None) -> Any:
        with self._lock:
            if address not in self._clients:
                import openai

                self._http = self._http or http_client()
                how = {"api_key": self._key() or "none", "base_url": address, "max_retries": 0}
                self._clients[address] = openai.OpenAI(**how, http_client=self._http)
            return self._clients[address]

    def _key(self) -> str | None:
        return os.environ.get(self.api_key_env) if self.api_key_env else None

    def close(self) -> None:
        """End all waiting and close the connections; a call in flight then fails."""
        self.limiter.closing.set()
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None
                self._clients.clear()


def _sum(refused: list[Usage]) -> Usage | None:
    """None where nothing was paid."""
    used = sum(refused, Usage())
    return used if used.tokens else None


_TOKENS_OF_A_REPLY = 1000  # for tokens_per_min, until the real number is known


@dataclass(kw_only=True)
class LiteLLMModel(Endpoint):
    """One remote chat model. Beside the keys of Endpoint:

    client        litellm | openai: the openai SDK without litellm, for a server of one's own (hosted_vllm/NAME)
    max_tokens    limit of a reply when the role sets none; None leaves it to the provider
    json_schema   hold judge and distiller to a JSON schema; for models and servers that support it
    cache         off | read_write | replay, see core/models/cache.py; kept in cache_path
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
