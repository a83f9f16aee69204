"""The server over HTTP: access and rate limit, /health, /metrics, and the SDK's check of Host and Origin.

tokens.py and oauth.py map tokens to tenants; sessions.py limits the sessions that a tenant keeps open.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import logging
import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from core.errors import InfraError, StopRun, UserError
from mcp_server import metrics
from mcp_server.config import ServerSettings
from mcp_server.connections import Body, ConnectionRules, Seldom, SeldomFilter, most_connections
from mcp_server.server import NAME, BankServer, redact_logs
from mcp_server.sessions import IDLE_S, FairSessions
from mcp_server.streams import FairStreams
from mcp_server.tokens import READ, WRITE, is_loopback

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier

    from mcp_server.oauth import IdentityProvider

log = logging.getLogger(__name__)

ONCE = (b"host", b"origin", b"authorization", b"content-type", b"mcp-session-id", b"mcp-protocol-version")
CLIENTS = 10_000  # clients whose budgets the rate limit remembers


class Gate:
    """ASGI middleware: 429 for a client that calls too often, 401 without a valid token (compared in constant time).

    The rate limit knows a client by its tenant if its token is bound to one, else by its address; behind a proxy of
    `server.trusted_proxies` this is the address that the proxy reports, which uvicorn has put into the scope.

    server     the server whose /health and /metrics are answered; None in a test of the rules alone
    token      the bearer token of all clients; None: no token is required
    verifier   a TokenVerifier of the SDK, used instead of `token`: client_id is the tenant, scopes what it may do
    provider   the identity provider (oauth.py) that clients without a token are sent to, if there is one
    security   checks the Host header of /metrics; the SDK checks its own paths itself
    """

    def __init__(
        self,
        app: Any,
        token: str | None,
        requests_per_min: int,
        *,
        verifier: TokenVerifier | None = None,
        provider: IdentityProvider | None = None,
        server: BankServer | None = None,
        security: Any = None,
    ) -> None:
        self.app, self.requests_per_min, self.verifier, self.server = app, requests_per_min, verifier, server
        self._provider = provider
        self._metadata = provider.metadata_app() if provider is not None else None
        self.wanted = None if token is None else f"Bearer {token}".encode()
        self._security, self._seldom = security, Seldom()
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client: (requests left, at)

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":  # no websockets here
            scope["headers"] = [
                (name, value.strip()) for name, value in scope["headers"]
            ]  # RFC 9110, 5.5: no part of it
            await self._answer(scope, receive, send)

    async def _answer(self, scope: dict, receive: Any, send: Any) -> None:
        started = False

        async def counted(message: dict) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self.server.metrics.answered(message["status"])
            await send(message)

        try:
            app, receive = await self._admitted(scope, receive)
            await app(scope, receive, counted)
        except asyncio.CancelledError:  # by uvicorn, after timeout_graceful_shutdown
            if not started:
                says = "the server is stopping"
                await _refused(503, "temporarily_unavailable", says, {"connection": "close"})(scope, receive, counted)

    async def _admitted(self, scope: dict, receive: Any) -> tuple[Any, Any]:
        """(what answers a request, its `receive`): the SDK, once the whole body is there, or a refusal."""
        if (own := await self.own_answer(scope, receive)) is not None:
            return own, receive
        body = Body(receive, self.server.service.settings.max_body_bytes)
        if _says_it_is_larger(scope, body.most) or (arrived := await body.arrive()) == "whole":
            return self.app, body
        if arrived == "late":
            self._seldom.warn("a client did not send the body of a request to its end in time: 408")
            says = "the body was not sent to its end in time"
        else:
            self._seldom.warn("a client left before its request was sent to its end")
            says = "the client has left"  # nobody reads it; metrics count it
        return _refused(408, "request_timeout", says, {"connection": "close"}), receive

    async def own_answer(self, scope: dict, receive: Any) -> Any:
        """A refusal, or what responds for /health, /metrics or /.well-known/...; None: the SDK responds."""
        names = [name for name, _ in scope["headers"]]
        if twice := [name for name in ONCE if names.count(name) > 1]:  # of two, one part would read the other one
            return _refused(400, "invalid_request", f"the header {twice[0].decode()} was sent more than once")
        if scope["path"] == "/health":  # proxies poll it without a token
            return await self.health()
        if self._metadata is not None and scope["path"].startswith("/.well-known/oauth-protected-resource"):
            return self._metadata
        if scope["path"].startswith("/.well-known/"):  # clients with OAuth look here first, and go on without it
            return _refused(404, "not_found", "this server has no OAuth login; it takes a bearer token, or none")
        if (refused := await self.refusal(scope)) is not None:
            return refused
        return await self.metrics_page(Request(scope, receive)) if scope["path"] == "/metrics" else None

    async def refusal(self, scope: dict) -> Response | None:
        """The error response for a request that is refused; None: it is served.

        A tenant's request gets scope["user"], which `BankServer.call_tool` (server.py) puts into `Service.caller`.
        """
        given, address = dict(scope["headers"]).get(b"authorization", b""), (scope.get("client") or ("",))[0]
        token, found = _bearer(given), None
        try:
            if self.verifier is not None and token:
                found = await self.verifier.verify_token(token.decode("latin-1"))
        except UserError as error:  # an unreadable list of tokens lets nobody in
            log.error(str(error))
            return _refused(503, "temporarily_unavailable", "the list of tokens cannot be read")
        except InfraError as error:
            self._seldom.warn(str(error))
            return _refused(503, "temporarily_unavailable", "the identity provider cannot be reached")
        if not self.within_rate(f"tenant {found.client_id}" if found else address):
            return _refused(429, "too_many_requests", "too many requests", {"retry-after": "1"})
        if found is not None and READ not in found.scopes:
            says = "the token has no scope of this server"
            return _refused(403, "insufficient_scope", says, self._challenge("insufficient_scope", says))
        if not (found or (self.verifier is None and self.allowed(given))):
            says = "this server takes the header Authorization: Bearer TOKEN, with the token that its operator gave out"
            if self._provider is not None:
                says = "this server takes the header Authorization: Bearer TOKEN, with an access token for it"
            # RFC 6750, 3: no error code without a token
            return _refused(401, "invalid_token", says, self._challenge("invalid_token" if given else "", says))
        if found is not None:
            scope["user"] = _user(found.client_id, found.scopes)
        return None

    def _challenge(self, error: str, says: str) -> dict[str, str]:
        """The header WWW-Authenticate, which leads clients to the identity provider if there is one (RFC 9728, 5.1)."""
        parts = {"realm": NAME} | ({"error": error} if error else {}) | {"error_description": says}
        if self._provider is not None:
            scopes = [scope for scope in (self._provider.read_scope, self._provider.write_scope) if scope]
            parts |= {"scope": " ".join(scopes)} if scopes else {}
            parts["resource_metadata"] = self._provider.metadata_url
        return {"www-authenticate": "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items())}

    def allowed(self, given: bytes) -> bool:
        """Whether an Authorization header holds the token, or no token is required."""
        return self.wanted is None or hmac.compare_digest(b"Bearer " + _bearer(given), self.wanted)

    def within_rate(self, client: str) -> bool:
        """Take one request from a client's budget (a token bucket, refilled evenly); False if it is used up."""
        now, most = time.monotonic(), float(self.requests_per_min)
        with self._lock:
            left, at = self._buckets.pop(client, (most, now))
            left = min(most, left + (now - at) * most / 60)
            self._buckets[client] = (left - 1 if left >= 1 else left, now)
            if len(self._buckets) > CLIENTS:
                self._buckets.popitem(last=False)
            return left >= 1

    async def health(self) -> Response:
        """200 while the bank can be read, else 503."""
        try:
            await asyncio.to_thread(self.server.service.bank.history.seq)
        except (UserError, InfraError, StopRun):
            return PlainTextResponse("the bank cannot be read", 503)
        return PlainTextResponse("ok")

    async def metrics_page(self, request: Request) -> Response:
        """The response for /metrics, which has the same access rules as the tools."""
        if (refused := await self._security.validate_request(request)) is not None:
            return refused
        if self.verifier is not None and not is_loopback((request.client or ("",))[0]):
            return _refused(403, "forbidden", "/metrics tells of all tenants: it is read on the server's machine")
        service, retrievals = self.server.service, self.server.service.retrievals
        gauges = {}
        with suppress(UserError, InfraError, StopRun):  # if the bank cannot be read, the other numbers are still shown
            jobs = await asyncio.to_thread(service.jobs.counts)
            waiting = jobs.get("pending", 0) + jobs.get("running", 0)
            gauges["extractions_pending"] = "Extractions that wait or run.", waiting
            gauges["extractions_failed"] = "Extractions that failed.", jobs.get("failed", 0)
        counters = {
            "retrievals_total": ("Retrievals, made in batches.", retrievals.made),
            "retrieval_batches_total": ("Batches of retrievals.", retrievals.batches),
            "cpu_seconds_total": ("Seconds of the processor.", time.process_time()),
        }
        text = self.server.metrics.text(gauges, counters)
        return Response(text, headers={"content-type": metrics.CONTENT_TYPE})


def _refused(status: int, error: str, says: str, headers: dict[str, str] | None = None) -> Response:
    """An error response as OAuth clients read it: JSON with `error` and `error_description`."""
    return JSONResponse({"error": error, "error_description": says}, status, headers)


def _says_it_is_larger(scope: dict, most: int) -> bool:
    """Whether a request's Content-Length is beyond the limit: the SDK refuses it by this header."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return length.isdigit() and int(length) > most


def _bearer(given: bytes) -> bytes:
    """The bearer token of an Authorization header; empty if it holds none."""
    scheme, *token = given.split(maxsplit=1)[:2] or [b""]
    return token[0].strip() if token and scheme.lower() == b"bearer" else b""


def _user(tenant: str, scopes: Sequence[str] = (READ, WRITE)) -> AuthenticatedUser:
    """The tenant as a user of the SDK, which then serves a session only to the tenant that opened it."""
    return AuthenticatedUser(AccessToken(token="", client_id=tenant, scopes=list(scopes)))


def build_app(
    server: BankServer,
    transport: str,
    host: str,
    allowed_hosts: list[str],
    token: str | None,
    settings: ServerSettings,
    verifier: TokenVerifier | None = None,
    provider: IdentityProvider | None = None,
) -> Gate:
    """The ASGI application: streamable HTTP at /mcp, or for old clients SSE at /sse.

    allowed_hosts   further Host headers to answer to
    """
    from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings

    if is_loopback(host):
        hosts = ["127.0.0.1", "localhost", "[::1]"]
    elif host in ("0.0.0.0", "::") and not allowed_hosts:
        raise UserError(f"--host {host} answers under any name: say with --allowed-host which ones clients use.")
    else:
        hosts = [] if host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host]
    allowed = [name for known in (*hosts, *allowed_hosts) for name in (known, f"{known}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed]
    security = TransportSecuritySettings(allowed_hosts=allowed, allowed_origins=origins)
    shared = {"host": host, "transport_security": security, "max_request_body_size": settings.max_body_bytes}
    most = _most_sessions(settings)
    if transport == "sse":
        if settings.stateless or settings.json_response:
            raise UserError("--transport sse keeps a session: server.stateless and server.json_response are for http.")
        app = FairStreams(server.sse_app(**shared), most)
    else:
        how = {"stateless_http": settings.stateless, "json_response": settings.json_response}
        kept = {"max_sessions": most, "session_idle_timeout": IDLE_S}
        app = server.streamable_http_app(**kept, **how, **shared)
        app = FairSessions(app, most)
    checked = TransportSecurityMiddleware(security)
    who = {"verifier": verifier, "provider": provider}
    return Gate(app, token, settings.requests_per_min, **who, server=server, security=checked)


def _most_sessions(settings: ServerSettings) -> int:
    """server.max_sessions, or fewer where descriptors are few: each session may hold one, and so may its next call."""
    connections = most_connections()
    if connections is None or settings.max_sessions <= connections // 2:
        return settings.max_sessions
    log.warning(f"this process may open few files (ulimit -n): {connections // 2} sessions at once, not more.")
    return connections // 2


def checked_proxies(given: Any) -> list[str]:
    """server.trusted_proxies: addresses and networks. UserError for anything else, `*` above all."""
    try:
        return [str(ipaddress.ip_network(each)) for each in ([given] if isinstance(given, str) else given or ())]
    except (ValueError, TypeError) as error:
        raise UserError(f"server.trusted_proxies: {error}: give addresses or networks, e.g. [10.0.0.5].") from error


def check_port(host: str, port: int) -> None:
    """Raises UserError, with the next free port, if another program has this one."""
    if not _is_taken(host, port):
        return
    free = next((other for other in range(port + 1, min(port + 100, 65536)) if not _is_taken(host, other)), None)
    hint = "" if free is None else f": --port {free} is free"
    raise UserError(f"port {port} of {host} is used by another program{hint}.")


def _is_taken(host: str, port: int) -> bool:
    """Whether another program listens at a port. Any other trouble with it is for the server to report."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":  # elsewhere it would share the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def serve_http(app: Gate, host: str, port: int, proxies: list[str]) -> None:
    """Serve until interrupted; writes nothing to stdout. proxies: addresses whose X-Forwarded-For is trusted."""
    import uvicorn

    behind = {"proxy_headers": bool(proxies), "forwarded_allow_ips": proxies}
    rules = ConnectionRules(most_connections())
    limits = {"http": rules.protocol(), "limit_concurrency": rules.most, "timeout_graceful_shutdown": 2}
    config = uvicorn.Config(app, host=host, port=port, log_level="warning", ws="none", **limits, **behind)
    redact_logs(app.server.service.redact, "uvicorn")  # it has handlers of its own
    # The rules say so themselves, more seldom.
    logging.getLogger("uvicorn.error").addFilter(lambda line: line.msg != "Exceeded concurrency limit.")
    for handler in (*logging.getLogger().handlers, *logging.getLogger("uvicorn").handlers):
        handler.addFilter(SeldomFilter())
    uvicorn.Server(config).run()
