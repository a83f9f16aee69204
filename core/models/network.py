"""The way to a server: the HTTP client, and which proxy, certificate or redirect is at fault when a call fails.

The client reads the variables of the environment itself (`proxy_of`, `_certificates`), so that a failure can be put
down to the variable that was really used for an address. It follows at most MOST_REDIRECTS redirects, sends no key to
another host, and refuses a redirect that would turn a call into a GET without its content.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from core.models.message import canonical_bytes
from core.models.token_counts import with_readable_usage

MOST_REDIRECTS = 5
IDLE_S = 5.0  # after which a connection that no call uses is closed
_OWN_NETWORK = ("localhost", "host.docker.internal")  # besides addresses that no proxy of a company can reach
_SECRETS = re.compile(r"auth|key|token|secret|cookie", re.I)  # names of headers that no other host gets


class Blocked(Exception):
    """The way to a server is blocked: the message is the sentence that names the setting, without a full stop."""


class Lost(Blocked):
    """A redirect turns the call into a GET without content. target: the address that it names."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.target = target


@dataclass
class Hop:
    """One HTTP request, of which a call has several if it is redirected. asked: its httpx.URL."""

    method: str
    asked: Any
    status: int | None = None  # None: no answer came
    headers: dict[str, str] = field(default_factory=dict)  # of the answer, in lower case

    @property
    def url(self) -> str:
        """The address without user, password and query."""
        return str(self.asked.copy_with(query=None, fragment=None, username=None, password=None))

    @property
    def origin(self) -> tuple[str, str, int | None]:
        return self.asked.scheme, self.asked.host, self.asked.port

    @property
    def is_json(self) -> bool:
        return "json" in self.headers.get("content-type", "")


class Trail(threading.local):
    """This thread's latest call: its requests, and the answer to it as httpx has it, read to its end; None: none."""

    def __init__(self) -> None:
        self.hops: list[Hop] = []
        self.answer: Any = None


# Proxies.


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """The proxy for an address. variable: where it is set; url: with user and password; host: whom it is for."""

    variable: str
    url: str
    host: str

    @property
    def shown(self) -> str:
        """Its address without user and password, also if it is no valid one."""
        scheme, _, rest = self.url.rpartition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def way_round(self) -> str:
        """What to do about it: past it, if the server is in the user's own network."""
        past = f"add {self.host} to NO_PROXY"
        return f"{past}, as no proxy is needed there" if is_near(self.host) else f"correct {self.variable}, or {past}"


def proxy_of(url: str) -> Proxy | None:
    """The proxy that the environment sets for an address; None if the address is asked directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    known = getproxies()
    for scheme in (parts.scheme, "all"):
        if value := known.get(scheme):
            if _bypassed(host, parts.port, known.get("no", "")):
                return None
            spelt = (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
            variable = next((name for name in spelt if os.environ.get(name)), "the system's settings")
            return Proxy(variable=variable, url=value if "://" in value else f"http://{value}", host=host)
    return None


def is_near(host: str) -> bool:
    """Whether a host is this machine or in a private network, so that a proxy to the internet is of no use."""
    if (address := _ip(host)) is not None:
        return address.is_loopback or address.is_private or address.is_link_local
    return host.lower() in _OWN_NETWORK or host.lower().endswith((".localhost", ".local"))


def _bypassed(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether NO_PROXY names a host: as itself, by the end of its name, by a network, with or without a port."""
    for entry in re.split(r"[\s,;]+", no_proxy.lower()):
        name, its_port = _entry(entry)
        if not name or (its_port and its_port != str(port)):
            continue
        if name == "*" or name == host.lower() or host.lower().endswith("." + name.lstrip("*.")):
            return True
        if (address := _ip(host)) is not None and _within(address, name):
            return True
        if name.lstrip("*.") == host.lower():
            return True
    return False


def _entry(text: str) -> tuple[str, str]:
    """(host or network, port or "") of an entry of NO_PROXY; an IPv6 address may be in brackets."""
    text = text.rpartition("://")[2]
    if match := re.fullmatch(r"\[(.*)\](?::(\d+))?", text):
        return match[1], match[2] or ""
    host, _, port = text.rpartition(":")
    return (host, port) if port.isdecimal() and host and ":" not in host else (text, "")


def _ip(host: str) -> Any:
    try:
        return ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return None


def _within(address: Any, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


# Certificates.


def _authorities() -> tuple[str, str] | None:
    """(variable, value) of the environment that says which certificates are trusted; None: certifi's are."""
    return next(((n, os.environ[n]) for n in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(n)), None)


def _certificates() -> ssl.SSLContext:
    """The certificates to trust. Raises Blocked if the variable that names them is wrong."""
    import certifi

    found = _authorities()
    if found is None:
        return ssl.create_default_context(cafile=certifi.where())
    name, value = found
    try:
        if name == "SSL_CERT_DIR":
            next(Path(value).iterdir(), None)  # a folder that is missing would be an empty one
            return ssl.create_default_context(capath=value)
        return ssl.create_default_context(cafile=value)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else "it holds no PEM certificate"
        raise Blocked(f"{name}={value} cannot be read ({why}): correct or unset that variable") from error


def _about_certificate(url: str, error: ssl.SSLCertVerificationError) -> str:
    """The sentence for a certificate that is not trusted."""
    said = error.verify_message or str(error)
    start = f"the certificate of {_origin_text(url)} is not trusted: {said.rstrip('.')}"
    found = _authorities()
    now = f"{found[0]}={found[1]}" if found else "SSL_CERT_FILE"
    if "expired" in said or "not yet valid" in said:
        return f"{start}: renew it, or correct this machine's clock; {now} has no part in it"
    if "mismatch" in said or "not valid for" in said:
        return f"{start}: give a name for which it was made as address; {now} has no part in it"
    if found:
        return f"{start}: {now} must hold the certificate of the authority that signed it"
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        if value := os.environ.get(name):
            return f"{start}: {name} is not read here; set SSL_CERT_FILE={value}"
    return f"{start}: set SSL_CERT_FILE=FILE, a PEM file with the certificate of the authority that signed it"


# The client.


def http_client(trail: Trail | None = None, timeout_s: float | None = 5.0) -> Any:
    """An httpx client for many threads, with a deadline for the whole response; messages in one form (`canonical`).

    httpx's read timeout alone would let a server send one byte a second for ever.

    trail   is told the requests of each call, redirects included, and the answer
    """
    import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any, request: Any, end: Callable[[], None]) -> None:
            self._stream, self._request, self._end = stream, request, end

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                if time.monotonic() > self._request.extensions.get("deadline", float("inf")):
                    raise httpx.ReadTimeout("the answer took longer than the limit", request=self._request)
                yield chunk

        def close(self) -> None:
            self._stream.close()
            end, self._end = self._end, lambda: None  # a stream may be closed more than once
            end()

    class Routed(httpx.BaseTransport):
        """Connections by the way that the environment says for each address, one for each call that is under way.

        One pool for all would look at each of its connections before every call: with 128 of them that takes longer
        than all the rest.
        """

        def __init__(self) -> None:
            self._idle: dict[Any, deque[tuple[float, Any]]] = defaultdict(deque)  # (since when, one connection's way)
            self._lock = threading.Lock()
            self._certificates = cache(_certificates)

        def handle_request(self, request: Any) -> Any:
            url = request.url
            with self._lock:
                idle = self._idle[url.scheme, url.host, url.port]
                way = idle.pop()[1] if idle else None
            way = way or _transport(httpx, str(url), self._certificates)

            def give_back() -> None:
                now, old = time.monotonic(), []
                with self._lock:
                    idle.append((now, way))
                    while idle[0][0] < now - IDLE_S:
                        old.append(idle.popleft()[1])
                for each in old:
                    each.close()

            try:
                response = way.handle_request(request)
            except BaseException:
                give_back()
                raise
            response.stream = Bounded(response.stream, request, give_back)
            return response

        def close(self) -> None:
            for idle in self._idle.values():
                while idle:
                    idle.pop()[1].close()

    def begin(request: Any) -> None:
        hops = request.extensions.setdefault("hops", [])  # the same list in the requests of its redirects
        hop = Hop(method=request.method, asked=request.url)
        if trail is not None:
            trail.hops = hops
        if hops:
            _check_redirect(request, hops[0], hops[-1], hop)
        elif limit := request.extensions.get("timeout", {}).get("read"):
            request.extensions["deadline"] = time.monotonic() + limit
        hops.append(hop)

    def bound(response: Any) -> None:
        hop = response.request.extensions["hops"][-1]
        hop.status, hop.headers = response.status_code, dict(response.headers)
        if response.request.method == "POST" and not response.is_redirect:  # a call; others are read as far as needed
            response.read()
            if response.status_code == 200 and "event-stream" not in response.headers.get("content-type", ""):
                # httpx has no public way to change what was read.
                response._content = with_readable_usage(canonical_bytes(response.content))
            if trail is not None:
                trail.answer = response

    return httpx.Client(
        event_hooks={"request": [begin], "response": [bound]},
        transport=Routed(),
        timeout=timeout_s,
        follow_redirects=True,
        max_redirects=MOST_REDIRECTS,
        trust_env=False,
    )


def _transport(httpx: Any, url: str, certificates: Callable[[], ssl.SSLContext] = _certificates) -> Any:
    """Connections to an address, through its proxy if it has one. Raises Blocked for a variable that cannot be used."""
    proxy = proxy_of(url)
    secure = url.startswith("https:") or (proxy is not None and proxy.url.startswith("https:"))
    how = {
        "verify": certificates() if secure else False,  # False: no connection will be encrypted
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=None),
        "trust_env": False,
    }
    if proxy is None:
        return httpx.HTTPTransport(**how)
    try:
        urlsplit(proxy.url).port  # noqa: B018 - raises ValueError
        return httpx.HTTPTransport(**how, proxy=proxy.url)
    except ImportError as error:
        said = f"{proxy.variable}={proxy.shown} is a SOCKS proxy, which needs the package socksio (pip install socksio)"
        raise Blocked(f"{said}: install it, or {proxy.way_round()}") from error
    except (ValueError, TypeError, httpx.InvalidURL) as error:
        said = f"{proxy.variable}={proxy.shown} is no address of a proxy: give http://HOST:PORT"
        raise Blocked(f"{said}, or add {proxy.host} to NO_PROXY") from error


def _check_redirect(request: Any, first: Hop, last: Hop, now: Hop) -> None:
    """Raise Blocked if a redirect loses the call's content; take the key from a request to another host."""
    if now.method != first.method:
        raise Lost(
            f"{last.url} redirects ({last.status}) to {now.url}, and such a redirect loses what is sent", now.url
        )
    scheme, host, port = first.origin
    upgraded = (scheme, port, now.origin) == ("http", None, ("https", host, None))
    if now.origin != first.origin and not upgraded:
        for name in [name for name in request.headers if _SECRETS.search(name)]:
            del request.headers[name]


# What is at fault when a call fails.


@dataclass(frozen=True)
class Fault:
    """Why a call failed on its way: a sentence without a full stop. passing: it may be another time."""

    text: str
    passing: bool = False


def fault(error: BaseException, hops: list[Hop], address: str | None, *, reached: bool = False) -> Fault | None:
    """Why a call failed on its way to the server; None if the server itself failed.

    hops      the call's requests; [] if a client of another library made them
    address   whom it was for, if known
    reached   whether this server has answered before, so that its way is open
    """
    chain = list(causes(error))
    if text := _redirect_fault(chain, hops, address) or _setting_fault(chain, hops, address, reached):
        return Fault(text)
    url = hops[-1].url if hops else address or _asked(chain)
    if not url:
        return None
    proxy = proxy_of(url)
    through = f" through the proxy {proxy.shown} of {proxy.variable}" if proxy else ""
    if untrusted := _first(chain, ssl.SSLCertVerificationError):
        return Fault(_about_certificate(url, untrusted) + (f" (asked{through})" if proxy else ""))
    if proxy is None or (said := _proxy_said(proxy, chain, hops, reached)) is None:
        return None
    busy = bool(hops) and hops[-1].status in (500, 502, 503, 504) and not is_near(proxy.host)
    return Fault(f"{_origin_text(url)} cannot be reached{through}: {said}: {proxy.way_round()}", passing=busy)


def _redirect_fault(chain: list[BaseException], hops: list[Hop], address: str | None) -> str | None:
    import httpx

    if lost := _first(chain, Lost):
        return f"{lost}: {_behind(lost.target, hops, address)}"
    return _circle(hops) if _first(chain, httpx.TooManyRedirects) and hops else _key_left_behind(hops)


def _setting_fault(chain: list[BaseException], hops: list[Hop], address: str | None, reached: bool) -> str | None:
    """The sentence for a variable that cannot be used, found by this client, or by another that made no request."""
    import httpx

    if blocked := _first(chain, Blocked):
        return str(blocked)
    asked = hops or reached or _first(chain, httpx.TransportError) or getattr(chain[0], "response", None) is not None
    return None if asked else wrong_setting(address)


def _proxy_said(proxy: Proxy, chain: list[BaseException], hops: list[Hop], reached: bool) -> str | None:
    """What went wrong between here and a proxy, or what it answered in the server's place; None: neither."""
    import httpx

    status = hops[-1].status if hops else None
    if refused := _first(chain, httpx.ProxyError):
        return f"it answers {refused}"
    if status == 407:
        return "it wants a user and a password (407)"
    if _first(chain, ssl.SSLError):
        return "TLS is not spoken there" if proxy.url.startswith("https:") else None
    if refused := _first(chain, (httpx.ConnectError, httpx.ConnectTimeout)):
        return os_words(refused)
    if reached or not hops or not hops[-1].url.startswith("http:"):
        return None  # with https a proxy passes on what it cannot read
    if (broken := _first(chain, httpx.NetworkError) or _first(chain, httpx.RemoteProtocolError)) and is_near(
        proxy.host
    ):
        return os_words(broken)
    if status is not None and not hops[-1].is_json:
        return f"the answer is {status}, and not in JSON as a model's"
    return None


def _key_left_behind(hops: list[Hop]) -> str | None:
    """The sentence for a call that was redirected to another host, which refused it for want of the key."""
    if len(hops) < 2 or hops[-1].status not in (401, 403) or hops[-1].origin == hops[0].origin:
        return None
    return f"{hops[0].url} redirects to {hops[-1].url}, where no key is sent: give that host's address as api_base"


def _behind(target: str, hops: list[Hop], address: str | None) -> str:
    """What to do about a redirect: the address to give, if it differs from `address` as the request does."""
    base = (address or "").rstrip("/")
    tail = hops[0].url.removeprefix(base) if hops and base else ""
    if tail and target.endswith(tail) and hops[0].url.startswith(base):
        return f"use api_base={target.removesuffix(tail)}"
    return "give the address behind it as api_base"


def wrong_setting(url: str | None = None) -> str | None:
    """The sentence for a variable that no client can use for an address, None: for any; None if all can be used."""
    import httpx

    try:
        for each in [url] if url else ["https://server.invalid", "http://server.invalid"]:
            _transport(httpx, each).close()
    except Blocked as error:
        return str(error)
    try:
        httpx.Client().close()
    except (ValueError, httpx.InvalidURL) as error:  # the libraries read NO_PROXY more strictly
        name = next((name for name in ("no_proxy", "NO_PROXY") if os.environ.get(name)), "NO_PROXY")
        value = os.environ.get(name, "")
        return f"{name}={value} cannot be read ({error}): correct it; an IPv6 address has no brackets there"
    except (OSError, ImportError):  # a certificate or a proxy of another scheme
        return None
    return None


def _asked(chain: list[BaseException]) -> str | None:
    """The address of a request that another library made."""
    import httpx

    broken = _first(chain, httpx.TransportError)
    request = getattr(broken, "_request", None)
    return str(request.url) if request is not None else None


def _circle(hops: list[Hop]) -> str:
    asked = [hop.url for hop in hops]
    again = next((n for n, url in enumerate(asked) if url in asked[:n]), None)
    what = "on and on" if again is None else "in a circle"
    way = " -> ".join(asked if again is None else asked[: again + 1])
    return f"{asked[0]} redirects {what} ({way}): cut after {MOST_REDIRECTS} redirects"


def speaks_otherwise(error: BaseException, hops: list[Hop]) -> bool:
    """Whether a call may have failed because http was spoken to a server of https, or the reverse."""
    import httpx

    chain = list(causes(error))
    if _first(chain, ssl.SSLCertVerificationError):
        return False
    status = hops[-1].status if hops else None
    told = status == 400 and not hops[-1].is_json  # "The plain HTTP request was sent to HTTPS port"
    broken_off = status is None and _first(chain, (httpx.RemoteProtocolError, httpx.ReadError))
    return bool(_first(chain, ssl.SSLError) or broken_off or told)


def os_words(error: BaseException) -> str:
    """The operating system's words for a failed connection, e.g. "Connection refused"."""
    found = next((each.strerror for each in causes(error) if isinstance(each, OSError) and each.strerror), None)
    return found or " ".join(str(error).split()) or type(error).__name__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it, at most 12 of them."""
    for _ in range(12):  # they may loop
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _first(chain: list[BaseException], kind: Any) -> Any:
    return next((each for each in chain if isinstance(each, kind)), None)


def _origin_text(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
