"""A provider that breaks in every way seen in practice, by the hash of what it is asked: the same each time."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from provider import completion

FAULTS = ("429", "500", "503", "hang", "reset", "bad_json", "no_choices", "html", "drip")
LONG_S = 1.2  # a hang or a drip; the client's limit must be well below


class FaultyServer:
    """answer(request) -> text for the calls that go well. `share` of all tries break, whoever asks."""

    def __init__(self, answer, share: float = 0.3) -> None:
        self.tries: Counter[str] = Counter()  # by request
        self.faults: Counter[str] = Counter()
        self._lock = threading.Lock()
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fault = faulty.fault(body, share)
                good = json.dumps(completion(answer(json.loads(body)))).encode()
                try:
                    getattr(self, f"do_{fault or 'well'}".replace("do_4", "do_s4").replace("do_5", "do_s5"))(good)
                except OSError:
                    self.close_connection = True  # the client has given up

            def send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def do_well(self, good: bytes) -> None:
                self.send(200, good)

            def do_s429(self, good: bytes) -> None:
                self.send(429, b'{"error": {"message": "slow down"}}', Retry_After="0.05")

            def do_s500(self, good: bytes) -> None:
                self.send(500, b'{"error": {"message": "oops"}}')

            def do_s503(self, good: bytes) -> None:
                self.send(503, b'{"error": {"message": "busy"}}')

            def do_hang(self, good: bytes) -> None:
                time.sleep(LONG_S)
                self.close_connection = True

            def do_reset(self, good: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(good)))
                self.end_headers()
                self.wfile.write(good[: len(good) // 2])
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

            def do_bad_json(self, good: bytes) -> None:
                self.send(200, good[: len(good) // 2])

            def do_no_choices(self, good: bytes) -> None:
                self.send(200, json.dumps(completion("", choices=[])).encode())

            def do_html(self, good: bytes) -> None:
                self.send(502, b"<html><body>Bad gateway</body></html>", "text/html")

            def do_drip(self, good: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(good)))
                self.end_headers()
                for place in range(int(LONG_S / 0.05)):
                    self.wfile.write(good[place : place + 1])
                    self.wfile.flush()
                    time.sleep(0.05)
                self.close_connection = True

            def log_message(self, *_args) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # of 5, connections made side by side are refused

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def fault(self, body: bytes, share: float) -> str | None:
        key = hashlib.sha256(body).hexdigest()
        with self._lock:
            self.tries[key] += 1
            draw = int(hashlib.sha256(f"{key} {self.tries[key]}".encode()).hexdigest()[:8], 16)
            fault = FAULTS[draw % len(FAULTS)] if (draw >> 8) / (1 << 24) < share else None
            self.faults[fault or "none"] += 1
        return fault

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
