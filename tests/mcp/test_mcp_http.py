"""Over HTTP: tokens, Host headers, whom the server answers; the SDK's client over streamable HTTP and SSE."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from contextlib import ExitStack

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_kit import HELLO, TOKEN, calling, http_server, lessons_in

from core.errors import UserError
from mcp_server.__main__ import parser
from mcp_server.http import FromProxy, host_rules
from mcp_server.tokens import is_loopback, read_token

ACCEPT = {"accept": "application/json, text/event-stream"}


def post(url, **headers):
    return httpx2.post(f"{url}/mcp", json=HELLO, headers=ACCEPT | headers)


def with_token(url):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"})
    return calling(Client(streamable_http_client(f"{url}/mcp", http_client=http)))


LESSON = {"query": "ship a release", "title": "Tag first", "content": "Tag, then build."}


def test_two_clients_share_a_server_on_loopback_without_a_token(tmp_path):
    with http_server(tmp_path / "b.sqlite", "server.max_body_bytes=2000") as url:
        with calling(Client(f"{url}/mcp")) as a, calling(Client(f"{url}/mcp")) as b:
            a.ask("save_lesson", **LESSON)
            assert lessons_in(b.ask("retrieve_memory", query=LESSON["query"]))[0]["title"] == "Tag first"
        big = HELLO | {"params": {"filler": "x" * 3000}}
        assert httpx2.post(f"{url}/mcp", json=big, headers=ACCEPT).status_code == 413
        answers = [post(url) for _ in range(30)]  # of clients that leave without a word
        assert {answer.status_code for answer in answers} == {200}
        assert not any("mcp-session-id" in answer.headers for answer in answers)
        assert stat.S_IMODE((tmp_path / "b.sqlite").stat().st_mode) == 0o666 & ~umask()  # without a token


def test_a_token_is_asked_for_foreign_hosts_are_refused_and_the_bank_is_nobody_elses_to_read(tmp_path):
    good, bank, errors = {"authorization": f"Bearer {TOKEN}"}, tmp_path / "new" / "b.sqlite", []
    with http_server(bank, token=TOKEN) as url:
        for header in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": TOKEN},
            {"authorization": f"Basic {TOKEN}"},
        ):
            answer = post(url, **header)
            assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer ")
        assert httpx2.get(f"{url}/.well-known/oauth-authorization-server").status_code == 404  # clients look here first
        for how, status in (
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "http://localhost:3000"}, 200),
            ({}, 200),
        ):
            assert post(url, **good, **how).status_code == status, how
        with with_token(url) as client:
            assert client.ask("save_lesson", **LESSON)["status"] == "saved"
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (bank.parent, *bank.parent.iterdir())}
    assert modes["new"] == 0o700 and len(modes) > 3
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    bank.chmod(0o644)
    with http_server(bank, token=TOKEN, errors=errors):
        pass
    assert f"the bank can be read by other users of this machine: chmod 600 {bank}." in errors[0]


def umask():
    os.umask(now := os.umask(0))
    return now


def test_old_clients_have_sse_and_streams_have_a_limit(tmp_path):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with http_server(tmp_path / "b.sqlite", "server.max_sessions=3", transport="sse", token=TOKEN) as url:
        for _ in range(5):  # each leaves without a word
            with httpx2.stream("GET", f"{url}/sse", headers=headers, timeout=20) as stream:
                lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
                assert httpx2.post(f"{url}{next(lines)}", json=HELLO, headers=headers).status_code == 202
                assert json.loads(next(lines))["result"]["serverInfo"]["name"] == "reasoningbank"
        with calling(Client(sse_client(f"{url}/sse", headers=headers), mode="legacy")) as client:
            assert client.ask("bank_status")["agent_id"] == "default"
        assert httpx2.get(f"{url}/sse").status_code == 401
        assert httpx2.get(f"{url}/sse", headers=headers | {"host": "evil.example"}).status_code == 421
        with ExitStack() as stack:
            opened = [stack.enter_context(httpx2.stream("GET", f"{url}/sse", headers=headers)) for _ in range(5)]
            assert (opened[0].status_code, opened[-1].status_code) == (200, 503)


def test_the_address_is_the_one_that_clients_of_the_reasoningbank_server_have():
    given = parser().parse_args(["--transport", "sse"])
    assert (given.host, given.port) == ("127.0.0.1", 8000)


def test_all_addresses_are_served_under_the_names_that_were_given_only(tmp_path):
    good = {"authorization": f"Bearer {TOKEN}"}
    options = ("--host", "0.0.0.0", "--allowed-host", "memory.example", "server.trusted_proxies=[10.0.0.5]")
    with http_server(tmp_path / "b.sqlite", *options, token=TOKEN) as url:
        assert post(url, **good).status_code == 421
        assert post(url, **good, host="memory.example").status_code == 200
        assert post(url, **good, host="memory.example:8765").status_code == 200
        assert post(url, host="memory.example").status_code == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3", "0.0.0.0", "example"])
def test_only_loopback_goes_without_a_token(host, monkeypatch, tmp_path):
    loopback = host not in ("0.0.0.0", "example")
    monkeypatch.delenv("T", raising=False)
    assert is_loopback(host) is loopback
    if loopback:
        assert read_token(host, "T", None) is None
    else:
        with pytest.raises(UserError, match="bearer token"):
            read_token(host, "T", None)
    monkeypatch.setenv("T", "short")
    with pytest.raises(UserError, match="at least 16"):
        read_token(host, "T", None)
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert read_token(host, "T", tmp_path / "token") == TOKEN
    with pytest.raises(UserError, match="cannot be read"):
        read_token(host, "T", tmp_path / "none")


def test_beyond_loopback_the_names_and_the_proxy_are_asked_for():
    with pytest.raises(UserError, match="--allowed-host"):
        host_rules("0.0.0.0", [], ["10.0.0.5"])
    for host, names in (("0.0.0.0", ["memory.example"]), ("10.0.0.7", [])):
        with pytest.raises(UserError, match="a proxy with TLS in front"):
            host_rules(host, names, [])
    assert host_rules("10.0.0.7", [], ["10.0.0.5/32"]).allowed_hosts == ["10.0.0.7", "10.0.0.7:*"]


def test_only_the_proxy_and_this_machine_are_answered():
    async def served(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def status(address):
        transport = httpx2.ASGITransport(FromProxy(served, ["10.0.0.5", "fd00::/8"]), client=(address, 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://host") as client:
            return (await client.get("/", headers={"x-forwarded-for": "127.0.0.1"})).status_code

    for address in ("127.0.0.1", "::1", "10.0.0.5", "::ffff:10.0.0.5", "fd00::7"):
        assert asyncio.run(status(address)) == 200, address
    for address in ("10.0.0.6", "203.0.113.1", "::ffff:203.0.113.1", "2001:db8::1"):
        assert asyncio.run(status(address)) == 403, address
