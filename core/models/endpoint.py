"""A connection to a provider's model: client, address, key, limits, retries, and the cost of a call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar

from core.errors import AttemptOver, InfraError, StopRun, TransientError, UserError
from core.models import direct
from core.models.faults import is_page
from core.models.limits import Limiter
from core.models.litellm_library import load_litellm, without_litellm
from core.models.network import Clients, Trail
from core.models.prices import check_price, usage_of_response
from core.models.retry import FailedCall, Retry, explain, why_tried_again
from core.models.servers import check_address, key_in, window_at
from core.models.token_counts import Counts, counts_of_response
from core.models.waits import duration
from core.types import Usage

# Providers by the kind of client that litellm accepts for them; for all others it makes its own connections.
_OPENAI_CLIENT = ("openai", "dashscope")
_HTTP_HANDLER = (
    "hosted_vllm ollama_chat ollama anthropic gemini deepseek openrouter mistral xai together_ai minimax"
).split()
_MOST_BLOCKED = 5  # firewall's pages, before the first reply, after which the run stops
log = logging.getLogger("run.retries")
notices = logging.getLogger("run.notices")  # what the user must know, shown on the screen


@dataclass(kw_only=True)
class Endpoint:
    """The common base of LiteLLMModel and OpenAIEmbedder; its fields are keys of their YAMLs. Thread-safe.

    model             litellm's name, provider first: "openai/gpt-4o-mini"
    client            openai | litellm: OpenAI's API over HTTP itself (core/models/direct.py), or litellm; None: openai
                      if that provider has this API, else litellm. Afterwards the one in use
    api_key_env       the environment variable that holds the key (the key itself is never in a config); None: no key
    api_base          the address of a vllm, ollama or other OpenAI-compatible server; None: the provider's own
    timeout_s         time limit of one try in seconds, up to the end of the response
    attempts          maximum tries for one reply if errors are transient; 1: no retries
    retry_s           no try begins later than this many seconds after the first
    max_in_flight     concurrent calls; None: no limit. All chat models of a provider share this and the next two limits
    requests_per_min  calls per minute; None: no limit
    tokens_per_min    prompt and reply tokens per minute; None: no limit
    price_per_mtok    {prompt, completion, cached} in USD per million tokens; None: litellm's table
    """

    where: ClassVar[str] = "llm"  # its place in the configuration, for messages
    model: str
    client: str | None = None
    api_key_env: str | None = None
    api_base: str | None = None
    timeout_s: float = 120.0
    attempts: int = 4
    retry_s: float = 180.0
    max_in_flight: int | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    price_per_mtok: dict[str, float] | None = None
    limiter: Limiter = field(init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)  # litellm's, around one of `_clients`
    _clients: Clients = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _reached: bool = field(default=False, init=False, repr=False)  # whether the server ever answered
    _worked: bool = field(default=False, init=False, repr=False)  # whether it ever answered with a reply
    _blocked: int = field(default=0, init=False, repr=False)  # firewall's pages that came before
    _listed: int | None = field(default=None, init=False, repr=False)  # its context window; 0: unknown; None: not asked
    _trail: Trail = field(default_factory=Trail, init=False, repr=False)
    _noticed: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UserError(f"{self.model}: attempts={self.attempts}: give at least 1.")
        check_price(self.price_per_mtok)
        if self.api_base is not None:
            check_address(self.where, self.api_base)
        self.client = client_of(self.where, self.model, self.client, self.api_base)
        self._clients = Clients(self.api_base, self._trail)
        self._retry = Retry(attempts=self.attempts, total_s=self.retry_s)
        self.limiter = Limiter(
            max_in_flight=self.max_in_flight, requests_per_min=self.requests_per_min, tokens_per_min=self.tokens_per_min
        )

    @property
    def provider(self) -> str:
        """litellm's name of the provider, plus api_base if given. Models with the same value share their limits."""
        return " ".join((self.model.split("/")[0], *([self.api_base] if self.api_base else ())))

    def problem(self) -> str | None:
        """One sentence if litellm is needed and missing, or the key is; else None."""
        if self.client == "litellm" and find_spec("litellm") is None:
            ollama = " Ollama is also asked by llm=vllm llm.api_base=http://HOST:11434/v1, without it."
            return without_litellm(self.model) + (ollama if self.model.startswith("ollama") else "")
        if (variable := self._key_variable()) and not key_in(variable):
            return (
                f"{self.model} needs a key in the environment variable {variable}: "
                f"export {variable}=..., or name another variable with api_key_env=NAME."
            )
        return None

    def call(self, function: str, tokens: int, check: Callable[[Any], Any], **request: Any) -> tuple[Any, int, Usage]:
        """Call the model: (check(response), number of retries, usage of rejected responses).

        function   completion | embedding, with litellm's arguments as `request`
        tokens   estimated tokens of the call, for tokens_per_min
        check    reads the response; rejects it by raising an InfraError, TransientError if a retry may help

        Raises StopRun, InfraError, or after the last try TransientError. Their `usage` is that of the rejected
        responses, which are paid for as well.
        """
        rejected = Usage()

        def once() -> Any:
            nonlocal rejected
            with self.limiter.slot(tokens) as slot:
                response = self._once(function, request)
                counts = counts_of_response(response)
                slot.used = counts.prompt + counts.completion or tokens
            try:
                return check(response)
            except InfraError:
                used = usage_of_response(response, self.price_per_mtok, self.model)
                rejected += replace(used, calls=0) if used.tokens else Usage()  # no call besides the one that counts
                raise

        try:
            response, retries = self._retry(once, self.limiter.closing)
        except InfraError as error:
            error.usage = rejected if rejected.tokens else None
            if isinstance(error, TransientError) and error.kind == "unreachable":  # further tasks would fail too
                raise _no_server(error) from error
            raise
        return response, retries, rejected

    def _once(self, function: str, request: dict[str, Any]) -> Any:
        """One try."""
        self._trail.answer = None
        try:
            response = self._send(function, request)
        except StopRun:  # there is no client
            raise
        except Exception as error:
            raise self._explained(error, request.get("max_tokens")) from error
        self._reached = self._worked = True
        return response

    def _window(self) -> int | None:
        """The model's context window in tokens, as its server lists it; None if it does not. Asked once."""
        with self._lock:
            if self._listed is None:
                self._listed = window_at(self.model, self.api_base, self._key()) or 0
            return self._listed or None

    def _body(self) -> Any:
        """The body of this thread's last answer, as parsed; None if it is unknown."""
        return None if self._trail.answer is None else self._trail.answer.extensions.get("body")

    def _send(self, function: str, request: dict[str, Any]) -> Any:
        """One try. Retries of litellm and of the provider's SDK are off: they would multiply ours."""
        if self.client == "openai":
            at = self.api_base or direct.address_of(self.model) or ""
            with self._clients.lease() as http:
                return direct.ask(http, at, self._key(), function, self.model, self.timeout_s, request)
        return getattr(load_litellm(), function)(
            model=self.model,
            api_key=self._key(),
            api_base=self.api_base,
            timeout=self.timeout_s,
            num_retries=0,
            max_retries=0,
            **({"client": client} if (client := self._own_client()) else {}),
            **request,
        )

    def _explained(self, error: Exception, max_tokens: int | None = None) -> Exception:
        """The exception to raise for an error of a try; also pauses the provider's limiter."""
        answer = self._trail.answer
        known = {} if answer is None else {"text": answer.text, "status": answer.status_code, "headers": answer.headers}
        call = FailedCall(**known, worked=self._worked, max_tokens=max_tokens)
        explained = explain(error, self.model, self.api_base, self.api_key_env, call)
        if isinstance(explained, AttemptOver) and not self._worked and is_page(call.text):
            self._blocked += 1
            if self._blocked >= _MOST_BLOCKED:  # a block of this machine looks the same, and every task would fail
                return StopRun(f"{explained}. Nothing but such pages has come from it: is this machine blocked?")
        if isinstance(explained, TransientError):
            if explained.kind != "unreachable":
                self._reached = True
            elif not self._reached:  # never reachable: retries would only make the user wait
                return _no_server(explained)
            if explained.retry_after:
                return self._waited_for(explained)
        return explained

    def _waited_for(self, error: TransientError) -> Exception:
        """Let all calls wait as long as the server asks; StopRun if that is too long."""
        asked = error.retry_after or 0.0
        if asked >= self.retry_s:
            return StopRun(
                f"{self.model} asks to wait {duration(asked)}, longer than {self.where}.retry_s="
                f"{self.retry_s:g} s; the same command resumes the run then ({why_tried_again(error, None)})"
            )
        self.limiter.pause(asked, why_tried_again(error))
        return error

    def usage_of(self, response: Any, counts: Counts | None = None) -> Usage:
        """Usage of an accepted response. Says once if its counts had to be corrected.

        counts   the response's, if known
        """
        counts = counts or counts_of_response(response)
        if said := counts.corrected:
            self.notice(
                "usage",
                f"{self.model} reports token counts that do not agree ({said}): the total is taken where there is one, "
                "and no count is below 0. Such calls are n_usage_corrected in summary.json.",
            )
        used = usage_of_response(response, self.price_per_mtok, self.model, counts)
        if used.cost_usd is None and used.tokens:
            self._say_price_is_unknown()
        return used

    def _say_price_is_unknown(self) -> None:
        """Say once that a provider's prices are not known without litellm."""
        own = self.model.partition("/")[0] == direct.OWN_SERVER
        if not own and self.price_per_mtok is None and find_spec("litellm") is None:
            self.notice(
                "price",
                f"{self.model}: what it costs is unknown, as prices come from litellm's table, which is not installed; "
                f"give {self.where}.price_per_mtok='{{prompt: USD, completion: USD}}', of a million tokens.",
            )

    def notice(self, about: str, text: str) -> None:
        """Tell the user something about this model, once for each `about`."""
        with self._lock:
            known = about in self._noticed
            self._noticed.add(about)
        if not known:
            notices.warning(text)

    def _own_client(self) -> Any:
        """A client for litellm, with a time limit on the whole response and closed by `close`; None: litellm's own."""
        provider = self.model.split("/")[0]
        if provider == "dashscope" and self.api_base is None:
            return None  # the client would ask OpenAI
        if provider not in (*_OPENAI_CLIENT, *_HTTP_HANDLER):
            return None
        with self._lock:
            if self._client is None and provider in _OPENAI_CLIENT:
                import openai

                how = {"api_key": self._key() or "none", "base_url": self.api_base, "max_retries": 0}
                self._client = openai.OpenAI(**how, http_client=self._clients.new())
            elif self._client is None:
                from litellm.llms.custom_httpx.http_handler import HTTPHandler

                self._client = HTTPHandler(client=self._clients.new())
            return self._client

    def _key_variable(self) -> str | None:
        """The environment variable with the key; None: no key is sent, or litellm looks for it."""
        own = self.client == "openai" and not self.api_base
        return self.api_key_env or (direct.key_variable(self.model) if own else None)

    def key(self) -> str | None:
        """The key itself, for a program that asks the model on its own; None: none is known."""
        variable = self._key_variable() or (None if self.api_base else direct.key_variable(self.model))
        return key_in(variable)

    def _key(self) -> str | None:
        return key_in(self._key_variable())

    def close(self) -> None:
        """End all waiting and close the connections; calls in flight fail."""
        self.limiter.closing.set()
        with self._lock:
            self._clients.close()
            self._client = None


def _no_server(error: TransientError) -> StopRun:
    return StopRun(f"{error} Is the server running?")


def client_of(where: str, model: str, client: str | None, api_base: str | None) -> str:
    """The client of a model: the given one, else openai for a provider that has OpenAI's API, and litellm for others.

    where   its place in the configuration, for messages
    """
    if client not in (None, "openai", "litellm"):
        raise UserError(f"{where}.client={client}: choose openai, litellm, or null for whichever fits the model.")
    speaks = model.partition("/")[0] in direct.PROVIDERS and bool(api_base or direct.address_of(model))
    if client == "openai" and not speaks:
        known = ", ".join(direct.PROVIDERS)
        raise UserError(
            f"{where}.client=openai: {model} has no OpenAI API at an address that is known here ({known} have); take "
            f"{direct.OWN_SERVER}/NAME with {where}.api_base, as llm=vllm does, or client=litellm."
        )
    return client or ("openai" if speaks else "litellm")
