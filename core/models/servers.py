"""The servers at `llm.api_base`: choose one for each call, and ask them which models they have.

`Replicas`: several servers have the same model; a call goes to the one with the fewest calls in flight, except those
that have just failed. `name_models`: before a run the servers are asked for their models (`GET /v1/models`), so that a
wrong name is refused before the first call, and a run without a name records the model that it uses.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

from core.errors import StopRun, UserError, meant
from core.models import addresses
from core.models.network import Hop, Trail, fault, http_client, os_words, speaks_otherwise
from core.models.routes import Blocked
from core.starting import stage

REST_S = 10.0  # how long a server is not chosen after a transient error, unless it sends Retry-After


def addresses_of(api_base: str | list[str] | None) -> list[str]:
    """The addresses in `api_base`; [] for the provider's own. UserError unless it is an address or a list of them."""
    if api_base is None:
        return []
    given = [api_base] if isinstance(api_base, str) else api_base
    texts = isinstance(given, Sequence) and all(isinstance(each, str) for each in given)
    if not texts or not given or len(set(given)) < len(given):
        raise UserError(f"api_base={api_base}: give an address, or a list of different ones.")
    return list(given)


@dataclass(kw_only=True)
class Replicas:
    """Chooses the server for each call of a model. Thread-safe.

    urls   servers with the same model; []: the provider's own address, which is chosen as None
    """

    urls: list[str]
    clock: Callable[[], float] = time.monotonic
    _in_flight: dict[str | None, int] = field(default_factory=dict, init=False)
    _rests: dict[str | None, float] = field(default_factory=dict, init=False)  # until when
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @contextmanager
    def one(self) -> Iterator[str | None]:
        """A context with the address for one call: the least busy ready server, else the one ready first.

        Ties go to the first one, so that a run with few calls uses one server's prompt cache.
        """
        with self._lock:
            now, known = self.clock(), self.urls or [None]
            ready = [url for url in known if self._rests.get(url, 0.0) <= now]
            url = min(ready or known, key=lambda url: (0.0 if ready else self._rests[url], self._in_flight.get(url, 0)))
            self._in_flight[url] = self._in_flight.get(url, 0) + 1
        try:
            yield url
        finally:
            with self._lock:
                self._in_flight[url] -= 1

    def rest(self, url: str | None, seconds: float | None = None) -> bool:
        """Do not choose a server for `seconds`, None: REST_S. Returns whether another one is ready."""
        with self._lock:
            self._rests[url] = self.clock() + (seconds or REST_S)
        return self.ready()

    def ready(self) -> bool:
        """Whether a server of `urls` is not resting."""
        with self._lock:
            now = self.clock()
            return any(self._rests.get(url, 0.0) <= now for url in self.urls)

    def wait(self, besides: str | None) -> float:
        """Seconds until another server than this one is ready; inf if there is no other."""
        with self._lock:
            others = [self._rests.get(url, 0.0) for url in self.urls if url != besides]
            return max(0.0, min(others, default=inf) - self.clock())


# litellm's providers that stand for the user's own server. Others (anthropic, dashscope, ...) are not asked for their
# models: they are always reachable, and their first call rejects an unknown name at no cost.
SERVERS = "hosted_vllm openai ollama_chat ollama lm_studio llamafile litellm_proxy openai_like xinference".split()
UNNAMED = "hosted_vllm/"  # the provider of a server at llm.api_base if no model is given
UNLISTED = "default"  # the requested name if none is given and the server does not list its models
_TIMEOUT_S = 5.0
_PATIENCE_S = (15.0, 45.0)  # the time limits of the next questions to a busy server, if only it can name the model
_MOST_BYTES = 1 << 22
_MOST_NAMES = 20  # in a sentence


def name_models(nodes: dict[str, Any], recorded: dict[str, Any], *, ask: bool = True) -> None:
    """Ask the user's own servers for their models, and fill in the model of each of `nodes` without a name.

    So a run records which model it uses, and is not resumed with another one. No server is asked with llm.cache=replay,
    nor if the key is missing, which is an error elsewhere. Raises StopRun for an unreachable server, unless a fallback
    may answer for it, and UserError for a model that it does not have.

    nodes      {key of the configuration: its model's node}, with their `fallbacks`; changed in place
    recorded   the configuration of the run's earlier starts
    ask        False: no server is asked
    """
    listings: dict[str, Listing | None] = {}  # by address: each server is asked once
    away: dict[str, ConnectionError | Blocked] = {}  # unreachable addresses
    for key, node, replaceable in _with_address(nodes):
        model = with_provider("" if node.get("model") in (None, "???") else str(node["model"]), node.get("api_base"))
        bases, key_env = addresses_of(node.get("api_base")), node.get("api_key_env")
        if not is_asked(model, bases[0]) or (key_env and not os.environ.get(key_env)):
            continue
        for base in bases:
            if base not in listings:
                listings[base] = None
                try:
                    if ask and node.get("cache") != "replay":
                        stage(f"asking {base} for its models")
                        key_value = os.environ.get(key_env) if key_env else None
                        known = not model.endswith("/") or (recorded.get(key) or {}).get("model") or replaceable
                        patience = () if known else _PATIENCE_S
                        ollama = model.startswith("ollama")
                        listings[base] = _listing(key, base, key_value, ollama=ollama, patience=patience)
                except (ConnectionError, Blocked) as error:
                    away[base] = error
        there = [base for base in bases if base not in away]
        if not there and not replaceable:
            raise not_running(key, model, bases[0], away[bases[0]]) from away[bases[0]]
        before = str((recorded.get(key) or {}).get("model") or "").partition("/")[2] or None
        for base in there or bases[:1]:  # every server must have the first one's model
            model = model_to_ask(key, model, base, listings[base], before)
        node["model"] = model


def with_provider(model: str, api_base: str | list[str]) -> str:
    """litellm's name of a model at an address: one that names no provider is as the server there lists it."""
    base = addresses_of(api_base)[0]
    if not model:
        return UNNAMED
    if model.partition("/")[0] in SERVERS or _is_hosted(model) or "api.openai.com" in base:
        return model
    own = "ollama_chat/" if addresses.has_address(base) and addresses.is_root(base) else UNNAMED
    return f"{own}{model}"


def _is_hosted(model: str) -> bool:
    """Whether litellm knows a provider by the first part of a name: its folders tell without the import, of seconds."""
    provider, slash, _ = model.partition("/")
    found = find_spec("litellm") if slash else None
    return bool(found and found.origin and (Path(found.origin).parent / "llms" / provider).is_dir())


def _with_address(nodes: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """(key, node, whether another model may answer for it) of every model with an address, including fallbacks."""
    for key, node in nodes.items():
        fallbacks = [each for each in node.get("fallbacks") or () if hasattr(each, "get")]
        models = [(key, node), *((f"{key}.fallbacks", each) for each in fallbacks)]
        yield from ((where, each, bool(fallbacks)) for where, each in models if each.get("api_base"))


# What servers call a model's context window in their lists, the surest first: vLLM, SGLang; LM Studio; llama.cpp;
# OpenRouter, Together; Mistral, Groq; what a model was trained with is the most that it can be.
_WINDOWS = (
    "max_model_len loaded_context_length n_ctx context_length max_context_length context_window max_input_tokens "
    "max_total_tokens max_seq_len n_ctx_train"
).split()


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The models of a server. any_name: it accepts every name, for its only model.

    windows   {name: context window in tokens} of the models whose window it names
    """

    names: tuple[str, ...]
    any_name: bool = False
    windows: Mapping[str, int] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return self.any_name or name in self.names or f"{name}:latest" in self.names  # Ollama's names may have a tag


def window_at(model: str, api_base: str | None, key: str | None = None) -> int | None:
    """The context window in tokens of a model, by litellm's name, as its server lists it; None if it does not."""
    try:
        listing = models_at(api_base, key) if api_base and is_asked(model, api_base) else None
    except (ConnectionError, UserError, Blocked):
        return None
    name = model.partition("/")[2]
    windows = listing.windows if listing else {}
    only = windows.get(listing.names[0]) if listing and len(listing.names) == 1 else None
    return windows.get(name) or windows.get(f"{name}:latest") or only


def _window_of(listed: dict[str, Any]) -> int | None:
    """The context window in a model's entry of a list, also in its `meta` (llama.cpp) or the like."""
    holders = [listed, *(value for value in listed.values() if isinstance(value, dict))]
    found = (holder.get(name) for name in _WINDOWS for holder in holders)
    return next((n for n in found if isinstance(n, int) and n > 0), None)


def is_asked(model: str, api_base: str | None) -> bool:
    """Whether a model, by litellm's name, belongs to a server that can be asked for its models."""
    return bool(api_base) and model.partition("/")[0] in SERVERS and "api.openai.com" not in api_base


def models_at(api_base: str, key: str | None = None) -> Listing | None:
    """The models of the server at an address; None if it does not list them (404, 401, timeout, no JSON).

    Raises ConnectionError with the cause if it is unreachable, Blocked if the environment or a redirect keeps it from
    being asked, UserError for an invalid address.
    """
    if not addresses.has_address(api_base):
        raise UserError(f"api_base={api_base} is no address: give http://HOST:PORT/v1.")
    return _asked(api_base, key)[0]


def _listing(
    where: str, api_base: str, key: str | None, *, ollama: bool, patience: tuple[float, ...] = ()
) -> Listing | None:
    """`models_at`, which also checks the address itself: raises UserError if another one beside it is meant.

    patience   a busy server is asked again with each of these time limits, in seconds; StopRun if it stays silent
    """
    if not addresses.has_address(api_base):
        raise UserError(addresses.no_address(where, api_base, key, ollama=ollama))
    listing, error, hops = _asked(api_base, key)
    for timeout_s in patience:
        if not _is_busy(error):
            break
        time.sleep(_TIMEOUT_S / 5)  # it may have refused at once
        listing, error, hops = _asked(api_base, key, timeout_s)
    if patience and _is_silent(error):
        raise StopRun(
            f"{where}: the server at {api_base} takes the question for its models, and gives no answer in "
            f"{patience[-1]:g} s: give {where}.model=NAME, or try again when it is less busy."
        )
    what, better = "is not where its API is", None
    if error is not None and speaks_otherwise(error, hops):
        what = f"does not speak {api_base.partition(':')[0]}"
        better = addresses.better_address(api_base, key, ollama=ollama, other_scheme=True)
    elif moved := _moved(api_base, hops):
        what, better = f"redirects ({hops[0].status})", moved
    elif not (addresses.is_root(api_base) if ollama else addresses.is_plain(api_base)):
        better = addresses.better_address(api_base, key, ollama=ollama)
    if better:
        raise UserError(addresses.wrong_address(where, api_base, what, better))
    return listing


def _is_busy(error: Exception | None) -> bool:
    """Whether a server that did not list its models may do so a little later."""
    return _is_silent(error) or getattr(getattr(error, "response", None), "status_code", None) in (429, 503)


def _is_silent(error: Exception | None) -> bool:
    """Whether a server was connected to, and then gave no answer in time."""
    import httpx

    return isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout)


def _asked(
    api_base: str, key: str | None, timeout_s: float | None = None
) -> tuple[Listing | None, Exception | None, list[Hop]]:
    """(models, why they are unknown, the requests made) of the server at an address; raises as `models_at`."""
    import httpx

    url = _models_url(api_base)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    trail = Trail()
    try:
        with (
            http_client(trail, timeout_s or _TIMEOUT_S) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            answer.raise_for_status()
            return _listed(json.loads(_beginning(answer))["data"]), None, trail.hops
    except Exception as error:
        if (found := fault(error, trail.hops, api_base)) and not found.passing:
            raise Blocked(found.text) from error
        unreachable = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        if unreachable and not speaks_otherwise(error, trail.hops):
            raise ConnectionError(os_words(error)) from error
        return None, error, trail.hops


def _models_url(api_base: str) -> str:
    base = api_base.rstrip("/")
    return f"{base}/models" if base.rpartition("/")[2].startswith("v") else f"{base}/v1/models"


def _listed(models: list[dict[str, Any]]) -> Listing:
    names = tuple(str(each["id"]) for each in models)
    owners = {str(each.get("owned_by")) for each in models}
    windows = {str(each["id"]): window for each in models if (window := _window_of(each))}
    return Listing(names=names, any_name=len(names) == 1 and owners <= {"llamacpp", "sglang"}, windows=windows)


def _beginning(answer: Any) -> bytes:
    text = b""
    for chunk in answer.iter_bytes():
        text += chunk
        if len(text) > _MOST_BYTES:
            break
    return text


def _moved(api_base: str, hops: list[Hop]) -> str | None:
    """The address to which an `api_base` redirects in such a way that a call would be lost; None if it does not."""
    if not any(hop.status in (301, 302, 303) for hop in hops[:-1]) or hops[-1].status != 200:
        return None
    tail = _models_url(api_base).removeprefix(api_base.rstrip("/"))
    target = hops[-1].url.rstrip("/")
    moved = target.removesuffix(tail)
    return moved if moved not in (target, api_base.rstrip("/")) else None


def model_to_ask(where: str, model: str, api_base: str, listing: Listing | None, recorded: str | None) -> str:
    """litellm's name of the model to call: the given one; if only a provider is given, the server's only model.

    where      the key of the configuration that holds the model, e.g. "llm"
    model      "PROVIDER/NAME", or "PROVIDER/" without a name; a whole name that the server lists wins
    listing    the server's models; None: unknown
    recorded   the name used by an earlier start of this run, without the provider; used again if the server has it

    Raises UserError if the server does not have the model, or has several and no name is given.
    """
    provider, _, name = model.partition("/")
    if not name and recorded and (listing is None or listing.has(recorded)):
        return f"{provider}/{recorded}"
    if listing is None:
        return f"{provider}/{name or UNLISTED}"
    has = ", ".join(listing.names[:_MOST_NAMES]) + (", ..." if len(listing.names) > _MOST_NAMES else "")
    if not listing.names:
        raise UserError(f"{where}: the server at {api_base} has no model{_how_to_get(provider, name or 'NAME')}.")
    if not name and len(listing.names) > 1:
        raise UserError(
            f"{where}: the server at {api_base} has several models, {has}: "
            f"choose one, e.g. {where}.model={provider}/{listing.names[0]}."
        )
    if name and not listing.has(name) and model in listing.names:  # its maker is called like a provider
        return f"{UNNAMED}{model}"
    if name and not listing.has(name):
        raise UserError(
            f"{where}.model={model}: the server at {api_base} has {has}, and no {name}{_how_to_get(provider, name)}"
            f"{meant(name, listing.names)}"
        )
    return f"{provider}/{name or next(iter(listing.names))}"


def not_running(where: str, model: str, api_base: str, error: ConnectionError | Blocked) -> StopRun:
    """The error for an unreachable server."""
    if isinstance(error, Blocked):
        return StopRun(f"{where}: {error}.")
    start = "ollama serve" if model.startswith("ollama") else "vllm serve MODEL"
    return StopRun(
        f"{where}: nothing answers at {api_base} ({error}): start the server, e.g. `{start}`, "
        f"or give its address as {where}.api_base=URL."
    )


def _how_to_get(provider: str, name: str) -> str:
    """The end of a sentence about a missing model."""
    return f" (`ollama pull {name}` gets it)" if provider.startswith("ollama") else ""
