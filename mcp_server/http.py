"""The server over HTTP: bearer token, rate limit, and the SDK's check of the Host and Origin headers."""

from __future__ import annotations

import hmac
import ipaddress
import os
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from starlette.responses import Response

from core.errors import UserError
from mcp_server.server import BankServer

SHORTEST_TOKEN = 16
ADDRESSES = 10_000  # that the rate limit remembers


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(host: str, env: str, file: Path | None) -> str | None:
    """The bearer token, from a file or an environment variable; None where none is set.

    Raises UserError for a token that is too short, and for a missing one unless only this machine can reach `host`.
    """
    try:
        token = file.read_text(encoding="utf-8").strip() if file is not None else os.environ.get(env, "").strip()
    except OSError as error:
        raise UserError(f"--token-file {file} cannot be read: {error.strerror}.") from error
    if not token and is_loopback(host) and file is None:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii():
        where = f"--token-file {file}" if file is not None else f"the variable {env}"
        raise UserError(
            f"--host {host} is served with a bearer token of at least {SHORTEST_TOKEN} ASCII characters: put one into "
            f"{where} (python -c 'import secrets; print(secrets.token_urlsafe(32))')."
        )
    return token


class Gate:
    """ASGI middleware: 429 for an address that calls too often, 401 without the token, compared in constant time."""

    def __init__(self, app: Any, token: str | None, requests_per_min: int) -> None:
        self.app, self.requests_per_min = app, requests_per_min
        self.wanted = None if token is None else f"Bearer {token}".encode()
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address: (requests left, at)

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if not self.within_rate((scope.get("client") or ("",))[0]):
                refused = Response("Too many requests", 429, {"content-type": "text/plain", "retry-after": "1"})
                return await refused(scope, receive, send)
            if not self.allowed(dict(scope["headers"]).get(b"authorization", b"")):
                refused = Response("Unauthorized", 401, {"content-type": "text/plain", "www-authenticate": "Bearer"})
                return await refused(scope, receive, send)
        elif scope["type"] != "lifespan":
            return None  # no websockets here
        return await self.app(scope, receive, send)

    def allowed(self, given: bytes) -> bool:
        """Whether an Authorization header holds the token."""
        if self.wanted is None:
            return True
        scheme, _, token = given.partition(b" ")
        return hmac.compare_digest(scheme.title() + b" " + token.strip(), self.wanted)

    def within_rate(self, address: str) -> bool:
        """Take one request from an address's budget, which refills evenly; False when it is used up."""
        now, most = time.monotonic(), float(self.requests_per_min)
        with self._lock:
            left, at = self._buckets.pop(address, (most, now))
            left = min(most, left + (now - at) * most / 60)
            self._buckets[address] = (left - 1 if left >= 1 else left, now)
            if len(self._buckets) > ADDRESSES:
                self._buckets.popitem(last=False)
            return left >= 1


def build_app(server: BankServer, transport: str, host: str, names: list[str], token: str | None, limits: Any) -> Gate:
    """The ASGI application: streamable HTTP at /mcp, or for old clients SSE at /sse.

    names    further Host headers to answer to
    limits   the section `server` of config/mcp.yaml
    """
    from mcp.server.transport_security import TransportSecuritySettings

    if is_loopback(host):
        hosts = ["127.0.0.1", "localhost", "[::1]"]
    elif host in ("0.0.0.0", "::") and not names:
        raise UserError(f"--host {host} answers under any name: say with --allowed-host which ones clients use.")
    else:
        hosts = [] if host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host]
    allowed = [name for known in (*hosts, *names) for name in (known, f"{known}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed]
    security = TransportSecuritySettings(allowed_hosts=allowed, allowed_origins=origins)
    shared = {"host": host, "transport_security": security, "max_request_body_size": limits.max_body_bytes}
    if transport == "sse":
        app = server.sse_app(**shared)
    else:
        app = server.streamable_http_app(max_sessions=limits.max_sessions, **shared)
    return Gate(app, token, limits.requests_per_min)


def serve_http(app: Gate, host: str, port: int) -> None:
    """Serve until interrupted; nothing is written to stdout."""
    import uvicorn

    config = uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run()
