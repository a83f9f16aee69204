"""The server over HTTP: the SDK's application, without sessions, behind the SDK's check of tokens; and /health.

Limits of rate, time and connections are for the proxy in front, which is required beyond loopback (deploy/haproxy.cfg).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.authentication import AuthenticationError
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from core.errors import InfraError, StopRun, UserError
from core.escaping import printable
from mcp_server.config import ServerSettings
from mcp_server.server import BankServer, redact_logs
from mcp_server.tokens import READ, is_loopback

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier

    from mcp_server.oauth import IdentityProvider

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_BYTES, LOGS = 10_000_000, 3  # of `server.log`, and further files of it that are kept
MOST_CLIENTS = 10_000  # whose first request is noted
log = logging.getLogger(__name__)


class TokenBackend(BearerAuthBackend):
    """The SDK's check of bearer tokens, answering 503 while there is nothing to check them with.

    A tenant's request gets scope["user"], from where `BankServer.call_tool` (server.py) sets `Service.caller`.
    """

    async def authenticate(self, conn: HTTPConnection) -> Any:
        try:
            return await super().authenticate(conn)
        except (UserError, InfraError) as error:  # an unreadable list, a provider without an answer: nobody is let in
            log.error(str(error))
            raise AuthenticationError("tokens cannot be checked now: the server's log says why") from error

    @staticmethod
    def unavailable(conn: HTTPConnection, error: AuthenticationError) -> Response:
        """The answer while `authenticate` raises."""
        return JSONResponse({"error": "temporarily_unavailable", "error_description": str(error)}, 503)


class FromProxy:
    """ASGI middleware: 403 for a client that comes neither from this machine nor through the proxy in front.

    proxies   addresses or networks of the proxy (`server.trusted_proxies`)
    """

    def __init__(self, app: Any, proxies: list[str]) -> None:
        self._app, self._networks = app, [ipaddress.ip_network(each) for each in proxies]

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self._may_ask(scope["client"][0]):
            refused = {"error": "forbidden", "error_description": "this server is reached through its proxy"}
            await JSONResponse(refused, 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _may_ask(self, client: str) -> bool:
        address = ipaddress.ip_address(client)
        address = getattr(address, "ipv4_mapped", None) or address
        return address.is_loopback or any(address in network for network in self._networks)


class RequestLog:
    """ASGI middleware: logs each refused request, and of each client (a tenant, or an address) the first one."""

    def __init__(self, app: Any) -> None:
        self._app, self._known = app, set()

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        async def noted(message: dict) -> None:
            if message["type"] == "http.response.start" and scope["path"] != "/health":
                self._note(scope, message["status"])
            await send(message)

        await self._app(scope, receive, noted if scope["type"] == "http" else send)

    def _note(self, scope: dict, status: int) -> None:
        token, address = getattr(scope.get("user"), "access_token", None), scope["client"][0]
        name = f"{token.client_id} at {address}" if token is not None and token.client_id else address
        if status >= 400:
            log.warning(f"refused with {status}: {scope['method']} {printable(scope['path'])[:200]} of {name}")
        elif name not in self._known and len(self._known) < MOST_CLIENTS:
            self._known.add(name)
            agent = dict(scope["headers"]).get(b"user-agent", b"").decode("latin-1")
            log.info(f"the first request of {name} ({printable(agent)[:80]})")


def build_app(
    server: BankServer,
    transport: str,
    host: str,
    allowed_hosts: list[str],
    settings: ServerSettings,
    verifier: TokenVerifier | None = None,
    provider: IdentityProvider | None = None,
) -> Starlette:
    """The ASGI application: streamable HTTP at /mcp, or for old clients SSE at /sse.

    allowed_hosts   further Host headers to answer to
    verifier        of the SDK: client_id is the tenant, scopes what it may do; None: no token is asked for
    provider        the identity provider (oauth.py) that clients without a token are sent to, if there is one

    Raises UserError for a host beyond loopback without the names that clients use, or without a proxy.
    """
    proxies = checked_proxies(settings.trusted_proxies)
    security = host_rules(host, allowed_hosts, proxies)
    shared = {"host": host, "transport_security": security, "max_request_body_size": settings.max_body_bytes}
    if transport == "sse":
        app, paths = server.sse_app(**shared), ("/sse", "/messages/{rest:path}")
    else:
        app, paths = server.streamable_http_app(stateless_http=True, json_response=True, **shared), ("/mcp",)

    async def health(request: Request) -> Response:
        """200 while the bank can be read, else 503. Proxies poll it without a token, so a fault is logged once."""
        nonlocal fault
        before, fault = fault, ""
        try:
            await asyncio.to_thread(server.service.bank.history.seq)
        except (UserError, InfraError, StopRun) as error:
            fault = str(error)
        if fault != before:
            log.error(f"/health: {fault or 'the bank can be read again'}")
        return PlainTextResponse("the bank cannot be read" if fault else "ok", 503 if fault else 200)

    fault = ""
    guarded, middleware = app, [Middleware(RequestLog), Middleware(FromProxy, proxies=proxies)]
    if verifier is not None:
        guarded = RequireAuthMiddleware(app, [READ], provider.metadata_url if provider is not None else None)
        backend = {"backend": TokenBackend(verifier), "on_error": TokenBackend.unavailable}
        middleware.append(Middleware(AuthenticationMiddleware, **backend))
    routes = [Route("/health", health), *(Route(path, guarded) for path in paths)]
    routes += provider.metadata_routes() if provider is not None else []
    how = {"lifespan": lambda _: app.router.lifespan_context(app), "exception_handlers": {404: _not_found}}
    return Starlette(routes=routes, middleware=middleware, **how)


def _not_found(request: Request, error: Exception) -> Response:
    """JSON, as clients with OAuth parse what they get at /register and /.well-known."""
    return JSONResponse({"error": "not_found", "error_description": "there is nothing at this address"}, 404)


def host_rules(host: str, allowed_hosts: list[str], proxies: list[str]) -> TransportSecuritySettings:
    """The Host and Origin headers that are answered."""
    everywhere = host in ("0.0.0.0", "::")
    if is_loopback(host):
        hosts = ["127.0.0.1", "localhost", "[::1]"]
    elif everywhere and not allowed_hosts:
        raise UserError(f"--host {host} answers under any name: say with --allowed-host which ones clients use.")
    elif not proxies:
        raise UserError(
            f"--host {host} is for a proxy with TLS in front: name its address, server.trusted_proxies=[10.0.0.5]. "
            "Only it and this machine are answered (docs/mcp.md)."
        )
    else:
        hosts = [] if everywhere else [f"[{host}]" if ":" in host else host]
    allowed = [name for known in (*hosts, *allowed_hosts) for name in (known, f"{known}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed]
    return TransportSecuritySettings(allowed_hosts=allowed, allowed_origins=origins)


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


def serve_http(app: Starlette, server: BankServer, host: str, port: int) -> None:
    """Serve until interrupted; writes nothing to stdout."""
    import uvicorn

    # h11: httptools leaves blanks behind a header's value in it
    how = {"log_level": "warning", "http": "h11", "ws": "none", "proxy_headers": False, "timeout_graceful_shutdown": 2}
    most = server.service.settings.max_sessions
    config = uvicorn.Config(app, host=host, port=port, limit_concurrency=most, **how)
    logging.getLogger("mcp_server").setLevel(logging.INFO)
    if file := server.service.settings.log:
        try:
            handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOGS, encoding="utf-8")
        except OSError as error:
            raise UserError(f"server.log={file} cannot be written: {error.strerror}.") from error
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        for name in (None, "uvicorn"):
            logging.getLogger(name).addHandler(handler)
        redact_logs(server.service.redact)
    redact_logs(server.service.redact, "uvicorn")  # it has handlers of its own
    uvicorn.Server(config).run()
