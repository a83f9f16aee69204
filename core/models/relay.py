"""A way from a sandbox without a network to one model server, for agents that are programs of their own.

    agent in the sandbox -> 127.0.0.1:PORT there (FORWARD) -> a socket file -> Relay, in this process -> the server

The relay passes each request on as it came and gives back what the server said; it adds nothing. In the request's
headers PLACEHOLDER becomes the real key, so the key never enters the sandbox. Every call is counted and logged by the
role's meter, whose budgets refuse further ones. Paths that ask no model are refused.
"""

from __future__ import annotations

import json
import os
import socketserver
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from core.errors import OverBudget, StopRun, UserError
from core.models import direct
from core.models.api_forms import ASKS, Json, end_of, messages_of, parsed, text_of, told, transcript, usage_of
from core.models.base import Reply, Role
from core.models.endpoint import Endpoint
from core.models.prices import usage_of_response
from core.redact import redactor
from core.types import Usage

PLACEHOLDER = "key-of-the-relay"  # what the agent is given as its key
PORT = 8707  # in the sandbox, whose network is its own
SOCKET, FORWARD = "model.sock", "forward.py"
MOST = 32 << 20  # bytes of a request; a larger one is refused
MOST_AT_ONCE = 64  # connections
HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive", "upgrade", "te"}
ADDRESSES = {"anthropic": "https://api.anthropic.com", "gemini": "https://generativelanguage.googleapis.com"}
# Run in the sandbox: what comes to PORT goes to the socket file. It ends with the command that started it.
FORWARDER = f"""
import socket, sys, threading
def copy(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    finally:
        try:
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass
def serve(client):
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        back = threading.Thread(target=copy, args=(server, client), daemon=True)
        back.start()
        copy(client, server)
        back.join()
listener = socket.create_server(("127.0.0.1", {PORT}), backlog=128)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass(kw_only=True)
class Relay:
    """The relay of one attempt. `close` ends it; calls in flight are dropped.

    role           whose model and meter it is; its model must be one that is reached over HTTP
    task, sample   the account and the attempt that the calls are charged to
    folder         gets SOCKET and FORWARD; readable by every user of the machine, as the sandbox has its own
    used           what all calls so far have used
    refused        the budget that refused the last call; None: none did
    fatal          why the run cannot go on, such as a budget that cannot be held; None: it can
    transcript     what the agent and its model said so far
    """

    role: Role
    task: str
    sample: int
    folder: Path
    used: Usage = field(default_factory=Usage, init=False)
    refused: OverBudget | None = field(default=None, init=False)
    fatal: StopRun | None = field(default=None, init=False)
    _longest: tuple[list[Json], str] = field(default=([], ""), init=False, repr=False)  # (conversation, answer to it)

    def __post_init__(self) -> None:
        import httpx

        llm = self.role.llm
        self._base = split_address(address_of(llm))[1]
        self._origin, self._key = split_address(address_of(llm))[0], llm.key() if isinstance(llm, Endpoint) else None
        self._http = httpx.Client(timeout=getattr(llm, "timeout_s", 120.0) * 5, follow_redirects=False)
        self._lock = threading.Lock()
        (self.folder / FORWARD).write_text(FORWARDER, encoding="utf-8", newline="\n")
        (self.folder / FORWARD).chmod(0o644)  # whatever the umask
        self._server = _Server(str(self.folder / SOCKET), _handler_of(self))
        (self.folder / SOCKET).chmod(0o666 if os.geteuid() == 0 else 0o600)  # as root the sandbox has another user
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._http.close()

    @property
    def transcript(self) -> str:
        messages, answer = self._longest
        return transcript(messages, answer) if messages or answer else ""

    def pass_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request to the server: (status, headers, body) of its answer."""
        import httpx

        if not self._is_models(method, path):
            return 403, {}, _error("the relay reaches the model alone")
        if self.fatal is not None:
            return 400, {}, _error(str(self.fatal))
        asked = parsed(body)
        facts = {
            "role": self.role.name,
            "task": self.task,
            "sample": self.sample,
            "requested": self.role.llm.name,
            "messages": messages_of(asked),
        }
        if method == "POST":
            try:
                self.role.meter.check(self.task, self.role.name)
            except OverBudget as error:
                self.refused = error
                return 400, {}, _error(f"the budget of this attempt is used up: {error}")  # 429 would be tried again
        sent = {
            name: value.replace(PLACEHOLDER, self._key or PLACEHOLDER)
            for name, value in headers.items()
            if name.lower() not in HOP
        }
        began = time.perf_counter()
        try:
            where = self._origin + path.replace(PLACEHOLDER, self._key or PLACEHOLDER)  # Gemini's may be in the query
            answer = self._http.request(method, where, headers=sent, content=body)
            status, content = answer.status_code, answer.content
            kept = {name: value for name, value in answer.headers.items() if name.lower() == "content-type"}
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            status, kept, content = 502, {}, _error(redactor().values(f"the model's server cannot be reached: {error}"))
        if method == "POST" and status == 200:
            try:
                self._count(facts, told(content), time.perf_counter() - began)
            except StopRun as error:  # said by the attempt's next step, in the run's own thread
                self.fatal = error
        if self._key:  # an error may quote it
            content = content.replace(self._key.encode(), PLACEHOLDER.encode())
        return status, kept, content

    def _is_models(self, method: str, path: str) -> bool:
        """Whether a request asks the model, or what models there are: no other address is reached, nor other data."""
        place = unquote(path.partition("?")[0])  # as a server may read it
        within = place.startswith(f"{self._base}/") and "//" not in place and ".." not in place and "@" not in place
        lists = method in ("GET", "HEAD") and "models" in place.split("/")
        return within and (lists or (method == "POST" and place.endswith(ASKS)))

    def _count(self, facts: dict[str, Any], said: Json, latency_s: float) -> None:
        usage, text = usage_of(said), text_of(said)
        if usage is None and not text:  # such as a count of tokens: no call of a model
            return
        llm = self.role.llm
        response = SimpleNamespace(usage=usage, choices=[said])
        used = usage_of_response(response, getattr(llm, "price_per_mtok", None), llm.name)
        text = redactor().values(text)
        with self._lock:
            self.used += used
            if len(facts["messages"]) >= len(self._longest[0]):
                self._longest = (facts["messages"], text)
        reply = Reply(text=text, usage=used, finish_reason=end_of(said), model=str(said.get("model")))
        self.role.meter.add(facts, reply, latency_s)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *given: Any) -> None:
        self.most = threading.BoundedSemaphore(MOST_AT_ONCE)  # a program may open as many as it likes
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.most.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.most.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error of ours."""


def _handler_of(relay: Relay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def address_string(self) -> str:  # a socket file has none
            return "sandbox"

        def log_message(self, format: str, *args: Any) -> None: ...

        def handle_one(self) -> None:
            if "chunked" in self.headers.get("transfer-encoding", "").lower():
                body = self._chunks()
            else:
                length = self.headers.get("content-length", "0")
                body = self.rfile.read(int(length)) if length.isdigit() and int(length) <= MOST else None
            if body is None or len(body) > MOST:
                status, headers, content = 413, {}, _error("the request is too long")
                self.close_connection = True
            else:
                status, headers, content = relay.pass_on(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            for name, value in ({"content-type": "application/json"} | headers).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _chunks(self) -> bytes | None:
            """A body in chunks; None where it is too long, or no such body."""
            data = bytearray()
            with suppress(ValueError):
                while size := int(self.rfile.readline(64).split(b";")[0] or b"0", 16):
                    if size < 0 or len(data) + size > MOST:
                        return None
                    data += self.rfile.read(size)
                    self.rfile.readline(8)
                return bytes(data)
            return None

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = handle_one

    return Handler


def address_of(llm: Any) -> str:
    """The address of a model's server. UserError for a model that is not reached over HTTP."""
    base = getattr(llm, "api_base", None) if isinstance(llm, Endpoint) else None
    if isinstance(llm, Endpoint):
        base = base or direct.address_of(llm.model) or ADDRESSES.get(llm.model.partition("/")[0])
    if not base:
        raise UserError(
            f"agent=command: {getattr(llm, 'name', 'this model')} has no address to ask: choose a model with one, e.g. "
            "llm=vllm llm.api_base=http://HOST:PORT/v1, or agent.needs_model=false for a program that asks none."
        )
    return base.rstrip("/")


def split_address(address: str) -> tuple[str, str]:
    """(origin, path): http://HOST:PORT and /v1."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}", slash + path


def base_url(llm: Any) -> str:
    """The model's address as the agent in the sandbox is given it."""
    return f"http://127.0.0.1:{PORT}{split_address(address_of(llm))[1]}"


def _error(why: str) -> bytes:
    return json.dumps({"error": {"message": why, "type": "relay"}}).encode()
