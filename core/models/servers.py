"""Which models an OpenAI-compatible server has (`GET /v1/models`): a wrong name is found before the first call."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from core.errors import StopRun, UserError, meant
from core.starting import loading, stage

# The servers of `llm.api_base`: a call goes to the one with the fewest in flight, past those that are gone.

REST_S = 10.0  # that a server is left alone after it broke off, was slow, or could not be reached; or as it asks


def listed(api_base: str | list[str] | None) -> list[str]:
    """The addresses of `api_base`; none where the provider's own is meant. UserError for what is no list of them."""
    if api_base is None:
        return []
    found = [api_base] if isinstance(api_base, str) else api_base
    addresses = isinstance(found, Sequence) and all(isinstance(each, str) for each in found)
    if not addresses or not found or len(set(found)) < len(found):
        raise UserError(f"api_base={api_base}: give an address, or a list of different ones.")
    return list(found)


@dataclass(kw_only=True)
class Replicas:
    """Shared by the calls of one model. Thread-safe.

    urls   copies of one model; [] is the provider's own address, given as None
    """

    urls: list[str]
    clock: Callable[[], float] = time.monotonic
    _in_flight: dict[str | None, int] = field(default_factory=dict, init=False)
    _rests: dict[str | None, float] = field(default_factory=dict, init=False)  # until when
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @contextmanager
    def one(self) -> Iterator[str | None]:
        """The address for one call: of equals the first, so that a run of few calls keeps to one prompt cache."""
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
        """Leave a server alone, for REST_S where it does not say how long; whether another one is ready."""
        with self._lock:
            self._rests[url] = self.clock() + (seconds or REST_S)
        return self.ready()

    def ready(self) -> bool:
        """Whether there is a server that is not left alone."""
        with self._lock:
            now = self.clock()
            return any(self._rests.get(url, 0.0) <= now for url in self.urls)


# litellm's providers that stand for a server of one's own. Of the others (anthropic, dashscope, ...) nobody asks:
# they are there, the key is what goes wrong, and a name that they do not know is refused by the first call at no cost.
SERVERS = "hosted_vllm openai ollama_chat ollama lm_studio llamafile litellm_proxy openai_like xinference".split()
UNNAMED = "hosted_vllm/"  # the provider of a server at llm.api_base where no model was given
UNLISTED = "default"  # the name that is asked for where none was given and the server does not say what it has
_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 22
_MOST_NAMES = 20  # in a sentence


def name_models(nodes: dict[str, Any], recorded: dict[str, Any], *, ask: bool = True) -> None:
    """Ask the servers of one's own for their models, and give those of `nodes` a name that have none.

    So a run records what it asked, and is not continued with another model. Nobody is asked for llm.cache=replay, nor
    where the key is missing, which is refused elsewhere. Raises StopRun for a server that is not there, unless a
    fallback may answer for it, and UserError for a model that it does not have.

    nodes      {key of the configuration: the model that stands there}, with their `fallbacks`
    recorded   the configuration of the run's earlier starts
    ask        False: nobody is asked at all
    """
    known: dict[str, Listing | None] = {}  # one request a server
    away: dict[str, ConnectionError] = {}  # those that nobody answers at
    for key, node, replaceable in _with_address(nodes):
        model = UNNAMED if node.get("model") in (None, "???") else str(node.get("model"))
        bases, key_env = listed(node.get("api_base")), node.get("api_key_env")
        if not is_asked(model, bases[0]) or (key_env and not os.environ.get(key_env)):
            continue
        for base in bases:
            if base not in known:
                known[base] = None
                try:
                    if ask and node.get("cache") != "replay":
                        stage(f"asking {base} for its models")
                        known[base] = models_at(base, os.environ.get(key_env) if key_env else None)
                except ConnectionError as error:
                    away[base] = error
        there = [base for base in bases if base not in away]
        if not there and not replaceable:
            raise not_running(key, model, bases[0], away[bases[0]]) from away[bases[0]]
        before = str((recorded.get(key) or {}).get("model") or "").partition("/")[2] or None
        for base in there or bases[:1]:  # each has to have the model that the first one has
            model = settled(key, model, base, known[base], before)
        node["model"] = model


def _with_address(nodes: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """(key, node, whether another model may answer for it) of every model with an address, fallbacks too."""
    for key, node in nodes.items():
        below = [each for each in node.get("fallbacks") or () if hasattr(each, "get")]
        found = [(key, node), *((f"{key}.fallbacks", each) for each in below)]
        yield from ((name, each, bool(below)) for name, each in found if each.get("api_base"))


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a server has. any_name: it answers to every name with the one model that it has."""

    names: tuple[str, ...]
    any_name: bool = False

    def has(self, name: str) -> bool:
        return self.any_name or name in self.names or f"{name}:latest" in self.names  # the latter are Ollama's


def is_asked(model: str, api_base: str | None) -> bool:
    """Whether a model, by litellm's name, is one of a server that can be asked."""
    return bool(api_base) and model.partition("/")[0] in SERVERS and "api.openai.com" not in api_base


def models_at(api_base: str, key: str | None = None) -> Listing | None:
    """The models of the server at an address; None where it does not say (404, 401, no answer in time, no JSON).

    Raises ConnectionError with the cause where nobody answers, UserError for what is no address.
    """
    from http.client import HTTPException
    from ssl import SSLError
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    base = api_base.rstrip("/")
    url = f"{base}/models" if base.rpartition("/")[2].startswith("v") else f"{base}/v1/models"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=_TIMEOUT_S) as got:
            found = json.loads(got.read(_MOST_BYTES))["data"]
            names = tuple(str(each["id"]) for each in found)
            owners = {str(each.get("owned_by")) for each in found}
    except HTTPError:
        return None
    except URLError as error:
        if isinstance(error.reason, str):
            raise UserError(f"api_base={api_base} is no address: give http://HOST:PORT/v1.") from error
        if isinstance(error.reason, SSLError):
            return None
        raise ConnectionError(getattr(error.reason, "strerror", None) or str(error.reason)) from error
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ValueError) and "unknown url type" in str(error):
            raise UserError(f"api_base={api_base} is no address: give http://HOST:PORT/v1.") from error
        return None
    return Listing(names=names, any_name=len(names) == 1 and owners <= {"llamacpp", "sglang"})


def settled(where: str, model: str, api_base: str, listing: Listing | None, recorded: str | None) -> str:
    """litellm's name of the model to ask: the given one, or where only a provider is given the server's only model.

    where      the key of the configuration that holds the model, e.g. "llm"
    model      "PROVIDER/NAME", or "PROVIDER/" where no name was given
    listing    of the server; None where it does not say
    recorded   the name that an earlier start of this run took, without the provider; it is kept while the server has it

    Raises UserError where the server does not have the model, or has several and none was given.
    """
    provider, _, name = model.partition("/")
    if not name and recorded and (listing is None or listing.has(recorded)):
        return f"{provider}/{recorded}"
    if listing is None:
        return f"{provider}/{name or UNLISTED}"
    has = ", ".join(listing.names[:_MOST_NAMES]) + (", ..." if len(listing.names) > _MOST_NAMES else "")
    if not listing.names:
        raise UserError(f"{where}: the server at {api_base} has no model{_get_one(provider, name or 'NAME')}.")
    if not name and len(listing.names) > 1:
        raise UserError(
            f"{where}: the server at {api_base} has several models, {has}: "
            f"choose one, e.g. {where}.model={provider}/{listing.names[0]}."
        )
    if name and not listing.has(name):
        raise UserError(
            f"{where}.model={model}: the server at {api_base} has {has}, and no {name}{_get_one(provider, name)}"
            f"{meant(name, listing.names)}"
        )
    return f"{provider}/{name or listing.names[0]}"


def not_running(where: str, model: str, api_base: str, error: ConnectionError) -> StopRun:
    """What to raise for a server that is not there."""
    start = "ollama serve" if model.startswith("ollama") else "vllm serve MODEL"
    return StopRun(
        f"{where}: nothing answers at {api_base} ({error}): start the server, e.g. `{start}`, "
        f"or give its address as {where}.api_base=URL."
    )


def _get_one(provider: str, name: str) -> str:
    return f" (`ollama pull {name}` gets it)" if provider.startswith("ollama") else ""


# How litellm is loaded, and the HTTP client that its calls go through.


def load_litellm() -> Any:
    """litellm, made to keep off the network and the terminal while it loads. Takes seconds the first time."""
    first = "litellm" not in sys.modules
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LOGGING_EXECUTOR_MAX_THREADS", "1")  # of its own, for callbacks that we do not use
    with loading("litellm") if first else nullcontext():
        import litellm

    litellm.suppress_debug_info = True
    litellm.DEFAULT_MAX_RETRIES = 0  # else it takes the max_retries=0 of our embedding calls for 2
    if first:
        gc.freeze()  # its classes never go; looking through them all holds every call in flight for a sixth of a second
    return litellm


def http_client() -> Any:
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
