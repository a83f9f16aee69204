"""Resources, schemas of answers and titles, as clients read them; and the versions of the protocol."""

from __future__ import annotations

import asyncio
import json

import httpx2
import jsonschema
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_kit import HELLO, MODEL, READY, TRAJECTORY, ask, call, command, here, http_server, refused, run, talk
from mcp_types import ResourceTemplateReference

from mcp_server.resources import LESSON, PAGE
from mcp_server.server import ACE, CORE, MORE
from mcp_server.tokens import run_token

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def save(client, n, **more):
    return (await ask(client, "save_lesson", query=f"task {n}", title=f"Title {n}", content="Do it.", **more))[
        "memory_id"
    ]


async def lessons(client, cursor=None):
    found = await client.list_resources(cursor=cursor)
    return [r.uri.removeprefix("lesson://") for r in found.resources if r.uri.startswith("lesson:")], found.next_cursor


async def not_read(client, uri):
    with pytest.raises(MCPError) as error:
        await client.read_resource(uri)
    return error.value.error


CALLS = {
    "retrieve_memory": {"query": "sort a list"},
    "save_lesson": {"query": "sort a list", "title": "Use sorted", "content": "It is stable."},
    "extract_memory": {"query": "the parser", "trajectory": TRAJECTORY, "async_mode": False},
    "contrast_attempts": {
        "query": "the parser",
        "attempts": [{"trajectory": TRAJECTORY}, {"trajectory": TRAJECTORY[:2]}],
        "async_mode": False,
    },
    "task_status": {"task_id": "TASK"},
    "bank_status": {},
    "add_insight": {"title": "Pin versions", "content": "Else they move.", "tags": ["ci"]},
    "list_index": {},
    "search_insights": {"query": "versions"},
    "export_memory": {},
    "get_detail": {"memory_id": "ID"},
    "mark_helpful": {"memory_id": "ID"},
    "mark_harmful": {"memory_id": "ID"},
    "delete_insight": {"memory_id": "ID"},
}


@pytest.mark.parametrize("profile", ["all", "ace"])
def test_every_answer_fits_the_schema_that_the_tool_shows(tmp_path, profile):
    def arguments(tool, ids):
        given = {
            name: ids.get(value, value) if isinstance(value, str) else value for name, value in CALLS[tool].items()
        }
        return given if profile == "all" else {{"memory_id": "id"}.get(name, name): v for name, v in given.items()}

    async def go(server):
        checked = []
        async with Client(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            ids = {}
            for name in [name for name in CALLS if name in tools]:
                if name == "task_status":
                    queued = await ask(
                        client, "extract_memory", **arguments("extract_memory", ids) | {"async_mode": True}
                    )
                    ids["TASK"] = queued["task_id"]
                answer = await client.call_tool(name, arguments(name, ids))
                assert not answer.is_error, answer.content[0].text
                data, schema = answer.structured_content, tools[name].output_schema
                jsonschema.Draft202012Validator.check_schema(schema)
                jsonschema.validate(data, schema)
                assert schema["type"] == "object" and set(data) <= set(schema["properties"]), name
                ids["ID"] = data.get("memory_id") or data.get("id") or ids.get("ID")
                checked.append(name)
            error = await client.call_tool("get_detail", arguments("get_detail", {"ID": "none"}))
            assert error.is_error and error.structured_content is None
            assert all(tool.title and tool.title != tool.name for tool in tools.values())
        return checked

    with here(tmp_path / "b.sqlite", *MODEL, tools=profile) as (server, _):
        assert sorted(run(go(server))) == sorted(ACE if profile == "ace" else [*CORE, *MORE])


def test_lessons_and_status_are_resources(tmp_path):
    async def go(server):
        async with Client(server) as client:
            id = await save(client, 1)
            foreign = await save(client, 2, agent_id="bob")
            hidden = await ask(
                client, "save_lesson", query="q", title="Where the figures are", content="At annex.page.site."
            )
            assert hidden["state"] == "quarantined"
            assert await lessons(client) == ([id], None)
            [content] = (await client.read_resource(f"lesson://{id}")).contents
            detail = await client.call_tool("get_detail", {"memory_id": id})
            assert (content.text, content.mime_type) == (detail.content[0].text, "text/markdown")
            [content] = (await client.read_resource(f"lesson://{foreign}?agent_id=bob")).contents
            assert "Title 2" in content.text
            said = await refused(client, "get_detail", memory_id=foreign)
            for uri in (f"lesson://{foreign}", f"lesson://{id}?agent_id=bob"):
                assert (await not_read(client, uri)).message == said.replace(foreign, uri[9 : 9 + len(id)])
            for uri in ("lesson://none", "lesson://", "lesson://..%2F..%2Fetc", "bank://other", "file:///etc/passwd"):
                assert (await not_read(client, uri)).code == -32602
            [content] = (await client.read_resource("bank://status")).contents
            assert json.loads(content.text) == await ask(client, "bank_status")
            [content] = (await client.read_resource("bank://status?agent_id=bob")).contents
            assert json.loads(content.text)["records"] == {"active": 1}
            return [t.uri_template for t in (await client.list_resource_templates()).resource_templates]

    with here(tmp_path / "b.sqlite", "memory.hygiene.provenance=strict") as (server, _):
        assert run(go(server)) == [LESSON, "bank://status{?agent_id}"]


def test_reading_a_resource_writes_nothing(tmp_path):
    async def go(server, bank):
        async with Client(server) as client:
            await ask(client, "add_insight", title="Pin versions", content="Else they move.", tags=["ci"])
            before = bank.history.n_changes()
            [id], _ = await lessons(client)
            await client.read_resource(f"lesson://{id}")
            assert bank.history.n_changes() == before

    with here(tmp_path / "b.sqlite", tools="ace") as (server, service):
        run(go(server, service.bank))


def test_the_list_comes_in_parts_that_hold_while_lessons_come_and_go(tmp_path):
    async def go(server):
        async with Client(server) as client:
            ids = [await save(client, n) for n in range(PAGE + 5)][::-1]
            first, cursor = await lessons(client)
            assert first == ids[:PAGE]
            await save(client, "new")
            assert await lessons(client, cursor) == (ids[PAGE:], None)
            await ask(client, "delete_insight", memory_id=first[-1], hard=True)
            assert await lessons(client, cursor) == (ids[PAGE:], None)
            for wrong in ("x", "", "bm9uZQ==", "\udcff".encode("utf-16", "surrogatepass").hex()):
                with pytest.raises(MCPError) as error:
                    await lessons(client, wrong)
                assert error.value.error.code == -32602
            reference = ResourceTemplateReference(uri=LESSON)
            all_ids = (await client.complete(reference, {"name": "memory_id", "value": ""})).completion
            assert len(all_ids.values) == 100 and all_ids.has_more and all_ids.total == PAGE + 5
            one = (await client.complete(reference, {"name": "memory_id", "value": ids[7][:12]})).completion
            assert one.values == [ids[7]]
            assert (await client.complete(reference, {"name": "agent_id", "value": ""})).completion.values == []

    with here(tmp_path / "b.sqlite", "memory=reasoning_bank", "memory.hygiene=null") as (server, _):
        run(go(server))


def test_with_required_agent_ids_nothing_is_listed_and_an_agent_reads_its_own(tmp_path):
    async def go(server):
        async with Client(server) as client:
            id = await save(client, 1, agent_id="ann")
            assert (await client.list_resources()).resources == []
            assert "agent_id is required" in (await not_read(client, f"lesson://{id}")).message
            assert (await client.read_resource(f"lesson://{id}?agent_id=ann")).contents

    with here(tmp_path / "b.sqlite", require_agent=True) as (server, _):
        run(go(server))


def test_a_tenant_sees_no_resource_of_another(tmp_path, capsys):
    file = tmp_path / "tokens"
    tokens = {}
    for name in ("ann", "bob"):
        run_token(["--tokens", str(file), "--agent-id", name])
        tokens[name] = capsys.readouterr().out.strip()

    async def go(url):
        from mcp_server.cli import running_server

        async with (
            running_server(f"{url}/mcp", tokens["ann"]) as ann,
            running_server(f"{url}/mcp", tokens["bob"]) as bob,
        ):
            hers, his = await save(ann, 1), await save(bob, 2)
            assert (await lessons(ann), await lessons(bob)) == (([hers], None), ([his], None))
            assert (await ann.read_resource(f"lesson://{hers}")).contents
            none = await not_read(bob, "lesson://none")
            other = await not_read(bob, f"lesson://{hers}")
            assert other.message == none.message.replace("none", hers, 1)
            assert "token is bound" in (await not_read(bob, f"lesson://{hers}?agent_id=ann")).message
            assert "token is bound" in (await not_read(bob, "bank://status?agent_id=ann")).message
            assert json.loads((await bob.read_resource("bank://status")).contents[0].text)["agent_id"] == "bob"
            completed = await bob.complete(ResourceTemplateReference(uri=LESSON), {"name": "memory_id", "value": ""})
            assert completed.completion.values == [his]

    with http_server(tmp_path / "b.sqlite", "--tokens", str(file)) as url:
        run(go(url))


@pytest.mark.parametrize("asked", [*VERSIONS, "1999-01-01"])
def test_old_and_new_clients_agree_on_a_version_over_stdio(tmp_path, asked):
    hello = HELLO | {"params": HELLO["params"] | {"protocolVersion": asked}}
    line = command(tmp_path / "b.sqlite", "--embedder", "hashing-256")
    lists = [{"jsonrpc": "2.0", "id": n, "method": f"{what}/list"} for n, what in enumerate(("tools", "resources"), 3)]
    answers, _ = talk(line, hello, READY, call(2, "bank_status"), *lists)
    begun, status, tools, resources = (json.loads(answer)["result"] for answer in answers)
    assert begun["protocolVersion"] == (asked if asked in VERSIONS else VERSIONS[-1])
    assert {"tools", "resources", "prompts"} <= set(begun["capabilities"])
    assert json.loads(status["content"][0]["text"])["agent_id"] == "default"
    assert len(tools["tools"]) == len(CORE) - 1  # without a model
    assert resources["resources"][0]["uri"] == "bank://status"


def test_old_and_new_clients_agree_on_a_version_over_http(tmp_path):
    def post(message, **headers):
        answer = httpx2.post(f"{url}/mcp", json=message, headers=JSON | headers)
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        return answer, json.loads(lines[-1] if lines else answer.text or "null")

    with http_server(tmp_path / "b.sqlite") as url:
        for asked in (*VERSIONS, "1999-01-01"):
            answer, begun = post(HELLO | {"params": HELLO["params"] | {"protocolVersion": asked}})
            version = begun["result"]["protocolVersion"]
            assert version == (asked if asked in VERSIONS else VERSIONS[-1])
            session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": version}
            assert post(READY, **session)[0].status_code == 202
            assert not post(call(2, "bank_status"), **session)[1]["result"].get("isError")
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        assert post(listing)[0].status_code == 400  # an old client without initialize has no session
        assert post(listing, **{"mcp-protocol-version": "1999-01-01"})[0].status_code == 400

        async def newest():  # the version of 2026 has no initialize
            from mcp_server.cli import running_server

            async with running_server(f"{url}/mcp", "") as client:
                return len((await client.list_tools()).tools)

        assert asyncio.run(newest()) == len(CORE) - 1  # without a model
