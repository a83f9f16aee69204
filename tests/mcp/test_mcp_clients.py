"""Clients as they are: lines that are no messages, arguments of their own, blanks in headers, no session."""

from __future__ import annotations

import json
import socket
import subprocess
from urllib.parse import urlsplit

import forkserver
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_kit import (
    ENV,
    HELLO,
    LEAST,
    MODEL,
    READY,
    REPO,
    TOKEN,
    call,
    calling,
    command,
    http_server,
    lessons_in,
    served,
    talk,
)

from mcp_server.cli import running_server
from mcp_server.server import CORE, PROFILES

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PING = b'{"jsonrpc":"2.0","id":99,"method":"ping"}'
ODD_LINES = [  # (the line, the id in the answer, its code)
    (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bank_status","arguments":{"a":"\\ud83d"}}}',
        1,
        -32700,
    ),
    (b'{"jsonrpc":"2.0","id":"two","method":"ping \\udc00"}', "two", -32700),
    (b'{"jsonrpc":"2.0","id":3,"method":"ping","\\udfff":1}', 3, -32700),
    (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', None, -32700),
    (b'{"jsonrpc":"2.0","method":"notifications/x \\ud800"}', None, -32700),
    (b"{", None, -32700),
    (b'{"jsonrpc":"2.0","id":4,"method":"ping"', None, -32700),
    (b"Content-Length: 20", None, -32700),
    (b"\xff\xfe\x80", None, -32700),
    (b"\x00", None, -32700),
    (b"[" * 100_000, None, -32700),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, None, -32700),
    (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}', None, -32700),
    (b'{"jsonrpc":"1.0","id":5,"method":"ping"}', 5, -32600),
    (b'{"id":6,"method":"ping"}', 6, -32600),
    (b'{"jsonrpc":"2.0","id":7}', 7, -32600),
    (b'{"jsonrpc":"2.0","id":8,"method":5}', 8, -32600),
    (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}', 9, -32600),
    (b'[{"jsonrpc":"2.0","id":10,"method":"ping"}]', None, -32600),
    (b"[]", None, -32600),
    (b"null", None, -32600),
    (b'"ping"', None, -32600),
    (b"17", None, -32600),
    (b'{"jsonrpc":"2.0","id":11,"method":"nope"}', 11, -32601),
]


def test_each_line_over_stdio_is_answered_and_the_server_goes_on(tmp_path):
    line = command(tmp_path / "b.sqlite", "--embedder", "hashing-256")
    process = forkserver.Popen(
        line, cwd=REPO, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    def answer(sent):
        process.stdin.write(sent + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    answer(b"\xef\xbb\xbf" + json.dumps(HELLO).encode())  # with a byte order mark, as PowerShell sends it
    process.stdin.write(json.dumps(READY).encode() + b"\n\n   \n")  # empty lines get no answer
    for sent, id, code in ODD_LINES:
        got = answer(sent)
        assert (got["id"], got["error"]["code"]) == (id, code), sent[:80]
        assert answer(PING) == {"jsonrpc": "2.0", "id": 99, "result": {}}
    assert answer(PING + b"\r")["id"] == 99
    long = json.dumps(call(12, "retrieve_memory", query="x" * 5_000_000)).encode()
    assert "give at most" in answer(long)["result"]["content"][0]["text"]
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out, errors.count(b"\n")) == (0, b"", 2)
    assert b"server running" in errors and b"new bank made at" in errors


ADDED = (  # what clients add: n8n, Cursor, LangChain and others
    {"toolCallId": "call_1"},
    {"sessionId": "s", "action": "sendMessage", "chatInput": "hi"},
    {"_meta": {"progressToken": 1}},
    {"random_string": "dummy"},
    {"requestId": 1, "traceId": 2.5, "threadId": []},
    {"task_progress": "- [ ] one"},
    {"explanation": "why"},
    {"reasoning": "so", "thought": "x"},
    {"parentId": "p"},
)
NEAR = ("agentId", "agentid", "agent-id", "AGENT_ID", "agnet_id", "agent_ids", "_agent_id", "agent")
NEAR_OF = {  # and of one tool
    "retrieve_memory": ("topK", "top-k", "topk", "tpo_k"),
    "list_index": ("Limit", "limits", "minhelpful", "sort_by"),
    "search_insights": ("Limit", "limits"),
    "export_memory": ("formt", "Format"),
    "save_lesson": ("sucess", "tag", "descripton"),
    "get_detail": ("memoryId", "memory-id"),
    "update_lesson": ("Title", "contents"),
    "delete_lesson": ("Permanent",),
    "task_status": ("taskId",),
    "add_insight": ("source_url", "overwrit"),
    "extract_memory": ("asyncMode", "success_signals"),
    "contrast_attempts": ("patern", "asyncMode"),
}


def test_arguments_that_clients_add_are_ignored_and_a_near_miss_is_refused(tmp_path, caplog, subtests):
    assert set(LEAST) == set(PROFILES["all"])
    with served(tmp_path / "b.sqlite", *MODEL) as (client, _):
        for tool, given in LEAST.items():
            with subtests.test(tool):
                plain = client.call(tool, **given)
                for added in ADDED:
                    result = client.call(tool, **given | added)
                    assert result.is_error == plain.is_error and "takes no argument" not in result.content[0].text
                for name in (*NEAR, *NEAR_OF.get(tool, ())):
                    assert "takes no argument" in client.refused(tool, **given | {name: "x"}), name
    said = [each.getMessage() for each in caplog.records if "it is ignored" in each.getMessage()]
    assert len(said) == len({key for added in ADDED for key in added})  # each is said once


def test_a_wrong_prompt_is_the_clients_error_in_one_sentence(tmp_path, caplog):
    wrong = (
        ("nope", None, "there is no prompt nope: start_task"),
        ("", {}, "there is no prompt"),
        ("start_task ", {"task": "x"}, "there is no prompt"),
        ("x" * 5000, {}, "there is no prompt"),
        ("start_task", None, "needs the argument task"),
        ("start_task", {"Task": "x"}, "needs the argument task"),
        ("finish_task", {"other": "x"}, "needs the argument task"),
    )
    with served(tmp_path / "b.sqlite") as (client, _):
        for name, arguments, sentence in wrong:
            with pytest.raises(MCPError, match=sentence) as error:
                client.do("get_prompt", name, arguments)
            assert error.value.error.code == -32602 and len(error.value.error.message) < 300
        assert client.prompt("start_task", task="hello")
    assert not caplog.records


def sent(url, headers, path="/mcp", method="POST", message=HELLO):
    """(status, headers, body) of a request written as it stands: clients of Python drop blanks around values."""
    host = urlsplit(url)
    body = json.dumps(message).encode() if message is not None else b""
    lines = [f"{method} {path} HTTP/1.1", f"Host:{headers.get('Host', host.netloc)}", f"Content-Length: {len(body)}"]
    lines += [f"{name}:{value}" for name, value in headers.items() if name != "Host"] + ["Connection: close", "", ""]
    with socket.create_connection((host.hostname, host.port), timeout=20) as line:
        line.sendall("\r\n".join(lines).encode() + body)
        data = b""
        while part := line.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (each.split(": ", 1) for each in rest)}, body


def test_blanks_around_values_of_headers_and_refusals_that_oauth_clients_read(tmp_path):
    with http_server(tmp_path / "b.sqlite", token=TOKEN) as url:
        host = urlsplit(url).netloc
        plain = ACCEPT | {"Authorization": f"Bearer {TOKEN}", "Host": host, "Origin": f"http://{host}"}
        for blanks in (" {}", "  {}", "{} ", " {}  ", "\t{}\t", " \t {} \t "):
            status, _, _ = sent(url, {name: blanks.format(value) for name, value in plain.items()})
            assert status == 200, blanks
        for value in (f"bearer {TOKEN}", f"BEARER {TOKEN} "):
            assert sent(url, plain | {"Authorization": f" {value}"})[0] == 200, value
        later = plain | {"MCP-Protocol-Version": "  2025-06-18\t"}  # without a session: the server keeps none
        assert sent(url, later, message=READY)[0] == 202
        assert sent(url, later, message=call(2, "bank_status"))[0] == 200
        for value in ("", " Bearer", " Bearer wrong", f" {TOKEN}"):
            status, got, body = sent(url, plain | {"Authorization": value})
            assert (status, got["content-type"]) == (401, "application/json"), value
            assert json.loads(body)["error"] == "invalid_token"
            assert got["www-authenticate"].startswith('Bearer error="invalid_token"')
        for name in ("oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server", "x"):
            status, got, body = sent(url, {"Host": host}, f"/.well-known/{name}", "GET", None)
            assert status == 404 and got["content-type"] == "application/json" and json.loads(body)["error"]


@pytest.mark.parametrize("null", ["null", "None", " NULL ", "undefined"])
def test_optional_arguments_that_are_filled_with_null_are_left_out(tmp_path, null):
    filled = dict.fromkeys(("description", "success", "agent_id", "domain"), null) | {"tags": [null]}
    with served(tmp_path / "bank.sqlite") as (client, service):
        saved = client.ask("save_lesson", query="deploy", title=null, content="text", **filled)
        found = client.ask("retrieve_memory", query="deploy", top_k=null, agent_id=null, domain=null)
        record = service.bank_for("").get(saved["memory_id"])
    [lesson] = lessons_in(found)
    assert (lesson["title"], record.namespace, record.outcome) == (null.strip(), "default", "success")
    assert (record.domain, record.tags, record.items[0].description) == ("", (), "")


# The versions of the protocol

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


@pytest.mark.parametrize("asked", [VERSIONS[0], "1999-01-01"])
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
        answer = httpx2.post(f"{url}/mcp", json=message, headers=ACCEPT | headers)
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

        with calling(running_server(f"{url}/mcp", "")) as client:  # the version of 2026 has no initialize
            assert len(client.tools()) == len(CORE) - 2  # without a model
