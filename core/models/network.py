"""The HTTP client of all models, and what a call that got no answer may be due to.

Proxies (HTTP_PROXY and the like, NO_PROXY) and certificates (SSL_CERT_FILE, SSL_CERT_DIR) are read from the environment
by httpx. No redirect is followed, so no key and no prompt goes to an address that nobody has given.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from core.errors import StopRun
from core.models.message import canonical_body
from core.models.streamed import unstreamed

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_OTHERS = ("no_proxy", "NO_PROXY", *_CERTIFICATES)


class Trail(threading.local):
    """The answer to this thread's latest call, as httpx has it, read to its end; None: no answer came."""

    def __init__(self) -> None:
        self.answer: Any = None


class Clients:
    """The HTTP clients of one address: one for each call in flight, kept from call to call. Thread-safe.

    One client for all calls would look through all of its connections, several times a call and behind a lock: with 128
    calls at once that takes longer than the calls.
    """

    def __init__(self, address: str | None, trail: Trail) -> None:
        self._address, self._trail, self._lock = address, trail, threading.Lock()
        self._make: Callable[[], Any] | None = None
        self._all: list[Any] = []
        self._free: list[Any] = []

    def new(self) -> Any:
        """A further client, which `close` closes. Raises StopRun, as `client_maker`."""
        with self._lock:
            self._make = self._make or client_maker(self._address, self._trail)
            self._all.append(self._make())
            return self._all[-1]

    @contextmanager
    def lease(self) -> Iterator[Any]:
        """A client for the length of the with block; nothing else uses it meanwhile."""
        try:
            client = self._free.pop()  # the one that was used last, so that as few as possible are
        except IndexError:
            client = self.new()
        try:
            yield client
        finally:
            if not client.is_closed:
                self._free.append(client)

    def close(self) -> None:
        """Close every connection; calls in flight fail. A later call opens another."""
        with self._lock:
            clients, self._all, self._free = self._all, [], []
        for client in clients:
            client.close()


def http_client(address: str | None, timeout_s: float | None = 5.0) -> Any:
    """An httpx client for many threads: see `client_maker`."""
    return client_maker(address, timeout_s=timeout_s)()


def client_maker(address: str | None, trail: Trail | None = None, timeout_s: float | None = 5.0) -> Callable[[], Any]:
    """A function that makes httpx clients with a deadline for the whole response; messages in one form (`canonical`).

    The answer to a POST is read to its end, and if it is JSON, it is in its `extensions` as "body", as parsed.

    address   what they are for; None: several, or unknown
    trail     is told the answer of each call

    Raises StopRun if a proxy or a certificate that the environment names cannot be used, as the function does.
    """
    import httpx

    class Bounded(httpx.SyncByteStream):
        """The content of an answer, with the request's deadline for the whole of it.

        httpx's read timeout alone would let a server send one byte a second for ever.
        """

        def __init__(self, response: Any) -> None:
            self.stream, self.request = response.stream, response.request

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self.stream:
                if time.monotonic() > self.request.extensions["deadline"]:
                    raise httpx.ReadTimeout("the answer took longer than the limit", request=self.request)
                yield chunk

        def close(self) -> None:
            self.stream.close()

    def begin(request: Any) -> None:
        limit = request.extensions.get("timeout", {}).get("read")
        request.extensions["deadline"] = time.monotonic() + limit if limit else float("inf")

    def answered(response: Any) -> None:
        response.stream = Bounded(response)
        if response.request.method != "POST":  # a list of models, which is read as far as needed
            return
        response.read()
        if response.is_success and b'"stream":true' not in response.request.content.replace(b" ", b""):
            whole = unstreamed(response.content)
            if whole is not response.content:
                response.headers["content-type"] = "application/json"
            with suppress(ValueError, RecursionError):  # what is no JSON is left to the client
                # httpx has no public way to change what was read
                response._content, response.extensions["body"] = canonical_body(whole, response.encoding)
        if trail is not None:
            trail.answer = response

    @contextmanager
    def usable() -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError, ImportError, httpx.InvalidURL) as error:
            why = f"{' '.join(str(error).split())}{proxies_set(*_OTHERS)}"
            raise StopRun(f"no connection can be made: {why}.") from error

    with usable():  # once for all clients, as reading the certificates that are trusted takes a while; without TLS none
        tls = address is None or not address.startswith("http:") or bool(proxies_set())
        certificates = httpx.create_ssl_context(verify=tls)

    def make() -> Any:
        with usable():
            return httpx.Client(
                event_hooks={"request": [begin], "response": [answered]},
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
                verify=certificates,
                timeout=timeout_s,
            )

    return make


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
