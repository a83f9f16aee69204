"""A way from a sandbox without a network to one model server, for agents that are programs of their own.

    agent in the sandbox -> 127.0.0.1:PORT there (FORWARD) -> a socket file -> Relay, in this process -> the server

The relay passes each request on as it came and gives back what the server said; it adds nothing. In the request's
headers PLACEHOLDER becomes the real key, so the key never enters the sandbox. Every call is counted and logged by the
role's meter, whose budgets refuse further ones, and the conversation is kept, from which `transcript` is made.
"""

from __future__ import annotations

import json
import shutil
import socketserver
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.errors import OverBudget, UserError
from core.models import direct
from core.models.base import Reply, Role
from core.models.endpoint import Endpoint
from core.models.prices import usage_of_response
from core.redact import redactor
from core.types import Usage

PLACEHOLDER = "key-of-the-relay"  # what the agent is given as its key
PORT = 8707  # in the sandbox, whose network is its own
SOCKET, FORWARD = "model.sock", "forward.py"
MOST = 64 << 20  # bytes of a request; a larger one is refused
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
    folder         holds SOCKET and FORWARD; readable by every user of the machine, as the sandbox has its own
    used           what all calls so far have used
    refused        why the last call was refused by a budget; None: none was
    said           (request, response) of the calls in their order, as parsed JSON
    """

    role: Role
    task: str
    sample: int
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="reasoningbank-relay-")))
    used: Usage = field(default_factory=Usage, init=False)
    refused: OverBudget | None = field(default=None, init=False)
    said: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        import httpx

        llm = self.role.llm
        self._origin, self._key = split_address(address_of(llm))[0], llm.key() if isinstance(llm, Endpoint) else None
        self._http = httpx.Client(timeout=getattr(llm, "timeout_s", 120.0) * 5, follow_redirects=False)
        self._lock = threading.Lock()
        self.folder.chmod(0o755)
        (self.folder / FORWARD).write_text(FORWARDER, encoding="utf-8", newline="\n")
        self._server = _Server(str(self.folder / SOCKET), _handler_of(self))
        (self.folder / SOCKET).chmod(0o666)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._http.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pass_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request to the server: (status, headers, body) of its answer."""
        import httpx

        asked = _parsed(body)
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
                return 429, {}, _error(f"the budget of this attempt is used up: {error}")
        sent = {
            name: value.replace(PLACEHOLDER, self._key or PLACEHOLDER)
            for name, value in headers.items()
            if name.lower() not in HOP
        }
        began = time.perf_counter()
        try:
            answer = self._http.request(method, self._origin + path, headers=sent, content=body)
            status, content = answer.status_code, answer.content
            kept = {name: value for name, value in answer.headers.items() if name.lower() == "content-type"}
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            status, kept, content = 502, {}, _error(redactor().values(f"the model's server cannot be reached: {error}"))
        if method == "POST" and status == 200:
            self._count(facts, asked, told(content), time.perf_counter() - began)
        return status, kept, content

    def _count(self, facts: dict[str, Any], asked: dict[str, Any], said: dict[str, Any], latency_s: float) -> None:
        if "usage" not in said and not text_of(said):  # such as a count of tokens: no call of a model
            return
        llm = self.role.llm
        response = SimpleNamespace(usage=said.get("usage"), choices=[said])
        used = usage_of_response(response, getattr(llm, "price_per_mtok", None), llm.name)
        reply = Reply(
            text=redactor().values(text_of(said)), usage=used, finish_reason=end_of(said), model=str(said.get("model"))
        )
        with self._lock:
            self.used += used
            self.said.append((asked, said))
        self.role.meter.add(facts, reply, latency_s)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

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
                body = b"".join(iter(self._chunk, b""))
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
            self.wfile.write(content)

        def _chunk(self) -> bytes:
            size = int(self.rfile.readline(64).split(b";")[0] or b"0", 16)
            data = self.rfile.read(min(size, MOST))
            self.rfile.readline(8)
            return data

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


def messages_of(asked: dict[str, Any]) -> list[Any]:
    """The conversation of a request, in whichever of the three common forms of an API."""
    found = asked.get("messages") or asked.get("input") or asked.get("contents") or []
    found = found if isinstance(found, list) else [{"role": "user", "content": found}]
    first = asked.get("system") or asked.get("instructions")
    return [{"role": "system", "content": first}, *found] if first else found


def told(content: bytes) -> dict[str, Any]:
    """The answer of a server as one object: its JSON, or what its stream of events comes to."""
    whole = _parsed(content)
    if whole:
        return whole
    texts: list[str] = []
    for line in content.split(b"\n"):
        event = _parsed(line.removeprefix(b"data:")) if line.startswith(b"data:") else {}
        inner = event.get("response") or event.get("message") or {}
        for part in (inner if isinstance(inner, dict) else {}, event):
            if isinstance(usage := part.get("usage"), dict):
                whole["usage"] = whole.get("usage", {}) | {k: v for k, v in usage.items() if v is not None}
            whole |= {"model": part["model"]} if part.get("model") else {}
        delta = next(iter(event.get("choices") or ()), {}).get("delta") or event.get("delta") or {}
        texts.append(delta if isinstance(delta, str) else delta.get("content") or delta.get("text") or "")
        for call in delta.get("tool_calls") or () if isinstance(delta, dict) else ():
            texts.append((call.get("function") or {}).get("arguments") or "")
        texts.append(delta.get("partial_json") or "" if isinstance(delta, dict) else "")
    return whole | {"text": "".join(map(str, texts))} if whole or any(texts) else {}


def text_of(said: dict[str, Any]) -> str:
    """What an answer says, the calls of tools in it as JSON."""
    if isinstance(said.get("text"), str):
        return said["text"]
    message = next((c["message"] for c in said.get("choices") or () if isinstance(c.get("message"), dict)), None)
    if message is not None:
        return content_text(message)
    return "\n".join(filter(None, (content_text(part) for part in said.get("output") or [said])))


def content_text(message: dict[str, Any]) -> str:
    """The text of a message: of its parts, its calls of tools and their results."""
    parts, found = message.get("content"), []
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            inner = part.get("text") or part.get("content")
            if isinstance(inner, list):
                inner = "\n".join(filter(None, map(content_text, ({"content": [each]} for each in inner))))
            found.append(str(inner) if inner else "")
            if part.get("input"):
                found.append(_call(part.get("name"), part["input"]))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        found.append(_call(function.get("name"), function.get("arguments")))
    if message.get("arguments"):  # a call, in the Responses API
        found.append(_call(message.get("name"), message["arguments"]))
    if isinstance(message.get("output"), str):
        found.append(message["output"])
    return "\n".join(filter(None, found))


def _call(name: Any, given: Any) -> str:
    return f"{name}({given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)})"


def end_of(said: dict[str, Any]) -> str:
    choice = next(iter(said.get("choices") or ()), {})
    return str(choice.get("finish_reason") or said.get("stop_reason") or "stop")


def transcript(said: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """What an agent and its model said to each other: the messages of the longest conversation, and its last answer.

    The prompt, which the attempt's opening holds, is left out: all before the model's first message.
    """
    if not said:
        return ""
    asked, answer = max(reversed(said), key=lambda call: len(messages_of(call[0])))
    messages = [each for each in messages_of(asked) if isinstance(each, dict)]
    first = next((place for place, each in enumerate(messages) if _is_models(each)), len(messages))
    lines = [
        f"{'agent' if _is_models(each) else 'result'}: {text}"
        for each in messages[first:]
        if (text := content_text(each))
    ]
    return "\n".join([*lines, f"agent: {text_of(answer)}"])


def _is_models(message: dict[str, Any]) -> bool:
    return message.get("role") in ("assistant", "model") or message.get("type") in ("function_call", "reasoning")


def _parsed(data: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(data)
        return found if isinstance(found, dict) else {}
    return {}


def _error(why: str) -> bytes:
    return json.dumps({"error": {"message": why, "type": "relay"}}).encode()
