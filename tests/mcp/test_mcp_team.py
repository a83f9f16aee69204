"""A server for a team: tokens of tenants, several servers behind a proxy, health."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import httpx2
import pytest
from conftest import wait_for
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_kit import (
    HELLO,
    LEAST,
    MODEL,
    TRAJECTORY,
    behind_haproxy,
    call,
    calling,
    here,
    http_server,
    needs_haproxy,
    served,
)

from core.errors import UserError
from mcp_server import checks, tokens
from mcp_server.__main__ import main
from mcp_server.config import load_config
from mcp_server.extraction import QueueWorker
from mcp_server.http import checked_proxies
from mcp_server.server import PROFILES
from mcp_server.service import Service

ACCEPT = {"accept": "application/json, text/event-stream"}
AFTER_2024 = {"mcp-protocol-version": "2025-06-18"}
STATUS = call(1, "bank_status")


def token_of(file, agent, capsys):
    assert main(["token", "--tokens", str(file), "--agent-id", agent]) == 0
    return capsys.readouterr().out.strip()


def as_tenant(url, token, path="/mcp"):
    """A Caller with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    if path == "/sse":
        return calling(Client(sse_client(f"{url}/sse", headers=headers), mode="legacy"))
    return calling(Client(streamable_http_client(f"{url}/mcp", http_client=httpx2.AsyncClient(headers=headers))))


def post(url, token="", body=HELLO, path="/mcp", **headers):
    headers = ACCEPT | headers | ({"authorization": f"Bearer {token}"} if token else {})
    return httpx2.post(f"{url}{path}", json=body, headers=headers)


def said(client, tool, **arguments):
    """All that a tool answers, as one text, errors too."""
    answer = client.call(tool, **arguments)
    return json.dumps(answer.structured_content) + answer.content[0].text


def test_a_token_is_kept_as_a_hash_and_opens_the_memory_it_is_bound_to(tmp_path, capsys):
    file = tmp_path / "tokens"
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert ann not in file.read_text() and bob not in file.read_text() and len(ann) >= 40
    known = tokens.Tenants(file)
    found = [known.agent(each.encode()) for each in (ann, bob, "", ann[:-1], ann + "x")]
    assert found == ["ann", "bob", None, None, None]
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
    with (
        http_server(tmp_path / "b.sqlite", *words, transport=path[1:].replace("mcp", "http")) as url,
        as_tenant(url, ann, path) as a,
        as_tenant(url, bob, path) as b,
    ):
        id = a.ask("save_lesson", query=query, title="Vault", content=secret)["memory_id"]
        assert secret in a.ask("retrieve_memory", query=query, agent_id="ann")["formatted_prompt"]
        job = a.ask("extract_memory", query=query, trajectory=TRAJECTORY, success_signal=True)["task_id"]
        assert a.until_done(job)["status"] == "completed"
        before = said(a, "export_memory")
        aimed = {  # beside what each tool needs
            "retrieve_memory": {"query": query, "top_k": 50},
            "search_insights": {"query": query, "limit": 50},
            "export_memory": {"format": "markdown"},
            "get_detail": {"memory_id": id},
            "mark_helpful": {"memory_id": id},
            "mark_harmful": {"memory_id": id},
            "update_lesson": {"memory_id": id[:8], "content": "Of bob."},
            "delete_lesson": {"memory_id": id[:8], "permanent": True},
            "task_status": {"task_id": job},
            "save_lesson": {"query": query, "title": "Mine", "content": "Of bob."},
            "add_insight": {"title": "Vault", "content": "Of bob.", "overwrite": True},
            "extract_memory": {"query": query, "trajectory": [{"role": "assistant", "content": id}]},
            "contrast_attempts": {"query": query},
        }
        assert set(LEAST) == set(PROFILES["all"])  # a new tool is attacked as well
        for tool, needed in LEAST.items():
            arguments = needed | aimed.get(tool, {})
            for whose in ({"agent_id": "ann"}, {"agent_id": "default"}):
                assert "bound to bob" in b.refused(tool, **arguments | whose), tool
            told = said(b, tool, **arguments)
            assert "pineapple" not in told and '"ann"' not in told, (tool, told)
        for prompt in b.do("list_prompts").prompts:
            needed = {given.name: "vault" for given in prompt.arguments or () if given.required}
            assert "pineapple" not in b.prompt(prompt.name, **needed)
        after = said(a, "export_memory")
        counts = re.compile(r"n_(helpful|harmful)[^,]*")
        assert counts.findall(before) == counts.findall(after) and secret in after and "Of bob" not in after
        assert post(url, path=path).status_code == 401 and post(url, "x" * 40, path=path).status_code == 401


def test_a_full_queue_of_one_tenant_is_not_full_for_the_others(tmp_path, monkeypatch):
    with served(tmp_path / "b.sqlite", *MODEL, "server.max_pending_jobs=2") as (client, service):
        service.bind_agents()
        for tenant in ("ann", "bob"):
            monkeypatch.setattr("mcp_server.server.caller_of", lambda context, tenant=tenant: tenant)
            for number in (0, 1, 1):  # the same task again takes no place
                told = client.ask("extract_memory", query=f"task {number}", trajectory=TRAJECTORY)
                assert told["status"] == "processing"
            full = client.refused("extract_memory", query="x", trajectory=TRAJECTORY)
            assert "2 extractions wait already" in full
        assert service.jobs.counts() == {"pending": 4}


def test_a_removed_token_ends_and_an_unreadable_list_lets_nobody_in(tmp_path, capsys):
    file = tmp_path / "tokens"
    ann, bob = (token_of(file, name, capsys) for name in ("ann", "bob"))
    with http_server(tmp_path / "b.sqlite", "--tokens", file) as url:
        assert httpx2.get(f"{url}/health").text == "ok"  # without a token
        for name, token in (("ann", ann), ("bob", bob)):
            assert f'\\"agent_id\\": \\"{name}\\"' in post(url, token, STATUS, **AFTER_2024).text
        lines = file.read_text()
        file.write_text("".join(line for line in lines.splitlines(True) if "ann" not in line))
        assert post(url, ann, STATUS, **AFTER_2024).status_code == 401 and post(url, bob).status_code == 200
        file.write_text(lines + "nonsense\n")
        answer = post(url, bob)
        assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
        file.write_text(lines)
        assert post(url, ann, STATUS, **AFTER_2024).status_code == 200


def test_over_sse_a_session_serves_the_tenant_alone_that_opened_it(tmp_path, capsys):
    file = tmp_path / "tokens"
    ann, bob = ({"authorization": f"Bearer {token_of(file, name, capsys)}"} for name in ("ann", "bob"))
    with (
        http_server(tmp_path / "b.sqlite", "--tokens", file, transport="sse") as url,
        httpx2.stream("GET", f"{url}/sse", headers=ann, timeout=10) as stream,
    ):
        lines = stream.iter_lines()  # which is the stream: it ends with this
        place = next(line for line in lines if line.startswith("data:")).removeprefix("data:").strip()
        for headers, status in ((bob, 404), ({}, 401), (ann, 202)):
            assert httpx2.post(f"{url}{place}", json=HELLO, headers=headers).status_code == status


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


@pytest.mark.parametrize("given", ["*", "['*']", "[proxy.example]", "[10.0.0.0/8, x]", "7"])
def test_proxies_are_addresses(given):
    import yaml

    with pytest.raises(UserError, match="trusted_proxies"):
        checked_proxies(yaml.safe_load(given) if given != "*" else given)
    assert checked_proxies(["10.0.0.0/8", "::1"]) == ["10.0.0.0/8", "::1/128"]


def postgres_server():
    from embedded_postgres import Server, missing

    if reason := missing():
        pytest.skip(reason)
    return Server()


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
@needs_haproxy
def test_two_servers_behind_haproxy_share_the_clients_and_one_may_be_killed(tmp_path, capsys, store):
    file = tmp_path / "tokens"
    bank, database = tmp_path / "b.sqlite", None
    if store == "postgres":
        database = postgres_server()
        bank = database.new()
    ann = token_of(file, "ann", capsys)

    def save(client, number):
        words = {"title": f"Lesson {number}", "content": f"Content of number {number}."}
        client.ask("save_lesson", query=f"task number {number}", **words)

    with ExitStack() as stack:
        if database:
            stack.callback(database.close)
        processes = []
        servers = [stack.enter_context(http_server(bank, "--tokens", file, processes=processes)) for _ in range(2)]
        url = stack.enter_context(behind_haproxy(*servers))
        with as_tenant(url, ann) as a, as_tenant(url, ann) as b:
            for number in range(6):
                save(a if number % 2 else b, number)
            processes[0].kill()
            # Until it is gone its connections are open, and HAProxy closes that of a client without an answer
            # where what it sent on was never read: the client breaks, and no server of ours has a part in it.
            processes[0].wait()
            for number in range(6, 12):
                save(a if number % 2 else b, number)
            assert sum(a.ask("bank_status")["records"].values()) == 12
        # An old client, which would take a session if it were given one, is served as well.
        answer = post(url, ann, STATUS, **AFTER_2024)
        assert answer.headers["content-type"] == "application/json" and answer.json()["result"]["isError"] is False
        assert "mcp-session-id" not in post(url, ann).headers
        if database:
            database.kill()
            assert httpx2.get(f"{servers[1]}/health").status_code == 503
            wait_for(lambda: httpx2.get(f"{url}/health").status_code == 503)  # no server is left to ask
            database.start()
            assert httpx2.get(f"{servers[1]}/health").text == "ok"
            wait_for(lambda: post(url, ann, STATUS, **AFTER_2024).status_code == 200)
