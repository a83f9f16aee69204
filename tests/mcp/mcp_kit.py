"""What the tests of the MCP server share: real server processes, the SDK's client, a model that says what it must."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import forkserver
import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from conftest import KITS, REPO, wait_for
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from core.errors import InfraError
from mcp_server.config import load_config
from mcp_server.run import run_around
from mcp_server.server import build_server
from mcp_server.service import Service

asyncio.unix_events.subprocess = forkserver  # by which the SDK's client starts a server
ENV = {"PYTHONPATH": f"{REPO}{os.pathsep}{KITS}", "REASONINGBANK_SETTINGS": "none"}
MODEL = ("llm=scripted", "llm.script.path=mcp_kit.answer")
TOKEN = "a-token-for-tests-0123456789"
TRAJECTORY = [
    {"step": 1, "role": "user", "content": "Make the parser accept empty files."},
    {"step": 2, "role": "assistant", "content": "I add a check for an empty file before the loop."},
    {"step": 3, "role": "tool", "content": "12 tests passed."},
]
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LEAST = {  # of each tool the arguments that it needs
    "retrieve_memory": {"query": "q"},
    "bank_status": {},
    "list_index": {},
    "search_insights": {"query": "q"},
    "export_memory": {},
    "save_lesson": {"query": "q", "title": "t", "content": "c"},
    "get_detail": {"memory_id": "x"},
    "mark_helpful": {"memory_id": "x"},
    "mark_harmful": {"memory_id": "x"},
    "update_lesson": {"memory_id": "x"},
    "delete_lesson": {"memory_id": "x"},
    "task_status": {"task_id": "x"},
    "add_insight": {"title": "t", "content": "c", "tags": ["a"]},
    "extract_memory": {"query": "q", "trajectory": TRAJECTORY},
    "contrast_attempts": {"query": "q", "attempts": [{"trajectory": TRAJECTORY}] * 2},
}


def answer(messages, role, sample):
    """A judge that is content and a distiller with one lesson; told of trouble, nothing that can be read."""
    text = messages[-1]["content"]
    if role == "judge":
        return 'Thoughts: the tests passed.\nStatus: "success"'
    if "UNREADABLE" in text:
        return "I have nothing to say."
    return (
        "```\n# Memory Item 1\n## Title Check for empty input first\n## Description Empty files break loops.\n"
        "## Content Handle an empty file before the loop over its lines.\n```"
    )


def no_merges(messages, role, sample):
    """The same model, but it breaks where several lessons are to become one."""
    if messages[-1]["content"].startswith("You look after the lessons"):
        raise InfraError("the model broke", "server")
    return answer(messages, role, sample)


def all_say_the_same(messages, role, sample):
    """The same model, which finds that one of two lessons asks for all that the other does."""
    if "how the two below relate" in messages[-1]["content"]:
        return "Thoughts: they say the same.\nRelation: entails"
    return answer(messages, role, sample)


def command(bank, *options):
    return [sys.executable, "-m", "mcp_server", "--bank", str(bank), *map(str, options)]


def client(bank, *options):
    """The SDK's client with a server process of its own, over stdio."""
    line = command(bank, *options)
    return Client(StdioServerParameters(command=line[0], args=line[1:], cwd=REPO, env=ENV))


def hashed(bank, *options):
    return client(bank, "--embedder", "hashing-256", *options)


class Caller:
    """An open client of the SDK whose calls need no await; several threads may call at once."""

    def __init__(self, portal, client):
        self._portal, self.client = portal, client

    def do(self, method, *given):
        """What a method of the client returns."""
        return self._portal.start_task_soon(getattr(self.client, method), *given).result(120)

    def call(self, tool, **arguments):
        return self.do("call_tool", tool, arguments)

    def ask(self, tool, **arguments):
        """A tool's data; fails on an error."""
        result = self.call(tool, **arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    def refused(self, tool, **arguments):
        """The one sentence of a tool's error."""
        result = self.call(tool, **arguments)
        assert result.is_error
        return result.content[0].text

    def until_done(self, task_id, **arguments):
        """What task_status says once a job is over."""
        found = {}

        def is_over():
            found.update(self.ask("task_status", task_id=task_id, **arguments))
            return found["status"] != "processing"

        wait_for(is_over)
        return found

    def tools(self):
        return self.do("list_tools").tools

    def prompt(self, name, **arguments):
        return self.do("get_prompt", name, arguments).messages[0].content.text


@contextmanager
def calling(opened):
    """A Caller of a client, which is open meanwhile."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened) as client:
        yield Caller(portal, client)


@contextmanager
def served(path, *overrides, **options):
    """A server in this process: (a Caller of it, its service)."""
    with here(path, *overrides, **options) as (server, service), calling(Client(server)) as client:
        yield client, service


def lessons_in(found):
    """The lessons in what retrieve_memory answers, as the model reads them: {id, notes, title, body} of each."""
    block = found["formatted_prompt"].partition("<memory_items>\n")[2].removesuffix("\n</memory_items>")
    parts = re.split(r"(?:\A|\n\n)\[\d+\] id=(\S+) (?:\(([^)]*)\) )?", block)[1:]
    lessons = []
    for id, notes, text in zip(parts[::3], parts[1::3], parts[2::3]):
        title, _, body = text.partition("\n")
        lessons.append({"id": id, "notes": notes or "", "title": title, "body": body})
    return lessons


@contextmanager
def here(path, *overrides, tools="all", **options):
    """A server in this process: (the server to give to Client, its service)."""
    service = Service(Path(path), load_config(list(overrides)), embedder="hashing-256", **options)
    try:
        yield build_server(service, tools)[0], service
    finally:
        service.close()


@pytest.fixture
def run_here(tmp_path, capfd, monkeypatch):
    """`reasoningbank run` around a command, in this process: (its stdout, its stderr, its result object)."""
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")

    def run(bank, *words, command, status=0):
        capfd.readouterr()
        line = ["--bank", str(bank), "--embedder", "hashing-256", "--result", str(tmp_path / "result.json")]
        try:
            assert run_around([*line, *map(str, words), "--", *command]) == status
        finally:  # which ends with its process
            for name in ("core", "mcp_server"):
                logging.getLogger(name).handlers.clear()
        return *capfd.readouterr(), json.loads((tmp_path / "result.json").read_text())

    return run


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def http_server(bank, *options, transport="http", token="", errors=None, processes=None):
    """A server over HTTP on a free port: its address without a path. Its process is added to `processes`."""
    port = free_port()
    process = forkserver.Popen(
        command(bank, "--embedder", "hashing-256", "--transport", transport, "--port", port, *options),
        cwd=REPO,
        env={**os.environ, **ENV, "REASONINGBANK_MCP_TOKEN": token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if processes is not None:
        processes.append(process)
    try:
        for _ in range(1500):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, process.stderr.read().decode()
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        out, err = process.communicate(timeout=20)
        assert out == b""
        if errors is not None:
            errors.append(err.decode())


needs_haproxy = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="HAProxy is not installed (apt install haproxy)"
)


@contextmanager
def behind_haproxy(one, two, **limits):
    """HAProxy with the configuration that is given, in front of two servers: its address."""
    front = free_port()
    names = {"MCP_BIND": f"127.0.0.1:{front}", "MCP_ONE": one[7:], "MCP_TWO": two[7:]} | limits
    line = ["haproxy", "-db", "-f", str(REPO / "mcp_server/deploy/haproxy.cfg")]
    proxy = forkserver.Popen(line, env=os.environ | names, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with suppress(httpx2.HTTPError):
                if httpx2.get(f"http://127.0.0.1:{front}/health").status_code == 200:
                    break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{front}"
    finally:
        proxy.terminate()
        proxy.wait()


def raw(bank, *requests, options=(), timeout=120):
    """Every line of stdout of a server that is sent these requests, one after the other's answer, and its stderr."""
    return talk(command(bank, *options), *requests, timeout=timeout)


def talk(line, *requests, timeout=120, **env):
    """As `raw`, of a server with a command line and environment variables of its own."""
    process = forkserver.Popen(
        line,
        cwd=REPO,
        env={**os.environ, **ENV, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    lines = []
    for request in requests:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        if "id" in request:
            lines.append(process.stdout.readline())
    rest, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return [*lines, *rest.splitlines()], errors.decode()


def call(id, tool, **arguments):
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
