"""The versions of the protocol, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from mcp_kit import HELLO, READY, call, command, http_server, talk

from mcp_server.server import CORE

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


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
    assert len(tools["tools"]) == len(CORE) - 2  # without a model


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

        assert asyncio.run(newest()) == len(CORE) - 2  # without a model
