"""The user's own server at `llm.api_base`: it is asked which models it has, and how long their context windows are.

Before a run (`name_models`), so that a wrong name is refused before the first call, and a run without a name records
the model that it uses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.errors import StopRun, UserError, meant
from core.models.network import about_connection, http_client
from core.redact import bare_key
from core.terminal import stage

# litellm's providers that stand for the user's own server. Others (anthropic, dashscope, ...) are not asked for their
# models: they are always reachable, and their first call rejects an unknown name at no cost.
SERVERS = "hosted_vllm openai ollama_chat ollama lm_studio llamafile litellm_proxy openai_like xinference".split()
UNNAMED = "hosted_vllm/"  # the provider of a server at llm.api_base if no model is given
UNLISTED = "default"  # the requested name if none is given and the server does not list its models
_TIMEOUT_S = 5.0
_PATIENCE_S = 45.0  # if only the server can name the model
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
    for key, node, replaceable in _with_address(nodes):
        base, key_env = check_address(key, node.get("api_base")), node.get("api_key_env")
        model = with_provider("" if node.get("model") in (None, "???") else str(node["model"]), base)
        before = str((recorded.get(key) or {}).get("model") or "").partition("/")[2] or None
        if not is_asked(model, base) or (key_env and not key_in(key_env)):
            continue
        if base not in listings:
            listings[base] = None
            if ask and node.get("cache") != "replay":
                stage(f"asking {base} for its models")
                known = not model.endswith("/") or before or replaceable
                try:
                    listings[base] = models_at(base, key_in(key_env), timeout_s=_TIMEOUT_S if known else _PATIENCE_S)
                except ConnectionError as error:
                    if not replaceable:
                        start = "ollama serve" if model.startswith("ollama") else "vllm serve MODEL"
                        raise StopRun(
                            f"{key}: nothing answers at {base} ({error}): start the server, e.g. `{start}`, "
                            f"or give its address as {key}.api_base=URL."
                        ) from error
                except TimeoutError as error:
                    if not known:
                        raise StopRun(
                            f"{key}: the server at {base} is too busy to say which models it has ({error}): "
                            f"give {key}.model=NAME, or try again later."
                        ) from error
        node["model"] = model_to_ask(key, model, base, listings[base], before)


def key_in(variable: str | None) -> str | None:
    """The key in an environment variable, without line ends, marks and quotes around it; None if there is none.

    UserError if something is within it that no key has and no header takes.
    """
    key = bare_key(os.environ.get(variable, "")) if variable else ""
    if odd := next((sign for sign in key if not "!" <= sign <= "~"), None):
        what = "a blank or a line end" if odd.isspace() else f"the character {odd!a}"
        raise UserError(f"the key in the environment variable {variable} has {what} in it: export the key alone.")
    return key or None


def check_address(where: str, api_base: Any) -> str:
    """An `api_base` that is an address: http or https, a host, a port that is a number. UserError for anything else."""
    try:
        parts = urlsplit(api_base if isinstance(api_base, str) else "")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return api_base
    except ValueError:
        pass
    raise UserError(f"{where}.api_base={api_base} is no address: give one like http://HOST:PORT/v1.")


def with_provider(model: str, api_base: str) -> str:
    """litellm's name of a model at an address: one that names no provider is as the server there lists it."""
    if not model:
        return UNNAMED
    if model.partition("/")[0] in SERVERS or _is_hosted(model) or "api.openai.com" in api_base:
        return model
    own = UNNAMED if urlsplit(api_base).path.strip("/") else "ollama_chat/"  # Ollama's own API has no path
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
    except (ConnectionError, TimeoutError, StopRun):
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


def models_at(api_base: str, key: str | None = None, *, timeout_s: float = _TIMEOUT_S) -> Listing | None:
    """The models of the server at an address; None if it does not list them (404, 401, 500, no JSON).

    Raises ConnectionError with the cause if it is unreachable, TimeoutError if it is too busy to answer.
    """
    import httpx

    base = api_base.rstrip("/")
    url = f"{base}/models" if base.rpartition("/")[2].startswith("v") else f"{base}/v1/models"
    try:
        with http_client(api_base, timeout_s=timeout_s) as client:
            answer = client.get(url, headers={"Authorization": f"Bearer {key}"} if key else {})
        if answer.status_code in (429, 503):
            raise TimeoutError(f"status {answer.status_code}")
        return _listed(answer.raise_for_status().json()["data"])
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        raise ConnectionError(about_connection(error)) from error
    except httpx.TimeoutException as error:
        raise TimeoutError(f"no answer in {timeout_s:g} s") from error
    except (httpx.HTTPError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _listed(models: list[dict[str, Any]]) -> Listing:
    names = tuple(str(each["id"]) for each in models)
    owners = {str(each.get("owned_by")) for each in models}
    windows = {str(each["id"]): window for each in models if (window := _window_of(each))}
    return Listing(names=names, any_name=len(names) == 1 and owners <= {"llamacpp", "sglang"}, windows=windows)


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


def _how_to_get(provider: str, name: str) -> str:
    """The end of a sentence about a missing model."""
    return f" (`ollama pull {name}` gets it)" if provider.startswith("ollama") else ""
