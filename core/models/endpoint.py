"""One provider's model behind litellm: its address, its key, and how often and how long it may be asked."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.errors import InfraError, StopRun, TransientError, UserError
from core.models.addresses import Replicas, listed
from core.models.connections import http_client, load_litellm
from core.models.faults import explain
from core.models.limits import Limiter
from core.models.price import check_price, usage_of_refused
from core.models.retry import Retry
from core.types import Usage

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
