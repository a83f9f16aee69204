"""Hostile bodies over real sockets against a real server: one clear status each, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress

import pytest
from mcp_kit import HELLO, http_server

from mcp_server import http
from mcp_server.http import Gate

HEAD = (
    "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\n{more}Content-Length: {n}\r\n\r\n"
)


def status_of(address, body, more="", host=None, n=None):
    """The status of the answer to a request, sent as far as the server takes it."""
    with socket.create_connection(address, timeout=30) as line:
        head = HEAD.format(host=host or f"{address[0]}:{address[1]}", more=more, n=len(body) if n is None else n)
        with suppress(OSError):  # it is refused before all of it was sent
            line.sendall(head.encode() + body)
        return int(line.recv(4096).split()[1])


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with http_server(tmp_path_factory.mktemp("http") / "b.sqlite") as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


GOOD = json.dumps(HELLO).encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "how", "wanted"),
    [
        (b"x" * 10**8, {}, {413}),
        (b"[" * 10**5 + b"]" * 10**5, {}, {400}),
        (b'{"a":' * 10**5 + b"1" + b"}" * 10**5, {}, {400}),
        (GOOD.replace(b'"test"', b'"\\ud800"'), {}, {400}),
        (GOOD, {"more": "Host: evil.example\r\n"}, {400}),
        (GOOD, {"more": f"Mcp-Session-Id: {'0' * 32}\r\n" * 2}, {400}),
        (GOOD, {"more": "Content-Length: 3\r\n"}, {400}),
        (GOOD, {"host": "evil.example"}, {421}),
        (GOOD, {"more": "Origin: http://evil.example\r\n"}, {403}),
        (GOOD, {"more": "Mcp-Session-Id: " + "0" * 32 + "\r\n"}, {404}),
    ],
)
def test_each_attack_has_one_clear_status_and_the_next_is_served(address, body, how, wanted):
    assert status_of(address, body, **how) in wanted
    assert status_of(address, GOOD) == 200


@pytest.mark.slow
def test_others_are_served_beside_half_sent_requests(address):
    half = [socket.create_connection(address) for _ in range(100)]
    for number, line in enumerate(half):
        head = HEAD.format(host=f"{address[0]}:{address[1]}", more="", n=100).encode()
        line.sendall(head[:40] if number % 2 else head + b"{")
    began = time.monotonic()
    assert status_of(address, GOOD) == 200
    assert time.monotonic() - began < 10
    for line in half:
        line.close()


def test_a_body_that_does_not_come_is_answered_and_logged(monkeypatch, caplog):
    monkeypatch.setattr(http, "BODY_S", 0.1)
    sent = []

    class Server:
        class metrics:
            answered = staticmethod(lambda status: None)

    async def app(scope, receive, send):
        from starlette.requests import Request

        await Request(scope, receive).body()

    async def never():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/mcp", "headers": [], "client": ("127.0.0.1", 1), "method": "POST"}
    asyncio.run(asyncio.wait_for(Gate(app, None, 60, server=Server())(scope, never, send), 10))
    assert sent[0]["status"] == 408 and "408" in caplog.text
