"""A small OpenAI-compatible server on this machine, standing where a provider would be."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider:
    """answer(request: dict, number: int) -> (status, body[, headers]); body a dict or text; keeps every request.

    models   the names that it lists at /v1/models, or the status with which it refuses to; may be set later
    facts    further keys of each model in that list
    busy     for each of the next questions for that list how long it takes, in seconds, or the status of its refusal
    """

    def __init__(self, answer: Callable[[dict, int], tuple], models: list[str] | int = 404) -> None:
        self.models, self.owner, self.listed, self.listed_for = models, "test", 0, None
        self.facts: dict = {}
        self.busy: list[float | int] = []
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.requests.append(request)
                provider.headers.append(dict(self.headers))
                self._send(*answer(request, len(provider.requests)))

            def do_GET(self) -> None:
                provider.listed += 1
                provider.listed_for = self.headers.get("Authorization")
                now = provider.busy.pop(0) if provider.busy else 0.0
                if isinstance(now, float):
                    time.sleep(now)
                names = now if isinstance(now, int) else provider.models
                if isinstance(names, int):
                    return self._send(names, "")
                facts = {"object": "model", "owned_by": provider.owner} | provider.facts
                listed = [{"id": name} | facts for name in names]
                return self._send(200, {"object": "list", "data": listed})

            def _send(self, status: int, body: dict | str, headers: dict[str, str] = {}) -> None:  # noqa: B006
                data = (json.dumps(body) if isinstance(body, dict) else body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # the client has given up
                    self.wfile.write(data)

            def log_message(self, *_args) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 256  # many calls may come at once

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def completion(text: str, **changes) -> dict:
    """A chat completion as a server sends it."""
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "served-model-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    } | changes


def embedding(vector: list[float]) -> dict:
    """An embeddings answer."""
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    return {"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 2, "total_tokens": 2}}
