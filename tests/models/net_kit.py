"""Servers that stand between a run and its model: by path, with TLS, as a proxy; and certificates of our own."""

from __future__ import annotations

import json
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from provider import completion

MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "test"}]}
HTML = {"Content-Type": "text/html"}
NOT_FOUND = (404, '{"detail": "Not Found"}', {})


class Net:
    """Answers by path: routes {path or (method, path): (status, body[, headers])}, else `default`; a list: in turn.

    tls    (certificate file, key file): speaks https
    asked  (method, path, headers) of every request
    pause  seconds before each answer
    """

    def __init__(self, routes: dict, default: tuple | list = NOT_FOUND, tls: tuple[str, str] | None = None) -> None:
        self.asked: list[tuple[str, str, dict]] = []
        self.pause = 0.0
        net = self

        class Handler(BaseHTTPRequestHandler):
            def go(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                net.asked.append((self.command, self.path, dict(self.headers)))
                found = routes.get((self.command, self.path)) or routes.get(self.path) or default
                found = found if isinstance(found, tuple) else found.pop(0) if len(found) > 1 else found[0]
                time.sleep(net.pause)
                status, body, headers = (*found, {})[:3]
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                for name, value in ({"Content-Type": "application/json"} | headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_CONNECT = go

            def log_message(self, *_args) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_args) -> None:
                """Quiet: a handshake that the client breaks off is what some tests want."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            socket = self._server.socket
            self._server.socket = context.wrap_socket(socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_port
        self.root = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def model_below(path: str = "/v1") -> dict:
    """The routes of a server with one model whose API is below a path."""
    return {
        ("GET", f"{path}/models"): (200, MODELS),
        ("POST", f"{path}/chat/completions"): (200, completion("hi")),
    }


def certificate(folder: Path, name: str, *, days: int = 30, address: str = "127.0.0.1") -> tuple[str, str]:
    """A self-signed certificate for an IP address: (certificate file, key file). days: until it ends, or since."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private, whose = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string(f"CN={name}")
    end = datetime.now(UTC) + timedelta(days=days)
    made = x509.CertificateBuilder().subject_name(whose).issuer_name(whose).public_key(private.public_key())
    made = made.serial_number(1).not_valid_before(end - timedelta(days=60)).not_valid_after(end)
    for extension in (
        x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]),
        x509.BasicConstraints(ca=True, path_length=None),
    ):
        made = made.add_extension(extension, critical=False)
    pem = serialization.Encoding.PEM
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(made.sign(private, hashes.SHA256()).public_bytes(pem))
    how = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(private.private_bytes(pem, *how))
    return str(cert), str(key)
