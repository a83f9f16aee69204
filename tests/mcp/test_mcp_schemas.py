"""Schemas of answers and titles, as clients read them; and the versions of the protocol."""

from __future__ import annotations

import asyncio
import json

import httpx2
import jsonschema
import pytest
from mcp.client.client import Client
from mcp_kit import HELLO, MODEL, READY, TRAJECTORY, ask, call, command, here, http_server, run, talk

from mcp_server.server import ACE, CORE, MORE

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


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


@pytest.mark.parametrize("asked", [*VERSIONS, "1999-01-01"])
def test_old_and_new_clients_agree_on_a_version_over_stdio(tmp_path, asked):
    hello = HELLO | {"params": HELLO["params"] | {"protocolVersion": asked}}
    line = command(tmp_path / "b.sqlite", "--embedder", "hashing-256")
    listing = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
    answers, _ = talk(line, hello, READY, call(2, "bank_status"), listing)
    begun, status, tools = (json.loads(answer)["result"] for answer in answers)
    assert begun["protocolVersion"] == (asked if asked in VERSIONS else VERSIONS[-1])
    assert {"tools", "prompts"} <= set(begun["capabilities"])
    assert json.loads(status["content"][0]["text"])["agent_id"] == "default"
    assert len(tools["tools"]) == len(CORE) - 1  # without a model


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
            assert "mcp-session-id" not in answer.headers
            session = {"mcp-protocol-version": version}
            assert post(READY, **session)[0].status_code == 202
            assert not post(call(2, "bank_status"), **session)[1]["result"].get("isError")
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        assert post(listing)[0].status_code == 200  # there are no sessions to begin
        assert post(listing, **{"mcp-protocol-version": "1999-01-01"})[0].status_code == 400

        async def newest():  # the version of 2026 has no initialize
            from mcp_server.cli import running_server

            async with running_server(f"{url}/mcp", "") as client:
                return len((await client.list_tools()).tools)

        assert asyncio.run(newest()) == len(CORE) - 1  # without a model
