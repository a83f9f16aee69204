"""The HTTP client of all models, and what a call that got no answer may be due to.

Proxies (HTTP_PROXY and the like, NO_PROXY) and certificates (SSL_CERT_FILE, SSL_CERT_DIR) are read from the environment
by httpx. No redirect is followed, so no key and no prompt goes to an address that nobody has given.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from core.errors import StopRun
from core.models.message import canonical_bytes
from core.models.streamed import unstreamed

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_OTHERS = ("no_proxy", "NO_PROXY", *_CERTIFICATES)


class Trail(threading.local):
    """The answer to this thread's latest call, as httpx has it, read to its end; None: no answer came."""

    def __init__(self) -> None:
        self.answer: Any = None


def http_client(address: str | None, trail: Trail | None = None, timeout_s: float | None = 5.0) -> Any:
    """An httpx client for many threads, with a deadline for the whole response; messages in one form (`canonical`).

    address   what it is for; None: several, or unknown
    trail     is told the answer of each call

    Raises StopRun if a proxy or a certificate that the environment names cannot be used.
    """
    import httpx

    def begin(request: Any) -> None:
        limit = request.extensions.get("timeout", {}).get("read")
        request.extensions["deadline"] = time.monotonic() + limit if limit else float("inf")

    def answered(response: Any) -> None:
        response.stream = _bounded(response)
        if response.request.method != "POST":  # a list of models, which is read as far as needed
            return
        response.read()
        if response.status_code == 200 and b'"stream":true' not in response.request.content.replace(b" ", b""):
            whole = unstreamed(response.content)
            if whole is not response.content:
                response.headers["content-type"] = "application/json"
            response._content = canonical_bytes(whole)  # httpx has no public way to change what was read
        if trail is not None:
            trail.answer = response

    try:
        return httpx.Client(
            event_hooks={"request": [begin], "response": [answered]},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            # Without TLS there is no certificate to verify, and reading those that are trusted takes a while.
            verify=address is None or not address.startswith("http:") or bool(proxies_set()),
            timeout=timeout_s,
        )
    except (ValueError, OSError, ImportError, httpx.InvalidURL) as error:
        raise StopRun(f"no connection can be made: {' '.join(str(error).split())}{proxies_set(*_OTHERS)}.") from error


def _bounded(response: Any) -> Any:
    """The content of an answer, with the request's deadline for the whole of it.

    httpx's read timeout alone would let a server send one byte a second for ever.
    """
    import httpx

    stream, request = response.stream, response.request

    class Bounded(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for chunk in stream:
                if time.monotonic() > request.extensions["deadline"]:
                    raise httpx.ReadTimeout("the answer took longer than the limit", request=request)
                yield chunk

        def close(self) -> None:
            stream.close()

    return Bounded()


def proxies_set(*also: str) -> str:
    """The proxies that the environment sets, as the end of a sentence; "" if there are none.

    also   further variables that may be at fault
    """
    names = [name for each in _PROXIES for name in (each, each.upper())]
    found = [f"{name}={_without_user(value)}" for name in (*names, *also) if (value := os.environ.get(name))]
    near = "; NO_PROXY lists the hosts that are asked without a proxy" if any(map(os.environ.get, names)) else ""
    return f" (set in the environment: {', '.join(found)}{near})" if found else ""


def _without_user(value: str) -> str:
    """A proxy's address without its user and password."""
    scheme, slashes, rest = value.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


def about_connection(error: BaseException) -> str:
    """Why a server cannot be reached, as the end of a sentence."""
    import ssl  # 13 ms, which what asks no model does without

    chain = list(causes(error))
    words = next((each.strerror for each in chain if isinstance(each, OSError) and each.strerror), None)
    said = words or " ".join(str(error).split()) or type(error).__name__
    if not any(isinstance(each, ssl.SSLError) for each in chain):
        return f"{said}{proxies_set()}"
    return f"{said}; SSL_CERT_FILE=FILE names the certificates that are trusted{proxies_set(*_CERTIFICATES)}"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it, at most 12 of them."""
    for _ in range(12):  # they may loop
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
