"""A connection to a provider's model through litellm: address, key, limits, retries, and the cost of a call."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar

from core.errors import AttemptOver, InfraError, StopRun, TransientError, UserError
from core.models import addresses, network
from core.models.faults import is_page
from core.models.limits import Limiter
from core.models.network import http_client
from core.models.retry import Heard, Retry, explain, reason, retry_after
from core.models.servers import Replicas, addresses_of, window_at
from core.models.token_counts import Counts, counts_of_response
from core.models.waits import duration
from core.starting import loading
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
    api_key_env       the environment variable that holds the key (the key itself is never in a config); None: no key
    api_base          the address of a vllm, ollama or other OpenAI-compatible server; a list: several servers with the
                      same model, one of which is chosen for each call
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
    _worked: bool = field(default=False, init=False, repr=False)  # whether it ever answered with a reply
    _blocked: int = field(default=0, init=False, repr=False)  # firewall's pages that came before
    _listed: int | None = field(default=None, init=False, repr=False)  # its context window; 0: unknown; None: not asked
    _trail: network.Trail = field(default_factory=network.Trail, init=False, repr=False)
    _checked_addresses: set[str] = field(default_factory=set, init=False, repr=False)
    _noticed: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UserError(f"{self.model}: attempts={self.attempts}: give at least 1.")
        check_price(self.price_per_mtok)
        self.addresses = Replicas(urls=addresses_of(self.api_base))
        self._retry = Retry(attempts=self.attempts, total_s=self.retry_s)
        self.limiter = Limiter(
            max_in_flight=self.max_in_flight,
            requests_per_min=self.requests_per_min,
            tokens_per_min=self.tokens_per_min,
        )

    @property
    def provider(self) -> str:
        """litellm's name of the provider, plus api_base if given. Models with the same value share their limits."""
        return " ".join((self.model.split("/")[0], *self.addresses.urls))

    @property
    def _library(self) -> str:
        """The package through which it is asked."""
        return "litellm"

    def problem(self) -> str | None:
        """One sentence if the client library or the key is missing; else None."""
        if find_spec(self._library) is None:
            return _without(self._library, self.model)
        if self.api_key_env and not os.environ.get(self.api_key_env):
            return (
                f"{self.model} needs a key in the environment variable {self.api_key_env}: "
                f"export {self.api_key_env}=..., or name another variable with api_key_env=NAME."
            )
        return None

    def call(self, function: str, tokens: int, check: Callable[[Any], Any], **request: Any) -> tuple[Any, int, Usage]:
        """Call litellm.<function>(**request): (check(response), number of retries, usage of rejected responses).

        tokens   estimated tokens of the call, for tokens_per_min
        check    reads the response; rejects it by raising an InfraError, TransientError if a retry may help

        Raises StopRun, InfraError, or after the last try TransientError. Their `usage` is that of the rejected
        responses, which are paid for as well.
        """
        tries = _Tries()

        def once() -> Any:
            with self.limiter.slot(tokens) as slot:
                response = self._once(function, request, tries)
                counts = counts_of_response(response)
                slot.used = counts.prompt + counts.completion or tokens
            try:
                return check(response)
            except InfraError:
                tries.rejected += usage_of_rejected(response, self.price_per_mtok, self.model)
                raise

        try:
            response, retries = self._retry(once, self.limiter.closing)
        except InfraError as error:
            if isinstance(error, TransientError):
                if (
                    error.kind == "unreachable" and not self.addresses.ready()
                ):  # no server is reachable: further tasks would fail too
                    raise _no_server(error) from error
                error.retries += tries.passed_over
            error.usage = tries.rejected if tries.rejected.tokens else None
            raise
        return response, retries + tries.passed_over, tries.rejected

    def _once(self, function: str, request: dict[str, Any], tries: _Tries) -> Any:
        """One try, at the first reachable server. Unreachable ones are passed over, each counted in `tries`."""
        while True:
            with self.addresses.one() as address:
                self._trail.hops, self._trail.answer = [], None
                try:
                    response = self._send(function, address, request)
                except Exception as error:
                    explained = self._explained(error, address, request.get("max_tokens"))
                    gone = isinstance(explained, TransientError) and explained.kind == "unreachable"
                    if not (gone and tries.passed_over < len(self.addresses.urls) and self.addresses.ready()):
                        raise explained from error
                    log.warning("another server is asked: %s", explained)
                    tries.passed_over += 1
                    continue
            self._reached = self._worked = True
            return response

    def _window(self) -> int | None:
        """The model's context window in tokens, as its server lists it; None if it does not. Asked once."""
        with self._lock:
            if self._listed is None:
                base = next(iter(self.addresses.urls), None)
                self._listed = window_at(self.model, base, self._key()) or 0
            return self._listed or None

    def _body(self) -> Any:
        """The body of this thread's last answer, as parsed; None if it is unknown."""
        answer = self._trail.answer
        try:
            return answer.json() if answer is not None else None
        except ValueError:
            return None

    def _send(self, function: str, address: str | None, request: dict[str, Any]) -> Any:
        """One try through litellm. Retries of litellm and of the provider's SDK are off: they would multiply ours."""
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

    def _explained(self, error: Exception, address: str | None, room: int | None = None) -> Exception:
        """The exception to raise for an error of a try; also pauses the server, or the provider's limiter."""
        answer = self._trail.answer
        known = {"text": answer.text, "status": answer.status_code} if answer is not None else {}
        heard = Heard(**known, worked=self._worked, room=room)
        explained = self._on_the_way(error, address)
        explained = explained or explain(error, self.model, address, self.api_key_env, heard)
        if isinstance(explained, AttemptOver) and not self._worked and is_page(heard.text):
            self._blocked += 1
            if self._blocked >= _MOST_BLOCKED:  # a block of this machine looks the same, and every task would fail
                return StopRun(f"{explained}. Nothing but such pages has come from it: is this machine blocked?")
        if isinstance(explained, TransientError):
            self._add_headers(explained)
            others = self.addresses.rest(address, explained.retry_after)
            if explained.kind != "unreachable":
                self._reached = True
            elif not self._reached and not others:  # never reachable: retries would only make the user wait
                return _no_server(explained)
            if others:  # the next try goes to another server, so skip this one's Retry-After
                explained.retry_after = None
            elif explained.retry_after:
                return self._waited_for(explained, address)
        return explained

    def _on_the_way(self, error: Exception, address: str | None) -> Exception | None:
        """The exception for a call that a proxy, a certificate, a redirect or a wrong address kept from its server."""
        hops, ollama = self._trail.hops, self.model.startswith("ollama")
        if address is not None and not addresses.has_address(address):
            return StopRun(addresses.no_address(self.where, address, self._key(), ollama=ollama))
        if fault := network.fault(error, hops, address, reached=self._reached):
            return _OnTheWay(f"{self.model}: {fault.text}.", "server" if fault.passing else "unreachable")
        if address is None or self._reached or not self._doubtful(error, address):
            return None
        mixed_up = network.speaks_otherwise(error, hops)
        better = addresses.better_address(address, self._key(), ollama=ollama, other_scheme=mixed_up, called=True)
        if better is None:
            return None
        status = hops[-1].status if hops else None
        what = f"does not speak {address.partition(':')[0]}" if mixed_up else f"answers {status}"
        return StopRun(addresses.wrong_address(self.where, address, what, better))

    def _doubtful(self, error: Exception, address: str) -> bool:
        """Whether an error may come from a wrong address. Each address is doubted once."""
        last = self._trail.hops[-1] if self._trail.hops else None
        status = last.status if last else getattr(error, "status_code", None)
        page = last is not None and last.status in range(200, 500) and not last.is_json
        wrong = status in (404, 405) or page or network.speaks_otherwise(error, self._trail.hops)
        with self._lock:
            doubtful = wrong and address not in self._checked_addresses
            self._checked_addresses |= {address} if doubtful else set()
        return doubtful

    def _add_headers(self, error: TransientError) -> None:
        """Give an error the status of the server's answer, and its Retry-After if litellm has dropped it."""
        last = self._trail.hops[-1] if self._trail.hops else None
        if last is not None and last.status is not None and last.status >= 400:
            error.status = last.status
            error.retry_after = retry_after(last.headers) if error.retry_after is None else error.retry_after

    def _waited_for(self, error: TransientError, address: str | None) -> Exception:
        """Let all calls wait as long as the server asks, or until another is ready; StopRun if that is too long."""
        asked = error.retry_after or 0.0
        wait = min(asked, self.addresses.wait(besides=address))
        if wait >= self.retry_s:
            return StopRun(
                f"{self.model} asks to wait {duration(asked)}, longer than {self.where}.retry_s="
                f"{self.retry_s:g} s; the same command resumes the run then ({reason(error, None)})"
            )
        self.limiter.pause(wait, reason(error))
        error.retry_after = wait
        return error

    def usage_of(self, response: Any) -> Usage:
        """Usage of an accepted response. Says once if its counts had to be corrected."""
        if said := counts_of_response(response).corrected:
            self.notice(
                "usage",
                f"{self.model} reports token counts that do not agree ({said}): the total is taken where there is one, "
                "and no count is below 0. Such calls are n_usage_corrected in summary.json.",
            )
        return usage_of_response(response, self.price_per_mtok, self.model)

    def notice(self, about: str, text: str) -> None:
        """Tell the user something about this model, once for each `about`."""
        with self._lock:
            known = about in self._noticed
            self._noticed.add(about)
        if not known:
            notices.warning(text)

    def _own_client(self, address: str | None) -> Any:
        """A client for litellm, with a time limit on the whole response and closed by `close`; None: litellm's own."""
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

                self._http = self._http or http_client(self._trail)
                self._clients[address] = HTTPHandler(client=self._http)
            return self._clients[address]

    def _openai_client(self, address: str | None) -> Any:
        with self._lock:
            if address not in self._clients:
                import openai

                self._http = self._http or http_client(self._trail)
                how = {"api_key": self._key() or "none", "base_url": address, "max_retries": 0}
                self._clients[address] = openai.OpenAI(**how, http_client=self._http)
            return self._clients[address]

    def _key(self) -> str | None:
        return os.environ.get(self.api_key_env) if self.api_key_env else None

    def close(self) -> None:
        """End all waiting and close the connections; calls in flight fail."""
        self.limiter.closing.set()
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None
                self._clients.clear()


@dataclass(kw_only=True)
class _Tries:
    """Counts over the tries of one call."""

    passed_over: int = 0  # unreachable servers after which another one was tried
    rejected: Usage = field(default_factory=Usage)  # usage of rejected responses


class _OnTheWay(TransientError):
    """A proxy, a certificate or a redirect is at fault, and the message says which."""


def _no_server(error: TransientError) -> StopRun:
    return StopRun(str(error) if isinstance(error, _OnTheWay) else f"{error} Is the server running?")


def load_litellm() -> Any:
    """Import litellm without its network access and terminal output. Takes seconds the first time.

    Raises UserError, which says how to install it, where it is missing.
    """
    if find_spec("litellm") is None:
        raise UserError(_without("litellm", "Asking a provider, or its price,"))
    first = "litellm" not in sys.modules
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LOGGING_EXECUTOR_MAX_THREADS", "1")  # litellm's threads for callbacks, which we do not use
    with loading("litellm") if first else nullcontext():
        import litellm

    litellm.suppress_debug_info = True
    setattr(litellm, "DEFAULT_MAX_RETRIES", 0)  # noqa: B010 - or litellm replaces the max_retries=0 of embedding calls by 2
    if first:
        gc.freeze()  # keep its classes out of garbage collection, which would stop all calls for a sixth of a second
    return litellm


def _without(library: str, needed_by: str) -> str:
    extra = "`pip install 'reasoningbank-harness[providers]'`, or make setup in a checkout"
    return f"{needed_by} needs the package {library}: {extra}."


# Cost of a response: by the price in the configuration, else by litellm's table, else unknown (None, never 0).


def check_price(price: dict[str, float] | None) -> None:
    """Raise UserError unless price is None or {prompt, completion[, cached]} in USD per million tokens."""
    if price is None:
        return
    known = isinstance(price, dict) and {"prompt", "completion"} <= set(price) <= {"prompt", "cached", "completion"}
    if not known or not all(isinstance(value, (int, float)) and value >= 0 for value in price.values()):
        raise UserError(
            f"price_per_mtok={price}: give {{prompt: USD, completion: USD}}, with cached: USD if it differs."
        )


def expected_cost(
    model: str, price: dict[str, float] | None, prompt: int, completion: int, cached: int = 0
) -> float | None:
    """USD for these tokens, `cached` of the prompt's; None if the price is unknown."""
    if price is not None:
        of_prompt = (prompt - cached) * price["prompt"] + cached * price.get("cached", price["prompt"])
        return (of_prompt + completion * price["completion"]) / 1e6
    known = load_litellm().model_cost
    row = known.get(model) or known.get(model.split("/", 1)[-1]) or {}
    of_prompt, of_completion = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    if of_prompt is None or of_completion is None:
        return None
    of_cached = row.get("cache_read_input_token_cost") or of_prompt
    return (prompt - cached) * of_prompt + cached * of_cached + completion * of_completion


def usage_of_response(response: Any, price: dict[str, float] | None, model: str = "") -> Usage:
    """Usage of a litellm response, as one call.

    model   litellm's name, to price counts that litellm itself has read otherwise
    """
    counts = counts_of_response(response)
    reported = counts.prompt or counts.completion
    if price is not None:  # without counts the cost is unknown, unless all prices are 0
        known = reported or not any(price.values())
        cost = expected_cost(model, price, counts.prompt, counts.completion, counts.cached) if known else None
    else:
        by_litellm = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
        cost = by_litellm or None  # litellm reports 0 for a model that is not in its table
        if by_litellm is not None and reported and _priced_otherwise(response, counts):
            cost = expected_cost(model, None, counts.prompt, counts.completion, counts.cached)
    return Usage(
        calls=1,
        prompt_tokens=counts.prompt,
        completion_tokens=counts.completion,
        cached_tokens=counts.cached,
        reasoning_tokens=counts.reasoning,
        cost_usd=cost,
    )


def _priced_otherwise(response: Any, counts: Counts) -> bool:
    """Whether litellm's cost rests on other counts than ours."""
    usage = getattr(response, "usage", None)
    read = tuple(getattr(usage, name, None) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return bool(counts.corrected) or read != (counts.prompt, counts.completion)


def usage_of_rejected(response: Any, price: dict[str, float] | None, model: str = "") -> Usage:
    """Usage of a rejected response, with calls=0; an empty Usage if the server did not report tokens."""
    used = usage_of_response(response, price, model)
    return replace(used, calls=0) if used.tokens else Usage()
