"""Over HTTP: tokens, Host headers, whom the server answers; the SDK's client over streamable HTTP and SSE."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_kit import HELLO, TOKEN, ask, http_server, lessons_in, run

from core.errors import UserError
from mcp_server.__main__ import parser
from mcp_server.http import FromProxy, host_rules
from mcp_server.tokens import is_loopback, read_token

ACCEPT = {"accept": "application/json, text/event-stream"}


def post(url, **headers):
    return httpx2.post(f"{url}/mcp", json=HELLO, headers=ACCEPT | headers)


def test_two_clients_share_a_server_on_loopback_without_a_token(tmp_path):
    async def go(url):
        async with Client(f"{url}/mcp") as a, Client(f"{url}/mcp") as b:
            await ask(a, "save_lesson", query="ship a release", title="Tag first", content="Tag, then build.")
            return await ask(b, "retrieve_memory", query="ship a release")

    with http_server(tmp_path / "b.sqlite") as url:
        assert lessons_in(run(go(url)))[0]["title"] == "Tag first"
        assert post(url).status_code == 200


def test_a_token_is_asked_for_and_foreign_hosts_and_origins_are_refused(tmp_path):
    async def go(url):
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"})
        async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            return await ask(client, "bank_status")

    good = {"authorization": f"Bearer {TOKEN}"}
    with http_server(tmp_path / "b.sqlite", token=TOKEN) as url:
        assert run(go(url))["agent_id"] == "default"
        for header in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": TOKEN},
            {"authorization": f"Basic {TOKEN}"},
        ):
            answer = post(url, **header)
            assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer ")
        assert httpx2.get(f"{url}/.well-known/oauth-authorization-server").status_code == 404  # clients look here first
        assert post(url, **good, host="evil.example").status_code == 421
        assert post(url, **good, origin="http://evil.example").status_code == 403
        assert post(url, **good, origin="http://localhost:3000").status_code == 200
        assert post(url, **good).status_code == 200


@pytest.mark.slow
def test_what_a_token_guards_lies_open_to_nobody_on_the_disk(tmp_path):
    async def go(url):
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"})
        async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            await ask(client, "save_lesson", query="ship a release", title="Tag first", content="Tag, then build.")

    bank, errors = tmp_path / "new" / "b.sqlite", []
    with http_server(bank, token=TOKEN) as url:
        run(go(url))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (bank.parent, *bank.parent.iterdir())}
    assert modes["new"] == 0o700 and len(modes) > 3
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    bank.chmod(0o644)
    with http_server(bank, token=TOKEN, errors=errors):
        pass
    assert f"the bank can be read by other users of this machine: chmod 600 {bank}." in errors[0]
    with http_server(tmp_path / "open.sqlite"):  # without a token it is as the user's umask says
        assert stat.S_IMODE((tmp_path / "open.sqlite").stat().st_mode) == 0o666 & ~umask()


def umask():
    os.umask(now := os.umask(0))
    return now


def test_bodies_are_limited(tmp_path):
    with http_server(tmp_path / "b.sqlite", "server.max_body_bytes=2000") as url:
        big = HELLO | {"params": {"filler": "x" * 3000}}
        assert httpx2.post(f"{url}/mcp", json=big, headers=ACCEPT).status_code == 413
        assert post(url).status_code == 200


def test_clients_that_leave_without_a_word_use_nothing_up_and_streams_have_a_limit(tmp_path):
    with http_server(tmp_path / "b.sqlite", "server.max_sessions=10") as url:
        answers = [post(url) for _ in range(30)]
        assert {answer.status_code for answer in answers} == {200}
        assert not any("mcp-session-id" in answer.headers for answer in answers)
    with http_server(tmp_path / "b.sqlite", "server.max_sessions=3", transport="sse") as url, ExitStack() as stack:
        streams = [stack.enter_context(httpx2.stream("GET", f"{url}/sse")).status_code for _ in range(4)]
        assert streams[0] == 200 and streams[-1] == 503


def test_old_clients_have_sse(tmp_path):
    async def go(url):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with Client(sse_client(f"{url}/sse", headers=headers), mode="legacy") as client:
            return await ask(client, "bank_status")

    with http_server(tmp_path / "b.sqlite", transport="sse", token=TOKEN) as url:
        assert run(go(url))["agent_id"] == "default"
        assert httpx2.get(f"{url}/sse").status_code == 401
        bad = {"authorization": f"Bearer {TOKEN}", "host": "evil.example"}
        assert httpx2.get(f"{url}/sse", headers=bad).status_code == 421


def test_the_address_is_the_one_that_clients_of_the_reasoningbank_server_have():
    given = parser().parse_args(["--transport", "sse"])
    assert (given.host, given.port) == ("127.0.0.1", 8000)
    given = parser().parse_args(["--transport", "sse", "--host", "127.0.0.1", "--port", "8080"])
    assert (given.transport, given.host, given.port) == ("sse", "127.0.0.1", 8080)


def test_all_addresses_are_served_under_the_names_that_were_given_only(tmp_path):
    good = {"authorization": f"Bearer {TOKEN}"}
    options = ("--host", "0.0.0.0", "--allowed-host", "memory.example", "server.trusted_proxies=[10.0.0.5]")
    with http_server(tmp_path / "b.sqlite", *options, token=TOKEN) as url:
        assert post(url, **good).status_code == 421
        assert post(url, **good, host="memory.example").status_code == 200
        assert post(url, **good, host="memory.example:8765").status_code == 200
        assert post(url, host="memory.example").status_code == 401


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.1.2.3", True),
        ("0.0.0.0", False),
        ("example", False),
    ],
)
def test_only_loopback_goes_without_a_token(host, loopback, monkeypatch, tmp_path):
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
        assert run(status(address)) == 200, address
    for address in ("10.0.0.6", "203.0.113.1", "::ffff:203.0.113.1", "2001:db8::1"):
        assert run(status(address)) == 403, address
