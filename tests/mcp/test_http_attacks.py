"""Hostile bodies over real sockets against a real server: one clear status each, and others are served meanwhile."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
from conftest import wait_for
from mcp_kit import HELLO, TRAJECTORY, call, http_server

from mcp_server.__main__ import main
from mcp_server.connections import HEAD_S

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
        yield host_and_port(url)


def host_and_port(url):
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def one_line(log):
    """A server's log without its columns."""
    return " ".join(" ".join(line[28:91].split()) for line in log.splitlines())


GOOD = json.dumps(HELLO).encode()


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


def test_others_are_served_beside_half_sent_requests(address):
    half = [socket.create_connection(address) for _ in range(100)]
    for number, line in enumerate(half):
        head = HEAD.format(host=f"{address[0]}:{address[1]}", more="", n=100).encode()
        line.sendall(head[:40] if number % 2 else head + b"{")
    began = time.monotonic()
    assert status_of(address, GOOD) == 200
    assert time.monotonic() - began < HEAD_S  # which is when the half-sent ones are ended
    for line in half:
        line.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A server that waits a second for a head or a body: (its address, where its log will be)."""
    errors = []
    with http_server(tmp_path_factory.mktemp("http") / "b.sqlite", errors=errors, HEAD_S=1, BODY_S=1) as url:
        yield (host_and_port(url), errors)


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


def test_heads_and_bodies_that_do_not_come_are_answered_and_others_served(hasty):
    address, _ = hasty
    whole = head(address, len(GOOD))
    sent = (b"", whole[:1], whole[:50], whole[:-1], whole, whole + GOOD[:1], whole + GOOD[:-1])
    late = [begun(address, each) for each in sent]
    late.append(begun(address, head(address, len(GOOD)) + GOOD + whole[:50]))  # its second request
    assert status_of(address, GOOD) == 200
    answers = [answer_to(line) for line in late]
    assert [answer.split()[1] for answer in answers[:-1]] == ["408"] * len(sent)
    assert answers[-1].split()[1] == "200" and "HTTP/1.1 408" in answers[-1]
    assert '"error":"request_timeout"' in answers[4]
    assert status_of(address, GOOD) == 200


def test_a_slow_client_that_goes_on_is_served_and_one_that_drips_is_not(hasty):
    address, _ = hasty
    big = GOOD.replace(b'"test"', b'"' + b"x" * 6000 + b'"')

    def sent(body, parts, pause):
        with begun(address, head(address, len(body))) as line:
            size = -(-len(body) // parts)
            for at in range(0, len(body), size):
                time.sleep(pause)
                with suppress(OSError):
                    line.sendall(body[at : at + size])
            return line.recv(4096).split()[1]

    assert sent(big, 6, 0.4) == b"200"  # 2.4 s, a thousand bytes at a time
    assert sent(GOOD, 10, 0.4) == b"408"


def test_a_stream_that_waits_for_the_server_is_not_cut_off(hasty):
    address, _ = hasty
    url = f"http://{address[0]}:{address[1]}/mcp"
    accept = {"accept": "application/json, text/event-stream"}
    with httpx2.Client(headers=accept, timeout=3) as client:
        id = client.post(url, json=HELLO).headers["mcp-session-id"]
        session = {"mcp-session-id": id, "mcp-protocol-version": "2025-06-18"}
        with client.stream("GET", url, headers=session) as stream:
            assert stream.status_code == 200
            with suppress(httpx2.ReadTimeout):
                for _ in stream.iter_bytes():
                    pytest.fail("the stream said something")
                pytest.fail("the stream was ended")
        assert client.post(url, json=call(1, "bank_status"), headers=session).status_code == 200


def test_half_sent_requests_do_not_use_up_64_descriptors(tmp_path):
    errors = []
    with http_server(tmp_path / "b.sqlite", files=64, errors=errors) as url:
        address = host_and_port(url)
        whole = head(address, len(GOOD))
        sent = (b"", whole[:30], whole, whole + GOOD[:9])
        half = [begun(address, sent[number % 4]) for number in range(150)]
        assert [status_of(address, GOOD) for _ in range(5)] == [200] * 5
        half += [begun(address, sent[number % 4]) for number in range(150)]
        assert httpx2.get(f"{url}/health").status_code == 200
        assert answer_to(half[0]).split()[1] == "408"
        for line in half:
            line.close()
        assert status_of(address, GOOD) == 200
    assert "without a whole request" in one_line(errors[0]) and "12 sessions at once" in one_line(errors[0])


def test_more_streams_than_descriptors_are_refused_and_calls_served(tmp_path):
    """Sessions are fewer than connections, so that streams of all of them leave room for calls."""
    with http_server(tmp_path / "b.sqlite", files=64) as url, ExitStack() as stack:
        client = stack.enter_context(httpx2.Client(headers={"accept": "application/json, text/event-stream"}))
        statuses = []
        for _ in range(30):
            id = client.post(f"{url}/mcp", json=HELLO).headers["mcp-session-id"]
            session = {"mcp-session-id": id, "mcp-protocol-version": "2025-06-18"}
            statuses.append(stack.enter_context(client.stream("GET", f"{url}/mcp", headers=session)).status_code)
        assert set(statuses) == {200}
        answer = client.post(f"{url}/mcp", json=call(1, "bank_status"), headers=session)
        assert answer.status_code == 200 and "records" in answer.text


def test_more_calls_at_work_than_connections_are_refused_by_503(tmp_path):
    errors, statuses = [], []
    slow = ("llm=scripted", "llm.script.path=mcp_kit.slow_answer", "server.stateless=true")
    with http_server(tmp_path / "b.sqlite", *slow, files=64, errors=errors) as url:

        def learn(number):
            words = {"trajectory": TRAJECTORY, "success_signal": True, "async_mode": False}
            body = call(number, "extract_memory", query=f"task {number}", **words)
            accept = {"accept": "application/json, text/event-stream"}
            statuses.append(httpx2.post(f"{url}/mcp", json=body, headers=accept, timeout=120).status_code)

        threads = [threading.Thread(target=learn, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert httpx2.get(f"{url}/health").status_code == 200
    assert set(statuses) == {200, 503} and statuses.count(200) >= 20
    assert "more are answered by 503" in one_line(errors[0])


@pytest.fixture
def team(tmp_path, capsys):
    """(--tokens FILE, the headers of ann and bob)."""
    file = tmp_path / "tokens"
    headers = []
    for name in ("ann", "bob"):
        assert main(["token", "--tokens", str(file), "--agent-id", name]) == 0
        headers.append({"authorization": f"Bearer {capsys.readouterr().out.strip()}"})
    return ("--tokens", file), *headers


def sse(stack, client, url, headers):
    """A session over SSE: (its stream's lines, where to send messages)."""
    stream = stack.enter_context(client.stream("GET", f"{url}/sse", headers=headers))
    lines = stream.iter_lines()
    place = next(line for line in lines if line.startswith("data:")).removeprefix("data:").strip()
    return lines, f"{url}{place}"


def test_sessions_over_sse_are_limited_and_each_tenants_own(tmp_path, team):
    options, ann, bob = team
    errors = []
    with (
        http_server(tmp_path / "b.sqlite", *options, "server.max_sessions=3", transport="sse", errors=errors) as url,
        ExitStack() as stack,
    ):
        client = stack.enter_context(httpx2.Client(timeout=10))
        mine, anns = sse(stack, client, url, bob), [sse(stack, client, url, ann) for _ in range(5)]

        def posted(place, headers):
            # On a connection of its own: one that is kept may be closed by the server while a request is on its way.
            return httpx2.post(place, json=HELLO, headers=headers, timeout=10).status_code

        assert [posted(place, ann) for _, place in anns] == [404, 404, 404, 202, 202]
        assert [posted(place, bob) for _, place in anns] == [404] * 5  # another tenant's, open or not
        assert posted(mine[1], ann) == 404 and posted(mine[1], bob) == 202
        assert any("serverInfo" in line for line in mine[0])
        with pytest.raises(httpx2.RemoteProtocolError):  # its stream was ended, and does not hang
            list(anns[0][0])
    assert one_line(errors[0]).count("gives way, of ann") == 1  # in 10 s, however often
    assert "Traceback" not in errors[0] and "http.response.start" not in one_line(errors[0])


def test_what_is_no_request_fills_no_log(tmp_path, team):
    """Without any token: noise, and requests to change to another protocol."""
    options, *_ = team
    errors = []
    with http_server(tmp_path / "b.sqlite", *options, errors=errors) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        asks = "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: Upgrade\r\nUpgrade: {}\r\n\r\n"
        upgrades = [asks.format(address[1], name).encode() for name in ("websocket", "h2c")]
        for sent in (b"\x16\x03\x01\r\n\r\n", *upgrades):
            for _ in range(50):
                begun(address, sent).close()
            assert answer_to(begun(address, sent)).split()[1] in ("400", "401")
    assert len(errors[0].splitlines()) < 20


def test_another_tenants_session_is_none_for_any_method(tmp_path, team):
    options, ann, bob = team
    with http_server(tmp_path / "b.sqlite", *options) as url:
        accept = {"accept": "application/json, text/event-stream"}
        id = httpx2.post(f"{url}/mcp", json=HELLO, headers=accept | ann).headers["mcp-session-id"]
        session = accept | {"mcp-session-id": id, "mcp-protocol-version": "2025-06-18"}
        none = session | {"mcp-session-id": "0" * 32}
        for method in ("GET", "DELETE", "POST"):
            body = {"json": call(1, "bank_status")} if method == "POST" else {}
            theirs = httpx2.request(method, f"{url}/mcp", headers=session | bob, **body)
            nobodys = httpx2.request(method, f"{url}/mcp", headers=none | bob, **body)
            assert (theirs.status_code, theirs.content) == (nobodys.status_code, nobodys.content)
            assert theirs.status_code == 404
        assert httpx2.post(f"{url}/mcp", json=call(1, "bank_status"), headers=session | ann).status_code == 200


def test_a_storm_of_calls_that_are_given_up_leaves_nothing_open(tmp_path):
    processes = []
    with http_server(tmp_path / "b.sqlite", "server.requests_per_min=100000", processes=processes) as url:
        address = host_and_port(url)
        accept = {"accept": "application/json, text/event-stream"}

        def opened():
            return len(list(Path(f"/proc/{processes[0].pid}/fd").iterdir()))

        with httpx2.Client(headers=accept, timeout=30) as client:
            id = client.post(f"{url}/mcp", json=HELLO).headers["mcp-session-id"]
            session = {"mcp-session-id": id, "mcp-protocol-version": "2025-06-18"}
            client.post(f"{url}/mcp", json=call(0, "retrieve_memory", query="x"), headers=session)
            before = opened()
            more = "".join(f"{name}: {value}\r\n" for name, value in session.items())
            for number in range(1, 301):  # half are given up by closing the line, half by a message
                body = json.dumps(call(number, "retrieve_memory", query=f"task {number}")).encode()
                line = begun(address, head(address, len(body), more) + body)
                if number % 2:
                    cancelled = {"method": "notifications/cancelled", "params": {"requestId": number}}
                    answer = client.post(f"{url}/mcp", json={"jsonrpc": "2.0", **cancelled}, headers=session)
                    assert answer.status_code == 202
                line.close()
            answer = client.post(f"{url}/mcp", json=call(999, "bank_status"), headers=session)
            assert answer.status_code == 200 and "records" in answer.text
            wait_for(lambda: opened() <= before + 2, 20)


def test_sigterm_under_load_ends_in_time_and_loses_nothing_that_was_acknowledged(tmp_path):
    processes, errors, statuses, saved = [], [], [], []
    words = ("server.requests_per_min=100000", "server.stateless=true")
    with http_server(tmp_path / "b.sqlite", *words, processes=processes, errors=errors) as url:

        def save(who):
            with httpx2.Client(headers={"accept": "application/json, text/event-stream"}, timeout=30) as client:
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
        address = host_and_port(url)
        half = begun(address, head(address, len(GOOD)) + GOOD[:9])
        time.sleep(0.3)
        processes[0].terminate()
        processes[0].wait(timeout=20)
        for thread in threads:
            thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert set(statuses) <= {200, 503}
    assert answer_to(half).split()[1] == "503" and "Traceback" not in errors[0]
    kept = {query for (query,) in sqlite3.connect(tmp_path / "b.sqlite").execute("SELECT original_query FROM records")}
    assert set(saved) <= kept
