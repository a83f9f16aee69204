"""A model that cannot be called: lessons are retrieved all the same, and what can be learned without it is learned."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import forkserver
import pytest
from conftest import REPO
from mcp.client.client import Client
from mcp_kit import ENV, TRAJECTORY, ask, client, here, refused, run
from test_run_command import TASK, around

from core.memory.by_hand import mark_record
from mcp_server.server import PROFILES

KEY = "sk-no-key-0123456789abcdef"


@pytest.fixture
def provider():
    """A server that refuses every key, and one that never answers."""
    stop = threading.Event()

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            if self.path.startswith("/slow"):
                stop.wait(60)
            body = (
                b'{"error": {"message": "Incorrect API key provided: '
                + KEY.encode()
                + b'", "code": "invalid_api_key"}}'
            )
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):  # it lists no models
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    stop.set()
    server.shutdown()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The folder of a bank with one lesson, learned without a model."""
    folder = tmp_path_factory.mktemp("learned")
    around(folder / "b.sqlite", "--closing-words", "--task", TASK, command=["echo", "Sort the rows by date first."])
    return folder


@pytest.fixture
def bank(learned, tmp_path):
    return shutil.copytree(learned, tmp_path / "bank") / "b.sqlite"


@pytest.mark.parametrize("profile", PROFILES)
def test_without_a_model_no_tool_is_offered_that_asks_one(profile, tmp_path):
    async def go(server):
        async with Client(server) as open_client:
            names = [tool.name for tool in (await open_client.list_tools()).tools]
            unknown = await refused(open_client, "no_such_tool")
            return names, open_client.instructions, unknown

    asking = {"extract_memory", "task_status", "contrast_attempts"}
    with here(tmp_path / "none.sqlite", tools=profile) as (server, _):
        names, instructions, unknown = run(go(server))
    assert names == [name for name in PROFILES[profile] if name not in asking]
    assert not [name for name in asking if name in f"{instructions} {unknown}"]
    with here(tmp_path / "late.sqlite", "llm=gemini", tools=profile) as (server, _):  # one that cannot be called yet
        names, instructions, unknown = run(go(server))
    assert names == list(PROFILES[profile])
    assert profile == "ace" or ("extract_memory with the trajectory" in instructions and "extract_memory" in unknown)


@pytest.mark.parametrize("async_mode", [True, False])
def test_a_tool_that_asks_a_model_says_which_setting_gives_it_one(async_mode, tmp_path):
    async def go(server):
        async with Client(server) as open_client:
            one = await refused(open_client, "extract_memory", query=TASK, trajectory=TRAJECTORY, async_mode=async_mode)
            attempts = [{"trajectory": TRAJECTORY}] * 2
            return one, await refused(
                open_client, "contrast_attempts", query=TASK, attempts=attempts, async_mode=async_mode
            )

    with here(tmp_path / "b.sqlite") as (server, _):
        said = set(run(go(server)))
    assert len(said) == 1 and "start the server with one, e.g. llm=gemini" in said.pop()


NOWHERE = "llm.api_base=http://127.0.0.1:9"
BROKEN = {
    "no key": (["llm=gemini"], "GEMINI_API_KEY"),
    "no server": (["llm=vllm", NOWHERE, "llm.model=hosted_vllm/x"], ""),
    "no server that lists its models": (["llm=ollama", NOWHERE], "nothing answers"),
    "unknown provider": (["llm=remote", "llm.model=foo/bar"], "foo/bar"),
    "unknown option": (["llm=no_such_model"], "no_such_model"),
    "wrong key": (["llm=openai", "llm.api_base={}"], "key"),
    "no reply in time": (["llm=openai", "llm.api_base={}/slow", "--learn-timeout", "1"], "not done within"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_run_retrieves_judges_by_the_heuristic_and_keeps_the_closing_words(broken, bank, provider):
    words, says = BROKEN[broken]
    words = [word.format(provider) for word in words]
    env = {"GEMINI_API_KEY": "", "OPENAI_API_KEY": KEY}
    command = ["sh", "-c", "echo $REASONINGBANK_MEMORY; echo; echo Write the header first."]
    words += [] if "--learn-timeout" in words else ["--learn-timeout", "20"]
    done, found = around(bank, "--closing-words", "--task", f"{TASK} again", *words, command=command, env=env)
    assert found["memories_retrieved"] == 1 and "Sort the rows by date first." in done.stdout
    assert (found["verdict"]["label"], found["verdict"]["source"]) == ("success", "heuristic")
    assert found["memories_learned"] == 1
    [warning] = found["warnings"]
    assert says in warning["why"] and done.stderr.count("memory: warning") == 1
    assert KEY not in done.stderr and KEY.encode() not in bank.with_name("b.sqlite.runs.sqlite").read_bytes()
    with here(bank) as (_, service):
        [record] = [r for r in service.bank.records() if r.id == found["learned"][0]]
        assert (record.label_source, record.provenance["by"]) == ("heuristic", "closing words")
        assert record.items[0].content == "Write the header first."


def test_without_closing_words_nothing_is_stored_and_the_warning_names_them(bank):
    words = ("--judge", "heuristic", "--task", TASK, "llm=gemini")
    _, found = around(bank, *words, command=["echo", "Done."], env={"GEMINI_API_KEY": ""})
    assert found["verdict"]["source"] == "heuristic" and found["memories_learned"] == 0
    assert "--closing-words" in found["warnings"][0]["why"]


def test_the_server_starts_with_a_warning_retrieves_saves_and_queues(bank):
    line = [sys.executable, "-m", "mcp_server", "--bank", str(bank), "llm=gemini"]
    env = {**ENV, "GEMINI_API_KEY": ""}
    started = forkserver.run(
        line, cwd=REPO, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert started.returncode == 0 and started.stderr.count("GEMINI_API_KEY=...") == 1

    async def go():
        async with client(bank, "llm=gemini") as server:
            assert (await ask(server, "retrieve_memory", query=TASK))["formatted_prompt"]
            await ask(
                server, "save_lesson", query="x", title="A title", content="A lesson of some length.", success=True
            )
            queued = await ask(server, "extract_memory", query=TASK, trajectory=TRAJECTORY, async_mode=True)
            assert queued["status"] == "processing" and "GEMINI_API_KEY" in queued["waits_for_model"]
            assert "GEMINI_API_KEY" in await refused(
                server, "extract_memory", query=TASK, trajectory=TRAJECTORY, async_mode=False
            )
            status = await ask(server, "bank_status")
            assert "model" not in status and "GEMINI_API_KEY" in status["model_is_missing"]
            assert status["pending_jobs"] == 1 and status["failed_jobs"] == 0

    run(go())


def test_a_model_that_comes_later_works_off_the_queue(tmp_path, monkeypatch):
    """The same server, without a restart: what a round or an extraction asks is made when it is asked."""
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with here(tmp_path / "b.sqlite", "llm=gemini", "preset=reasoningbank_mcp") as (_, service):
        assert service.model()[0] is None and "GEMINI_API_KEY" in service.model()[1]
        monkeypatch.setenv("GEMINI_API_KEY", KEY)
        assert service.model() == ("gemini/gemini-2.5-flash", "")


def test_a_harmful_mark_is_no_use(bank):
    with here(bank) as (_, service):
        [record] = service.bank.records()
        assert mark_record(service.bank, record.id, False, used=True).last_used == record.last_used
        assert mark_record(service.bank, record.id, True, used=True).last_used is not None
