"""The HTTP client, and which proxy, certificate or redirect is at fault when a call fails.

The client goes by the routes that the environment sets (routes.py). It follows at most MOST_REDIRECTS redirects, sends
no key to another host, and refuses a redirect that would turn a call into a GET without its content.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from core.models.message import canonical_bytes
from core.models.routes import (
    Blocked,
    Lost,
    Proxy,
    authorities,
    is_near,
    proxy_of,
    transport,
)
from core.models.token_counts import with_readable_usage

MOST_REDIRECTS = 5
_SECRETS = re.compile(r"auth|key|token|secret|cookie", re.I)  # names of headers that no other host gets


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


# The client.


def http_client(trail: Trail | None = None, timeout_s: float | None = 5.0) -> Any:
    """An httpx client for many threads, with a deadline for the whole response; messages in one form (`canonical`).

    trail   is told the requests of each call, redirects included, and the answer
    """
    import httpx

    from core.models.connections import OwnConnections

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

    def answered(response: Any) -> None:
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
        event_hooks={"request": [begin], "response": [answered]},
        transport=OwnConnections(),
        timeout=timeout_s,
        follow_redirects=True,
        max_redirects=MOST_REDIRECTS,
        trust_env=False,
    )


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


def _about_certificate(url: str, error: ssl.SSLCertVerificationError) -> str:
    """The sentence for a certificate that is not trusted."""
    said = error.verify_message or str(error)
    start = f"the certificate of {_origin_text(url)} is not trusted: {said.rstrip('.')}"
    found = authorities()
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
            transport(each).close()
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
