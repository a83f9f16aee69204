"""Groups: a member reads its mates' lessons, writes its own alone, and nobody else learns of them; on the server."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import contextmanager

import httpx2
import pytest
from embedded_postgres import missing
from mcp_kit import here, http_server
from test_mcp_team import as_tenant, token_of
from test_tenants_answers import Tenant, everything, still, team  # noqa: F401 - still is a fixture

from core.errors import StopRun, UserError
from core.memory import formats
from core.memory.__main__ import main as bank_command
from core.memory.history import History
from mcp_server import tokens
from mcp_server.__main__ import main
from mcp_server.http import build_app
from mcp_server.server import PROFILES, READ_ONLY
from mcp_server.tools import MemoryTools

GROUPS = {("web", "ann"), ("web", "bob"), ("data", "eve"), ("data", "bob")}
CACHE = {"query": "deploy the site", "title": "Cache", "content": "Clear the cache before the upload."}


def known(members=GROUPS):
    return tokens.TokenFile({}, set(members))


@contextmanager
def group(path, *words):
    """(ann, bob, eve, the service) of a server whose groups are GROUPS: ann and bob are mates, and bob and eve."""
    with team(path, *words) as (ann, bob, service):
        service.bind_agents(known().reads)
        yield ann, bob, Tenant(ann.server, service, "eve"), service


def shown(text):
    """(id, author, title) of the lessons in an answer's text."""
    return re.findall(r"^\[\d+\] id=(\S+) (?:\(agent_id=(\w+)[^)]*\) )?(.*)$", text, re.MULTILINE)


def titles(tenant):
    found = shown(tenant.call("retrieve_memory", query="deploy the site", top_k=9)[1])
    return [(title, author) for _, author, title in found]


def test_who_reads_whom_follows_from_the_groups():
    reads = known().reads
    assert {name: reads(name) for name in ("ann", "bob", "eve", "zoe", "web")} == {
        "ann": ["bob", "web"],
        "bob": ["ann", "data", "eve", "web"],
        "eve": ["bob", "data"],
        "zoe": [],
        "web": [],
    }


def test_a_mates_lessons_are_found_with_their_author_and_not_those_of_other_groups(tmp_path):
    with group(tmp_path / "b.sqlite") as (ann, bob, eve, service):
        ann.call("save_lesson", **CACHE)
        eve.call("save_lesson", **CACHE | {"title": "Of eve", "content": "Warm the cache after it."})
        assert titles(ann) == [("Cache", "ann")] and titles(eve) == [("Of eve", "eve")]
        assert set(titles(bob)) == {("Cache", "ann"), ("Of eve", "eve")}
        found = shown(bob.call("retrieve_memory", query="deploy the site", top_k=9)[1])
        [id] = [id for id, author, _ in found if author == "ann"]
        assert "Clear the cache" in bob.call("get_detail", memory_id=id)[1]
        # Alike in every word: shown once. What was shown of others is not counted, of one's own it is.
        bob.call("save_lesson", **CACHE)
        assert len([title for title, _ in titles(bob) if title == "Cache"]) == 1
        assert [record.n_used for record in service.bank.records("ann")] == [1]
        assert {record.namespace for record in service.bank.records()} == {"ann", "bob", "eve"}
        assert len(bob.data("list_index")["insights"]) == 1  # what one lists, exports and counts is one's own


def test_a_mates_lesson_that_is_far_behind_the_best_is_left_out_as_ones_own_would_be(tmp_path):
    with group(tmp_path / "b.sqlite") as (ann, bob, _, service):
        ann.call("save_lesson", **CACHE)
        bob.call("save_lesson", query="paint the site fence", title="Fence", content="Two coats of green.")
        [hit], _ = service.bank.of("bob").retrieve_and_count("deploy the site", 9)
        [best] = service.bank.of("ann").retrieve("deploy the site")
        assert hit.score < service.bank.policy.of_best * best.score
        assert titles(bob) == titles(ann) == [("Cache", "ann")]


def test_a_mates_lesson_cannot_be_changed_by_any_tool(tmp_path):
    with group(tmp_path / "b.sqlite") as (ann, bob, eve, service):
        ann.call("save_lesson", **CACHE)
        [lesson] = service.bank.records("ann")
        tried = []
        for name in PROFILES["all"]:
            needed = inspect.signature(getattr(MemoryTools, name)).parameters
            if "memory_id" not in needed or name in READ_ONLY:
                continue
            given = {each.name: "x" for each in needed.values() if each.default is each.empty and each.name != "self"}
            for caller, why in (
                (bob, "is of ann: you may read it, and change only your own."),
                (eve, "there is no memory"),
            ):
                kind, said = caller.call(name, **given | {"memory_id": lesson.id})
                assert kind == "error" and why in said and "\n" not in said, (name, said)
                assert caller.call(name, **given | {"memory_id": lesson.id, "agent_id": "ann"})[0] == "error"
            tried.append(name)
        assert len(tried) >= 3 and service.bank.records("ann") == [lesson]
        assert eve.call("get_detail", memory_id=lesson.id)[0] == "error"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_one_outside_a_group_learns_nothing_of_it_whatever_it_does(tmp_path, store, request):
    if store == "postgres" and missing():
        pytest.skip(missing())
    server = request.getfixturevalue("postgres") if store == "postgres" else None

    def answers(name, *, acts):
        with group(server.new() if server else tmp_path / name) as (ann, _, eve, service):
            eve.save(1)
            eve.save(2, "ship a release before the tests", tags=["release"])
            zoe = Tenant(ann.server, service, "zoe")  # in no group
            for n in range(2):
                zoe.save(n)
            ids = [record.id for record in service.bank.records("zoe")]
            if acts:
                for n in range(9):
                    ann.save(n, "ship a release")
                ids_of_ann = [record.id for record in service.bank.records("ann")]
                for id in (*ids_of_ann, ids_of_ann[0][:8], f"{ids_of_ann[0]}-0"):
                    assert "there is no memory" in zoe.call("get_detail", memory_id=id)[1]
                for whose in ("ann", "web", "*", "default", "ann,bob"):
                    assert "bound to zoe" in zoe.call("retrieve_memory", query="release", agent_id=whose)[1]
            return everything(zoe, ids, "none"), everything(eve, [], "none")

    alone, beside = answers("alone.sqlite", acts=False), answers("beside.sqlite", acts=True)
    assert alone == beside


def test_over_http_groups_are_those_of_the_file_and_end_with_their_line(tmp_path, capsys):
    file, bank = tmp_path / "team.tokens", tmp_path / "b.sqlite"
    made = {}
    for name, of in (("ann", "web"), ("bob", "web"), ("eve", None)):
        words = ["token", "--tokens", str(file), "--agent-id", name, *(["--group", of] if of else [])]
        assert main(words) == 0
        made[name] = capsys.readouterr().out.strip()
    assert main(["token", "--tokens", str(file), "--list"]) == 0
    table, lines_of_all = capsys.readouterr().out.splitlines(), file.read_text()
    assert table[0].split() == ["agent_id", "tokens", "writes", "reads"]
    assert [" ".join(line.split()) for line in table[1:]] == [
        "ann 1 ann ann, bob, web",
        "bob 1 bob bob, ann, web",
        "eve 1 eve eve",
    ]

    def titles(url, name):
        with as_tenant(url, made[name]) as client:
            answer = client.call("retrieve_memory", query="deploy the site", top_k=9)
            return [title for *_, title in shown(answer.content[0].text)]

    with http_server(bank, "--tokens", file) as url:
        with as_tenant(url, made["ann"]) as client:
            client.ask("save_lesson", **CACHE)
        assert [titles(url, name) for name in made] == [["Cache"], ["Cache"], []]
        file.write_text(lines_of_all.replace("group web bob\n", ""))
        assert titles(url, "bob") == []
        file.write_text(lines_of_all)
    assert main(["token", "--tokens", str(file), "--agent-id", "web"]) == 2  # the memory of the group
    assert main(["token", "--tokens", str(file), "--agent-id", "zoe", "--group", "ann"]) == 2
    assert file.read_text() == lines_of_all and "is both a group and an agent_id" in capsys.readouterr().err
    for broken in ("group web\n", "group ../x ann\n", "groups web ann\n", "group a b\ngroup b a\n"):
        file.write_text(broken)
        with pytest.raises(UserError):
            tokens.Tenants(file)


def test_an_import_for_a_group_keeps_the_authors(tmp_path, capsys):
    with group(tmp_path / "b.sqlite") as (ann, _, _, service):
        ann.call("save_lesson", **CACHE)
        formats.export(service.bank, tmp_path / "all.jsonl", "jsonl")
    shared = tmp_path / "shared.sqlite"
    words = ["import", str(shared), str(tmp_path / "all.jsonl"), "--embedder", "hashing-256"]
    assert bank_command([*words, "--group", "data", "--namespace", "x"]) == 2
    assert bank_command([*words, "--group", "data"]) == 0
    capsys.readouterr()
    with group(shared) as (ann, bob, eve, service):
        assert titles(ann) == [] and titles(eve) == titles(bob) == [("Cache", "ann")]
        [lesson] = service.bank.records("data")
        assert lesson.provenance["author"] == "ann"
        assert "is of data" in eve.call("mark_helpful", memory_id=lesson.id)[1]


def test_the_log_says_who_came_first_and_what_was_refused(tmp_path, capsys):
    file, log, said = tmp_path / "tokens", tmp_path / "server.log", []
    ann = token_of(file, "ann", capsys)

    with http_server(tmp_path / "b.sqlite", "--tokens", file, f"server.log={log}", errors=said) as url:
        for _ in range(2):
            with as_tenant(url, ann) as client:
                client.refused("get_detail", memory_id="none")
        assert httpx2.post(f"{url}/mcp", json={}, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert httpx2.get(f"{url}/nothing").status_code == 404
    lines = log.read_text().splitlines()
    assert sum("the first request of ann at 127.0.0.1" in line for line in lines) == 1
    assert sum("refused with 401: POST /mcp of 127.0.0.1" in line for line in lines) == 1
    assert sum("refused with 404: GET /nothing of 127.0.0.1" in line for line in lines) == 1
    assert sum("get_detail, asked by ann: there is no memory none" in line for line in lines) == 2
    assert ann not in log.read_text() and "refused with 401: POST /mcp of 127.0.0.1\n" in said[0]
    with pytest.raises(AssertionError, match="server.log"):
        http_server(tmp_path / "b.sqlite", "server.log=/nowhere/at/all").__enter__()


def test_a_fault_of_the_database_is_logged_once_however_often_health_is_asked(tmp_path, monkeypatch, caplog):
    def broken(self):
        raise StopRun("the bank cannot be reached")

    async def go(app):
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
            with monkeypatch.context() as patched:
                patched.setattr(History, "seq", broken)
                assert [(await client.get("/health")).status_code for _ in range(3)] == [503] * 3
            assert (await client.get("/health")).text == "ok"

    with here(tmp_path / "b.sqlite") as (server, service):
        asyncio.run(go(build_app(server, "http", "127.0.0.1", [], service.settings)))
    logged = [record.message for record in caplog.records if "/health" in record.message]
    assert logged == ["/health: the bank cannot be reached", "/health: the bank can be read again"]
