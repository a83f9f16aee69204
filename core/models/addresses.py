"""A wrong `api_base`: without /v1 or with one too many, with an endpoint behind it, without or with another scheme.

Nothing is guessed: `better_address` asks the neighbouring addresses for their models, and names one that answers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from core.models import network, routes

TOTAL_S, ONE_S = 6.0, 2.0  # time for all questions, and for one
_MOST_BYTES = 1 << 22
_VERSION = re.compile(r"v\d\w*")
_BELOW_ROOT = ("/api/v1", "/openai/v1", "/api")  # where gateways and chat interfaces have their API


def is_plain(api_base: str) -> bool:
    """Whether an address has the usual form, http(s)://HOST/.../v1, so that nothing but the server can refute it."""
    parts = urlsplit(api_base)
    path = [part for part in parts.path.split("/") if part]
    return bool(path and _VERSION.fullmatch(path[-1])) and not any(_VERSION.fullmatch(part) for part in path[:-1])


def is_root(api_base: str) -> bool:
    """Whether an address has no path, as Ollama's own API needs it."""
    return not urlsplit(api_base).path.strip("/")


def better_address(
    api_base: str,
    key: str | None = None,
    *,
    ollama: bool = False,
    other_scheme: bool = False,
    called: bool = False,
) -> str | None:
    """The address that was probably meant: one beside `api_base` that lists its models; None if that one does itself.

    None as well if no other does, and if calls have a place at `api_base` although it lists no models.

    key            is sent to addresses of the same host alone
    ollama         calls go to Ollama's own API, which is below the server's root
    other_scheme   only http is tried for https, and the reverse
    called         a call was refused there, so an address that wants a key before it answers is better, too
    """
    began = time.monotonic()

    def is_better(url: str) -> bool:
        open_to_all = url.startswith("http:") and not (api_base.startswith("http:") or routes.is_near(_host(url)))
        sent = None if open_to_all else key  # no key goes unencrypted where it was not meant to
        return _lists(url, sent, ollama, began, locked=called or open_to_all)

    if not has_address(api_base):
        return next(filter(is_better, _with_scheme(api_base)), None)
    if not other_scheme and (_lists(api_base, key, ollama, began, locked=True) or _takes_calls(api_base, ollama)):
        return None
    return next(filter(is_better, _candidates(api_base, ollama, other_scheme)), None)


def has_address(api_base: str) -> bool:
    """Whether it is an address at all: http or https, a host, and a port that is a number."""
    try:
        parts = urlsplit(api_base)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def no_address(where: str, api_base: str, key: str | None = None, *, ollama: bool = False) -> str:
    """The sentence for an `api_base` that is no address."""
    start = f"{where}.api_base={api_base} is no address"
    if better := better_address(api_base, key, ollama=ollama):
        return f"{start}; {better} answers: use {where}.api_base={better}."
    likely = next((each for each in _with_scheme(api_base)), "http://HOST:PORT/v1")
    return f"{start}: give http://HOST:PORT/v1{'' if 'HOST' in likely else f', e.g. {likely}'}."


def wrong_address(where: str, api_base: str, what: str, better: str) -> str:
    """The sentence for an `api_base` beside which another one answers. what: what it does itself ("answers 404")."""
    return f"{where}.api_base={api_base} {what}; {better} answers: use {where}.api_base={better}."


def _candidates(api_base: str, ollama: bool, other_scheme: bool) -> Iterator[str]:
    """Addresses that may have been meant, the nearest first; never `api_base` itself."""
    parts = urlsplit(api_base.strip())
    schemes = [parts.scheme, "https" if parts.scheme == "http" else "http"]
    known = {api_base.rstrip("/")}
    for scheme in schemes[1:] if other_scheme else schemes:
        for path in _paths(parts.path, ollama):
            url = f"{scheme}://{parts.netloc}{path}"
            if url not in known:
                known.add(url)
                yield url


def _paths(path: str, ollama: bool) -> Iterator[str]:
    """Every beginning of a path, the longest first, as it is and with /v1."""
    parts = [part for part in path.split("/") if part]
    if parts and _VERSION.fullmatch(parts[-1]):
        yield "/" + "/".join(parts)
    for n in range(len(parts), -1, -1):
        beginning = "".join(f"/{part}" for part in parts[:n])
        if not ollama and not _VERSION.fullmatch(parts[n - 1] if n else ""):
            yield f"{beginning}/v1"
        yield beginning
    if not ollama:
        yield from _BELOW_ROOT


def _with_scheme(text: str) -> Iterator[str]:
    """What an `api_base` without a scheme may have meant, or with one that is none."""
    bare = re.sub(r"^(?:[a-z]+:/+|https?/+|/+)", "", text.strip().strip("'\"<>"), flags=re.I)
    host, slash, path = bare.partition("/")
    schemes = ("http", "https") if routes.is_near(host.partition(":")[0]) or ":" in host else ("https", "http")
    for scheme in schemes:
        for each in dict.fromkeys((f"/{path}".rstrip("/") if slash and path.strip("/") else "/v1", "/v1", "")):
            if has_address(url := f"{scheme}://{host}{each}"):
                yield url


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _lists(api_base: str, key: str | None, ollama: bool, began: float, *, locked: bool = False) -> bool:
    """Whether the calls' place at an address is there, by its list of models. locked: or by its asking for a key."""
    left = TOTAL_S - (time.monotonic() - began)
    if left <= 0:
        return False
    base = api_base.rstrip("/")
    status, body = _get(f"{base}/api/tags" if ollama else f"{base}/models", key, min(ONE_S, left))
    if status == 401 and not key and locked:
        return True
    return status == 200 and isinstance(body, dict) and isinstance(body.get("models" if ollama else "data"), list)


def _takes_calls(api_base: str, ollama: bool) -> bool:
    """Whether an address has a place for calls that takes no GET: many servers say so by 405."""
    place = "api/chat" if ollama else "chat/completions"
    return _get(f"{api_base.rstrip('/')}/{place}", None, ONE_S)[0] == 405


def _get(url: str, key: str | None, timeout_s: float) -> tuple[int | None, Any]:
    """(status, JSON) of an address; the status is None if it does not answer, the JSON if it is none.

    A certificate that is not trusted counts as an answer: it is the next thing to be told.
    """
    import ssl

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with network.http_client(timeout_s=timeout_s) as client, client.stream("GET", url, headers=headers) as answer:
            text = b""
            for chunk in answer.iter_bytes():
                text += chunk
                if len(text) > _MOST_BYTES:
                    break
            status = answer.status_code
    except Exception as error:  # noqa: BLE001 - whatever keeps it from answering
        untrusted = any(isinstance(each, ssl.SSLCertVerificationError) for each in network.causes(error))
        return (200, {"data": [], "models": []}) if untrusted else (None, None)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, None
