"""One provider's model behind litellm: the key, the HTTP connections, the retries and the limits of its calls."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from core.errors import StopRun, TransientError
from core.models.faults import explain
from core.models.limits import Limiter
from core.models.retry import Retry

# Which client litellm accepts for a provider; it uses connections of its own for all others.
_OPENAI_CLIENT = ("openai",)
_HTTP_HANDLER = ("hosted_vllm", "ollama_chat", "ollama", "anthropic", "gemini", "deepseek")


@dataclass(kw_only=True)
class Endpoint:
    """Calls litellm's functions for one model. Thread-safe; each call costs no thread beside the caller's.

    timeout_s is the limit of a whole try, slow answers included; api_key_env names the variable with the key.
    """

    model: str
    api_key_env: str | None
    api_base: str | None
    timeout_s: float
    retry: Retry
    limiter: Limiter
    _client: Any = field(default=None, init=False, repr=False)
    _http: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _reached: bool = field(default=False, init=False)

    @property
    def provider(self) -> str:
        """What limits are shared by: litellm's provider, and the server where one is named."""
        return f"{self.model.split('/')[0]} {self.api_base or ''}".strip()

    def problem(self) -> str | None:
        """A missing key, in one sentence."""
        if self.api_key_env and not os.environ.get(self.api_key_env):
            return (
                f"{self.model} needs a key in the environment variable {self.api_key_env}: "
                f"export {self.api_key_env}=..., or name another variable with api_key_env=NAME."
            )
        return None

    def call(self, function: str, tokens: int, check: Any, **request: Any) -> tuple[Any, int]:
        """(check(response), repetitions) of litellm.<function>(**request). `tokens` is what it will use, about.

        check raises for an answer that is none; after a TransientError it is asked for again.
        Raises StopRun, InfraError, or after the last try TransientError.
        """

        def once() -> Any:
            with self.limiter.slot(tokens) as slot:
                response = self._once(function, request)
                slot.used = getattr(getattr(response, "usage", None), "total_tokens", None) or tokens
            return check(response)

        try:
            return self.retry(once, self.limiter.closing)
        except TransientError as error:
            if error.kind == "unreachable":  # gone for all attempts: the other tasks would only burn
                raise StopRun(f"{error} Is the server running?") from error
            raise

    def _once(self, function: str, request: dict[str, Any]) -> Any:
        litellm = load_litellm()
        try:
            # The two layers of retries below ours are off: they would multiply with it.
            response = getattr(litellm, function)(
                model=self.model,
                api_key=os.environ.get(self.api_key_env) if self.api_key_env else None,
                api_base=self.api_base,
                timeout=self.timeout_s,
                num_retries=0,
                max_retries=0,
                **({"client": client} if (client := self._own_client()) else {}),
                **request,
            )
        except Exception as error:
            raise self._explained(error) from error
        self._reached = True
        return response

    def _explained(self, error: Exception) -> Exception:
        explained = explain(error, self.model, self.api_base)
        if isinstance(explained, TransientError):
            if explained.kind != "unreachable":
                self._reached = True
            elif not self._reached:  # nobody was ever there: more tries would only make a user wait
                return StopRun(f"{explained} Is the server running?")
            if explained.retry_after:
                self.limiter.pause(explained.retry_after)
        return explained

    def _own_client(self) -> Any:
        """Connections of this object alone, closed with it, whose answers cannot drip for ever."""
        provider = self.model.split("/")[0]
        with self._lock:
            if self._client is None and provider in (*_OPENAI_CLIENT, *_HTTP_HANDLER):
                self._http = _http_client()
                self._client = self._openai() if provider in _OPENAI_CLIENT else _handler(self._http)
            return self._client

    def _openai(self) -> Any:
        import openai

        key = os.environ.get(self.api_key_env) if self.api_key_env else None
        return openai.OpenAI(api_key=key or "none", base_url=self.api_base, max_retries=0, http_client=self._http)

    def close(self) -> None:
        """End all waiting and close the connections; a call in flight then fails."""
        self.limiter.closing.set()
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = self._client = None


def _handler(http: Any) -> Any:
    from litellm.llms.custom_httpx.http_handler import HTTPHandler

    return HTTPHandler(client=http)


def _http_client() -> Any:
    """An httpx client for many threads. A read timeout alone would let a server send one byte a second for ever."""
    import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any, request: Any) -> None:
            self._stream, self._request = stream, request

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                if time.monotonic() > self._request.extensions.get("deadline", float("inf")):
                    raise httpx.ReadTimeout("the answer took longer than the limit", request=self._request)
                yield chunk

        def close(self) -> None:
            self._stream.close()

    def begin(request: Any) -> None:
        if limit := request.extensions.get("timeout", {}).get("read"):
            request.extensions["deadline"] = time.monotonic() + limit

    def bound(response: Any) -> None:
        response.stream = Bounded(response.stream, response.request)

    return httpx.Client(
        event_hooks={"request": [begin], "response": [bound]},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        follow_redirects=True,
    )


def load_litellm() -> Any:
    """litellm, made to keep off the network and the terminal while it loads. Takes seconds the first time."""
    first = "litellm" not in sys.modules
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LOGGING_EXECUTOR_MAX_THREADS", "1")  # of its own, for callbacks that we do not use
    import litellm

    litellm.suppress_debug_info = True
    if first:
        gc.freeze()  # its classes never go; looking through them all holds every call in flight for a sixth of a second
    return litellm
