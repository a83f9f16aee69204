"""The way to a server that the environment sets: its proxy, and the certificates that are trusted.

The variables are read here and not by httpx, so that a failure can be put down to the one that was really used for an
address (network.py).
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

_OWN_NETWORK = ("localhost", "host.docker.internal")  # besides addresses that no proxy of a company can reach


class Blocked(Exception):
    """The way to a server is blocked: the message is the sentence that names the setting, without a full stop."""


class Lost(Blocked):
    """A redirect turns the call into a GET without content. target: the address that it names."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.target = target


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


def authorities() -> tuple[str, str] | None:
    """(variable, value) of the environment that says which certificates are trusted; None: certifi's are."""
    return next(((n, os.environ[n]) for n in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(n)), None)


def certificates() -> ssl.SSLContext:
    """The certificates to trust. Raises Blocked if the variable that names them is wrong."""
    import certifi

    found = authorities()
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


def transport(url: str, trusted: Callable[[], ssl.SSLContext] = certificates) -> Any:
    """Connections to an address, through its proxy if it has one. Raises Blocked for a variable that cannot be used."""
    import httpx

    proxy = proxy_of(url)
    secure = url.startswith("https:") or (proxy is not None and proxy.url.startswith("https:"))
    how = {
        "verify": trusted() if secure else False,  # False: no connection will be encrypted
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
