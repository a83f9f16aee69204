"""Hostile requests over real sockets against a real server, alone and behind the proxy that is given."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from conftest import wait_for
from mcp_kit import HELLO, behind_haproxy, call, http_server, needs_haproxy

HEAD = (
    "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\n{more}Content-Length: {n}\r\n\r\n"
)
ACCEPT = {"accept": "application/json, text/event-stream"}


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
        yield host_and_port(url)


def host_and_port(url):
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


GOOD = json.dumps(HELLO).encode()


@pytest.mark.parametrize(
    ("body", "how", "wanted"),
    [
        (b"x" * 10**8, {}, {413}),
        (b"[" * 10**5 + b"]" * 10**5, {}, {400}),
        (b'{"a":' * 10**5 + b"1" + b"}" * 10**5, {}, {400}),
        (GOOD.replace(b'"test"', b'"\\ud800"'), {}, {400}),
        (GOOD, {"more": "Content-Length: 3\r\n"}, {400}),
        (GOOD, {"host": "evil.example"}, {421}),
        (GOOD, {"more": "Origin: http://evil.example\r\n"}, {403}),
    ],
)
def test_each_attack_has_one_clear_status_and_the_next_is_served(address, body, how, wanted):
    assert status_of(address, body, **how) in wanted
    assert status_of(address, GOOD) == 200


def answer_to(line, seconds=10):
    """What a server sends on a connection until it ends it."""
    line.settimeout(seconds)
    with suppress(ConnectionError):
        return b"".join(iter(lambda: line.recv(4096), b"")).decode()


def begun(address, sent):
    line = socket.create_connection(address)
    line.sendall(sent)
    return line


def head(address, n, more=""):
    return HEAD.format(host=f"{address[0]}:{address[1]}", more=more, n=n).encode()


@needs_haproxy
def test_who_is_slow_or_asks_too_often_is_the_proxys_and_others_are_served(tmp_path):
    with (
        http_server(tmp_path / "b.sqlite") as one,
        http_server(tmp_path / "b.sqlite") as two,
        behind_haproxy(one, two, MCP_SLOW="1s", MCP_RATE="5") as url,
    ):
        address = host_and_port(url)
        whole = head(address, len(GOOD))
        sent = (whole[:1], whole[:50], whole[:-1], whole, whole + GOOD[:1], whole + GOOD[:-1])
        late = [begun(address, each) for each in sent]
        assert status_of(address, GOOD) == 200
        assert [answer_to(line).split()[1] for line in late] == ["408"] * len(sent)
        assert status_of(address, GOOD, more="Host: evil.example\r\n") == 400
        ann, bob = ({"authorization": f"Bearer {name}"} | ACCEPT for name in ("ann", "bob"))
        asked = [httpx2.post(f"{url}/mcp", json=HELLO, headers=ann).status_code for _ in range(7)]
        assert asked == [200] * 5 + [429] * 2
        assert httpx2.post(f"{url}/mcp", json=HELLO, headers=bob).status_code == 200
        many = [socket.create_connection(address) for _ in range(120)]
        time.sleep(0.3)
        assert sum(is_closed(line) for line in many) >= 20  # 100 connections are one address's share
        for line in many:
            line.close()


def is_closed(line):
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_storm_of_calls_that_are_given_up_leaves_nothing_open(tmp_path):
    processes = []
    with http_server(tmp_path / "b.sqlite", processes=processes) as url:
        address = host_and_port(url)

        def opened():
            return len(list(Path(f"/proc/{processes[0].pid}/fd").iterdir()))

        with httpx2.Client(headers=ACCEPT | {"mcp-protocol-version": "2025-06-18"}, timeout=30) as client:
            client.post(f"{url}/mcp", json=call(0, "retrieve_memory", query="x"))
            before = opened()
            for number in range(1, 301):
                body = json.dumps(call(number, "retrieve_memory", query=f"task {number}")).encode()
                begun(address, head(address, len(body)) + body).close()
            answer = client.post(f"{url}/mcp", json=call(999, "bank_status"))
            assert answer.status_code == 200 and "records" in answer.text
            wait_for(lambda: opened() <= before + 2, 20)


def test_sigterm_under_load_ends_in_time_and_loses_nothing_that_was_acknowledged(tmp_path):
    processes, errors, statuses, saved = [], [], [], []
    with http_server(tmp_path / "b.sqlite", processes=processes, errors=errors) as url:

        def save(who):
            with httpx2.Client(headers=ACCEPT, timeout=30) as client:
                for number in range(10_000):
                    name = f"lesson {who} {number}"
                    body = call(number, "save_lesson", query=name, title=name, content=f"Always {name}, {who * 7}.")
                    try:
                        answer = client.post(f"{url}/mcp", json=body)
                    except httpx2.TransportError:
                        return
                    statuses.append(answer.status_code)
                    if "memory_id" in answer.text:
                        saved.append(name)

        threads = [threading.Thread(target=save, args=(who,)) for who in range(6)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(saved) > 30)
        processes[0].terminate()
        processes[0].wait(timeout=20)
        for thread in threads:
            thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert set(statuses) == {200}
    kept = {query for (query,) in sqlite3.connect(tmp_path / "b.sqlite").execute("SELECT original_query FROM records")}
    assert set(saved) <= kept
