"""A server for a team: tokens of tenants, clients behind a proxy, several servers behind one, health and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from urllib.parse import urlsplit

import forkserver
import httpx2
import pytest
from conftest import REPO, wait_for
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp_kit import HELLO, MODEL, TRAJECTORY, ask, here, http_server, refused, run, until_done

from core.errors import UserError
from mcp_server import checks, tokens
from mcp_server.__main__ import main
from mcp_server.config import load_config
from mcp_server.extraction import QueueWorker
from mcp_server.http import _user, checked_proxies
from mcp_server.server import PROFILES
from mcp_server.service import Service
from mcp_server.sessions import FairSessions

ACCEPT = {"accept": "application/json, text/event-stream"}
TEAM = ("server.stateless=true", "server.json_response=true", "server.trusted_proxies=[127.0.0.1]")
AFTER_2024 = {"mcp-protocol-version": "2025-06-18"}


def token_of(file, agent, capsys):
    assert main(["token", "--tokens", str(file), "--agent-id", agent]) == 0
    return capsys.readouterr().out.strip()


@contextmanager
def as_tenant(url, token, path="/mcp"):
    """A client of the SDK with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    if path == "/sse":
        yield Client(sse_client(f"{url}/sse", headers=headers), mode="legacy")
    else:
        yield Client(streamable_http_client(f"{url}/mcp", http_client=httpx2.AsyncClient(headers=headers)))


def post(url, token="", body=HELLO, path="/mcp", **headers):
    headers = ACCEPT | headers | ({"authorization": f"Bearer {token}"} if token else {})
    return httpx2.post(f"{url}{path}", json=body, headers=headers)


async def said(client, tool, **arguments):
    """All that a tool answers, as one text, errors too."""
    answer = await client.call_tool(tool, arguments)
    return json.dumps(answer.structured_content) + answer.content[0].text


def test_a_token_is_kept_as_a_hash_and_opens_the_memory_it_is_bound_to(tmp_path, capsys):
    file = tmp_path / "tokens"
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert ann not in file.read_text() and bob not in file.read_text() and len(ann) >= 40
    known = tokens.Tenants(file)
    assert [known.agent(each.encode()) for each in (ann, bob, "", ann[:-1], ann + "x")] == [
        "ann",
        "bob",
        None,
        None,
        None,
    ]
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "ann" not in line))
    assert known.agent(ann.encode()) is None and known.agent(bob.encode()) == "bob"
    for broken in ("sha256:12 ann\n", f"{ann} ann\n", f"sha256:{'a' * 64} ../ann\n"):
        file.write_text(broken)
        with pytest.raises(UserError):
            known.agent(bob.encode())
    file.write_text(f"sha256:{hashlib.sha256(b'').hexdigest()} ann\n")  # as of a variable that was not set
    assert known.agent(b"") is None
    file.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        known.agent(bob.encode())


def test_every_hash_is_compared_whichever_token_is_given(tmp_path, capsys, monkeypatch):
    file, compared = tmp_path / "tokens", []
    first, *_ = [token_of(file, name, capsys) for name in "abc"]
    real = tokens.hmac.compare_digest
    monkeypatch.setattr(tokens.hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    assert tokens.Tenants(file).agent(first.encode()) == "a" and len(compared) == 3


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
def test_no_tenant_reaches_the_lessons_of_another_by_any_tool(tmp_path, capsys, path):
    file = tmp_path / "tokens"
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    words = ("--tokens", file, "--tools", "all", *MODEL)
    secret, query = "the vault opens with pineapple", "open the vault of the customer"

    async def go(url):
        with as_tenant(url, ann, path) as a, as_tenant(url, bob, path) as b:
            async with a, b:
                saved = await ask(a, "save_lesson", query=query, title="Vault", content=secret)
                assert (await ask(a, "retrieve_memory", query=query, agent_id="ann"))["memories"][0][
                    "content"
                ] == secret
                job = (await ask(a, "extract_memory", query=query, trajectory=TRAJECTORY, success_signal=True))[
                    "task_id"
                ]
                assert (await until_done(a, job))["status"] == "completed"
                before = await said(a, "export_memory")
                attacks = {
                    "retrieve_memory": {"query": query, "top_k": 50},
                    "search_insights": {"query": query, "top_k": 50},
                    "list_index": {},
                    "export_memory": {"format": "markdown"},
                    "bank_status": {},
                    "get_detail": {"memory_id": saved["memory_id"]},
                    "mark_helpful": {"memory_id": saved["memory_id"]},
                    "mark_harmful": {"memory_id": saved["memory_id"]},
                    "delete_insight": {"memory_id": saved["memory_id"], "hard": True},
                    "task_status": {"task_id": job},
                    "save_lesson": {"query": query, "title": "Mine", "content": "Of bob."},
                    "add_insight": {"title": "Vault", "content": "Of bob.", "tags": ["x"], "overwrite": True},
                    "extract_memory": {
                        "query": query,
                        "trajectory": [{"role": "assistant", "content": saved["memory_id"]}],
                    },
                    "contrast_attempts": {"query": query, "attempts": [{"trajectory": TRAJECTORY}] * 2},
                }
                assert set(attacks) == set(PROFILES["all"])  # a new tool is attacked as well
                for tool, arguments in attacks.items():
                    for whose in ({"agent_id": "ann"}, {"agent_id": "default"}):
                        answer = await b.call_tool(tool, arguments | whose)
                        assert answer.is_error and "bound to bob" in answer.content[0].text, tool
                    told = await said(b, tool, **arguments)
                    assert "pineapple" not in told and '"ann"' not in told, (tool, told)
                for prompt in (await b.list_prompts()).prompts:
                    needed = {given.name: "vault" for given in prompt.arguments or () if given.required}
                    assert "pineapple" not in str(await b.get_prompt(prompt.name, needed))
                after = await said(a, "export_memory")
                counts = re.compile(r"n_(helpful|harmful)[^,]*")
                assert counts.findall(before) == counts.findall(after) and secret in after and "Of bob" not in after

    with http_server(tmp_path / "b.sqlite", *words, transport="sse" if path == "/sse" else "http") as url:
        run(go(url))
        assert post(url, path=path).status_code == 401 and post(url, "x" * 40, path=path).status_code == 401


def test_a_full_queue_of_one_tenant_is_not_full_for_the_others(tmp_path, monkeypatch):
    async def go(server, service):
        async with Client(server) as client:
            for tenant in ("ann", "bob"):
                monkeypatch.setattr("mcp_server.server.caller_of", lambda context, tenant=tenant: tenant)
                for number in range(2):
                    await ask(client, "extract_memory", query=f"task {number}", trajectory=TRAJECTORY)
                assert "2 extractions wait already" in await refused(
                    client, "extract_memory", query="x", trajectory=TRAJECTORY
                )
        assert service.jobs.counts() == {"pending": 4}

    with here(tmp_path / "b.sqlite", *MODEL, "server.max_pending_jobs=2") as (server, service):
        service.bind_agents()
        run(go(server, service))


def test_a_session_serves_the_tenant_alone_that_opened_it_and_a_removed_token_ends(tmp_path, capsys):
    file = tmp_path / "tokens"
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bank_status", "arguments": {}}}
    with http_server(tmp_path / "b.sqlite", "--tokens", file) as url:
        session = {"mcp-session-id": post(url, ann).headers["mcp-session-id"], **AFTER_2024}
        assert '\\"agent_id\\": \\"ann\\"' in post(url, ann, call, **session).text
        assert post(url, bob, call, **session).status_code == 404
        lines = file.read_text()
        file.write_text("".join(line for line in lines.splitlines(True) if "ann" not in line))
        assert post(url, ann, call, **session).status_code == 401 and post(url, bob).status_code == 200
        file.write_text(lines + "nonsense\n")  # an unreadable list lets nobody in
        assert post(url, bob).status_code == 503
        file.write_text(lines)
        assert post(url, ann, call, **session).status_code == 200


def test_a_tenant_that_opens_sessions_without_end_takes_none_from_the_others(tmp_path, capsys):
    file, errors = tmp_path / "tokens", []
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bank_status", "arguments": {}}}

    def opened(url, token):
        answer = post(url, token)
        assert answer.status_code == 200
        return {"mcp-session-id": answer.headers["mcp-session-id"], **AFTER_2024}

    with http_server(tmp_path / "b.sqlite", "--tokens", file, "server.max_sessions=3", errors=errors) as url:
        mine, *anns = opened(url, bob), *(opened(url, ann) for _ in range(5))
        at_work = [post(url, ann, call, **session).status_code for session in anns]
        assert at_work == [404, 404, 404, 200, 200] and post(url, bob, call, **mine).status_code == 200
        assert post(url, ann, call, **anns[3]).status_code == 200  # so that the fifth was silent longer
        more = opened(url, bob)
        assert [post(url, ann, call, **session).status_code for session in anns[3:]] == [200, 404]
        assert {post(url, bob, call, **session).status_code for session in (mine, more)} == {200}
        headers = {"authorization": f"Bearer {bob}", **more}
        assert httpx2.delete(f"{url}/mcp", headers=headers).status_code == 200
        opened(url, ann)  # there is room now: nobody gives way
        assert post(url, bob, call, **mine).status_code == post(url, ann, call, **anns[3]).status_code == 200
        assert post(url, bob, HELLO | {"method": "tools/list"}).status_code == 503  # for what opens none nobody does
    said = " ".join(line[28:91].strip() for line in errors[0].splitlines())  # without the columns of the log
    assert said.count("gives way, of ann") == 1  # in 10 s, however often


@asynccontextmanager
async def few_sessions(most):
    """(request, opened, held) at the SDK's application with `most` sessions: requests of a tenant, one that opens a
    session, and how many each tenant has open."""
    server = MCPServer("x")

    @server.tool()
    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "done"

    app = server.streamable_http_app(host="127.0.0.1", max_sessions=most)
    fair = FairSessions(app, most)

    async def gate(scope, receive, send):
        tenant = dict(scope["headers"])[b"authorization"].decode()
        await fair(scope | {"user": _user(tenant)}, receive, send)

    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=gate)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:

            async def request(tenant, *headers, method="POST", path="/mcp", body=HELLO):
                headers = [*ACCEPT.items(), ("authorization", tenant), *headers]
                return await client.request(method, path, headers=headers, json=body if method == "POST" else None)

            async def opened(tenant):
                answer = await request(tenant)
                assert answer.status_code == 200
                return ("mcp-session-id", answer.headers["mcp-session-id"])

            yield request, opened, lambda: Counter(session.tenant for session in fair._open.values())


@pytest.mark.parametrize(
    ("trick", "status"),
    [
        (lambda own: ([own], {"method": "GET", "path": "/elsewhere"}), 404),
        (lambda own: ([("mcp-session-id", "gone"), own], {}), 404),  # the SDK goes by the first of two
        (lambda own: ([("host", "evil.example")], {}), 421),
        (lambda own: ([("origin", "http://evil.example")], {}), 403),
    ],
    ids=["another path", "two headers", "Host", "Origin"],
)
def test_no_request_makes_a_session_that_is_open_and_not_counted(trick, status):
    async def go():
        async with few_sessions(3) as (request, opened, held):
            for _ in range(3):
                headers, how = trick(await opened("bob"))
                assert (await request("bob", *headers, **how)).status_code == status
            for _ in range(4):
                await opened("ann")
            assert held()["ann"] >= 2

    run(go())


def test_a_burst_of_requests_for_sessions_takes_no_more_than_a_fair_share():
    async def go():
        async with few_sessions(8) as (request, opened, held):
            for tenant in ("carl",) * 6 + ("ann",) * 2:
                await opened(tenant)
            answers = await asyncio.gather(*(request("bob") for _ in range(8)))
            assert held() == {"carl": 3, "ann": 2, "bob": 3}
            assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 5

    run(go())


def test_a_session_with_a_call_at_work_gives_way_last_and_none_to_a_request_that_opens_none():
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}

    async def go():
        async with few_sessions(2) as (request, opened, held):
            busy, idle = [await opened("ann") for _ in range(2)]
            calls = {"method": "tools/call", "params": {"name": "initialize"}}
            for version, body in (("2099-01-01", HELLO | calls), ("2099-01-01", HELLO), ("2025-06-18", HELLO | calls)):
                assert (await request("bob", ("mcp-protocol-version", version), body=body)).status_code >= 400
            assert held() == {"ann": 2}
            at_work = asyncio.create_task(request("ann", busy, body=call))
            await asyncio.sleep(0.1)
            await request("ann", idle, body={"jsonrpc": "2.0", "id": 2, "method": "ping"})  # silent for less long
            await opened("bob")
            assert '"done"' in (await at_work).text and (await request("ann", idle, body=call)).status_code == 404
            assert held() == {"ann": 1, "bob": 1}

    run(go())


def test_what_contradicts_tokens_is_refused(tmp_path, capsys):
    file = tmp_path / "tokens"
    token_of(file, "ann", capsys)
    line = ["--bank", str(tmp_path / "b.sqlite"), "--tokens", str(file)]
    for words, why in (
        ([], "for --transport http"),
        (["--transport", "http", "--token-file", str(file)], "takes the place"),
        (["--transport", "http", "server.anonymous=all"], "contradict"),
    ):
        assert main([*line, *words]) == 2 and why in capsys.readouterr().err
    with here(tmp_path / "c.sqlite") as (_, service):
        service.bind_agents()  # a call that carries no tenant at all, as from a path that somebody adds
        with pytest.raises(UserError, match="carries no token"):
            service.bank_for("ann")


def test_the_limit_is_for_a_client_and_what_a_client_says_of_itself_is_not_believed(tmp_path, capsys):
    few = "server.requests_per_min=3"
    with http_server(tmp_path / "b.sqlite", few, "server.trusted_proxies=[127.0.0.1]") as url:
        one, other = ({"x-forwarded-for": f"203.0.113.{n}"} for n in (1, 2))
        assert [post(url, **one).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert post(url, **other).status_code == 200
        # Whatever stands before what the proxy added is the client's own word.
        assert post(url, **{"x-forwarded-for": "198.51.100.7, 203.0.113.1"}).status_code == 429
        assert [httpx2.get(f"{url}/health").status_code for _ in range(9)] == [200] * 9
    with http_server(tmp_path / "b.sqlite", few) as url:  # nobody is trusted, loopback neither
        forged = [post(url, **{"x-forwarded-for": f"203.0.113.{n}"}).status_code for n in range(4)]
        assert forged == [200, 200, 200, 429]
    file = tmp_path / "tokens"
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    with http_server(tmp_path / "b.sqlite", few, "--tokens", file) as url:  # one address, two clients
        assert [post(url, ann).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert post(url, bob).status_code == 200


@pytest.mark.parametrize("given", ["*", "['*']", "[proxy.example]", "[10.0.0.0/8, x]", "7"])
def test_proxies_are_addresses(given):
    import yaml

    with pytest.raises(UserError, match="trusted_proxies"):
        checked_proxies(yaml.safe_load(given) if given != "*" else given)
    assert checked_proxies(["10.0.0.0/8", "::1"]) == ["10.0.0.0/8", "::1/128"]


def samples(text):
    """{name and labels: value} of Prometheus's text format 0.0.4, by its rules."""
    kinds, found = {}, {}
    label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{{{label}(?:,{label})*\}})? (\S+)")
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in kinds and kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = sample.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            base = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
            assert kinds[base] == "histogram" or (base == name and (kinds[base] == "gauge" or name.endswith("_total")))
            assert (name, labels) not in found
            found[name, labels or ""] = float(value)
    return {f"{name}{labels}": value for (name, labels), value in found.items()}


def test_metrics_count_what_was_served_and_name_nobody(tmp_path, capsys):
    file = tmp_path / "tokens"
    ann = token_of(file, "ann-of-accounting", capsys)

    async def go(url):
        with as_tenant(url, ann) as made:
            async with made as client:
                for _ in range(3):
                    await ask(client, "retrieve_memory", query="anything")
                assert (await client.call_tool("get_detail", {"memory_id": "none"})).is_error

    with http_server(tmp_path / "b.sqlite", "--tokens", file) as url:
        run(go(url))
        assert httpx2.get(f"{url}/metrics").status_code == 401
        good = {"authorization": f"Bearer {ann}"}
        assert httpx2.get(f"{url}/metrics", headers=good | {"host": "evil.example"}).status_code == 421
        page = httpx2.get(f"{url}/metrics", headers=good)
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(page.text)
    assert found['reasoningbank_tool_calls_total{tool="retrieve_memory",outcome="ok"}'] == 3
    assert found['reasoningbank_tool_calls_total{tool="get_detail",outcome="error"}'] == 1
    assert found['reasoningbank_tool_seconds_bucket{tool="retrieve_memory",le="+Inf"}'] == 3
    buckets = [v for k, v in found.items() if k.startswith('reasoningbank_tool_seconds_bucket{tool="retrieve_memory"')]
    assert buckets == sorted(buckets) and found["reasoningbank_retrievals_total"] == 3
    assert found['reasoningbank_http_responses_total{status="401"}'] == 1
    assert "accounting" not in page.text


def test_health_asks_for_no_token_and_reads_the_bank(tmp_path):
    bank = tmp_path / "b.sqlite"
    with http_server(bank) as url:
        assert httpx2.get(f"{url}/health").text == "ok"


def postgres_server():
    from embedded_postgres import Server, missing

    if reason := missing():
        pytest.skip(reason)
    return Server()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_server_whose_lock_is_lost_leaves_the_queue_to_another(postgres, monkeypatch, caplog):
    bank, learned = postgres.new(), []
    with closing(Service(bank, load_config(list(MODEL)), embedder="hashing-256")) as service:
        jobs, other = service.jobs, service.bank.jobs()
        payload = checks.attempt(TRAJECTORY, "a task", service.settings)
        for id in ("first", "second", "third"):
            jobs.put(id, "default", payload)

        def learn(service, bank_, id, payload):
            learned.append(id)
            if id == "first":
                database = urlsplit(bank).path[1:]
                end = "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = database"
                postgres.admin(database, f"{end} WHERE locktype = 'advisory' AND datname = '{database}'")
                wait_for(other.lead)
            return {}

        monkeypatch.setattr("mcp_server.extraction.learn_attempt", learn)
        worker = QueueWorker(service)
        worker._work()
        assert learned == ["first"] and "lock was lost" in caplog.text
        assert jobs.get("first").state == "completed" and jobs.get("second").tries == 0
        assert other.next().id == "second"
        worker._work()  # while the other leads
        assert learned == ["first"]
        other.leave()
        worker._work()
        assert learned == ["first", "second", "third"] and not jobs.waiting()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed (apt install haproxy)")
def test_two_servers_behind_haproxy_share_the_clients_and_one_may_be_killed(tmp_path, capsys, store):
    file, front = tmp_path / "tokens", free_port()
    bank, database = tmp_path / "b.sqlite", None
    if store == "postgres":
        database = postgres_server()
        bank = database.new()
    ann = token_of(file, "ann", capsys)
    good = {"authorization": f"Bearer {ann}"}

    def calls(url):
        return samples(httpx2.get(f"{url}/metrics", headers=good).text).get(
            'reasoningbank_tool_calls_total{tool="save_lesson",outcome="ok"}', 0
        )

    async def save(client, number):
        words = {"title": f"Lesson {number}", "content": f"Content of number {number}."}
        return await ask(client, "save_lesson", query=f"task number {number}", **words)

    with ExitStack() as stack:
        if database:
            stack.callback(database.close)
        words = ("--tokens", file, *TEAM)
        processes = []
        one, two = (stack.enter_context(http_server(bank, *words, processes=processes)) for _ in range(2))
        names = {"MCP_BIND": f"127.0.0.1:{front}", "MCP_ONE": one[7:], "MCP_TWO": two[7:]}
        line = ["haproxy", "-db", "-f", str(REPO / "mcp_server/deploy/haproxy.cfg")]
        proxy = forkserver.Popen(line, env=os.environ | names, stderr=subprocess.DEVNULL)
        stack.callback(lambda: (proxy.terminate(), proxy.wait()))
        url = f"http://127.0.0.1:{front}"
        for _ in range(100):
            try:
                if httpx2.get(f"{url}/health").status_code == 200:
                    break
            except httpx2.HTTPError:
                time.sleep(0.1)
        for path in ("/metrics", "/%6Detrics"):
            assert httpx2.get(f"{url}{path}", headers=good).status_code == 404

        async def go():
            with as_tenant(url, ann) as made, as_tenant(url, ann) as more:
                async with made as a, more as b:
                    for number in range(10):
                        await save(a if number % 2 else b, number)
                    shares = calls(one), calls(two)
                    processes[0].kill()
                    # Until it is gone its connections are open, and HAProxy closes that of a client without an answer
                    # where what it sent on was never read: the client breaks, and no server of ours has a part in it.
                    processes[0].wait()
                    for number in range(10, 20):
                        await save(a if number % 2 else b, number)
                    return shares, await ask(a, "bank_status")

        shares, status = run(go())
        assert sum(shares) == 10 and min(shares) > 0
        assert sum(status["records"].values()) == 20
        # An old client, which would want a session, is served by either server as well.
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bank_status", "arguments": {}}}
        answer = post(url, ann, call, **AFTER_2024)
        assert answer.headers["content-type"] == "application/json" and answer.json()["result"]["isError"] is False
        assert "mcp-session-id" not in post(url, ann).headers
        if database:
            database.kill()
            assert httpx2.get(f"{two}/health").status_code == 503
            told = samples(httpx2.get(f"{two}/metrics", headers=good).text)
            assert told['reasoningbank_http_responses_total{status="503"}'] >= 1
            assert "reasoningbank_extractions_pending" not in told
            wait_for(lambda: httpx2.get(f"{url}/health").status_code == 503)  # no server is left to ask
            database.start()
            assert httpx2.get(f"{two}/health").text == "ok"
            wait_for(lambda: post(url, ann, call, **AFTER_2024).status_code == 200)
