"""A model that cannot be called: lessons are retrieved all the same, and what can be learned without it is learned."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import forkserver
import pytest
from conftest import REPO
from mcp_kit import ENV, LEAST, TRAJECTORY, calling, client, here, served
from provider import Provider
from test_run_command import TASK, around

from core.memory.by_hand import mark_record
from mcp_server.server import PROFILES

KEY = "sk-no-key-0123456789abcdef"


REFUSAL = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}


@pytest.fixture
def provider():
    """A server that refuses every key, and lists no models; its `slow` keeps an answer back while it is clear."""
    slow = threading.Event()
    slow.set()

    def answer(request, number):
        slow.wait(60)
        return 401, REFUSAL

    opened = Provider(answer)
    opened.slow = slow
    yield opened
    slow.set()
    opened.close()


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
    def offered(*words):
        with served(tmp_path / "b.sqlite", *words, tools=profile) as (client, _):
            said = f"{client.client.instructions} {client.refused('no_such_tool')}"
            return [tool.name for tool in client.tools()], said

    asking = {"extract_memory", "task_status", "contrast_attempts"}
    names, said = offered()
    assert names == [name for name in PROFILES[profile] if name not in asking]
    assert not [name for name in asking if name in said]
    names, said = offered("llm=gemini")  # one that cannot be called yet
    assert names == list(PROFILES[profile])
    assert profile == "ace" or "extract_memory with the trajectory" in said


def test_a_tool_that_asks_a_model_says_which_setting_gives_it_one_and_what_needs_none(tmp_path):
    with served(tmp_path / "b.sqlite") as (client, _):
        said = {
            client.refused(tool, **LEAST[tool], async_mode=async_mode)
            for tool in ("extract_memory", "contrast_attempts")
            for async_mode in (True, False)
        }
    [said] = said
    assert "start the server with one, e.g. llm=gemini" in said and "save_lesson" in said


NOWHERE = "llm.api_base=http://127.0.0.1:9"
BROKEN = {
    "no key": (["llm=gemini"], "GEMINI_API_KEY"),
    "no server that lists its models": (["llm=ollama", NOWHERE], "nothing answers"),
    "unknown provider": (["llm=remote", "llm.model=foo/bar"], "foo/bar"),
    "unknown option": (["llm=no_such_model"], "no_such_model"),
    "wrong key": (["llm=openai", "llm.api_base={}"], "key"),
    "no reply in time": (["llm=openai", "llm.api_base={}", "--learn-timeout", "1"], "not done within"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_run_retrieves_judges_by_the_heuristic_and_keeps_the_closing_words(broken, bank, provider):
    words, says = BROKEN[broken]
    words = [word.format(provider.url) for word in words]
    if broken == "no reply in time":
        provider.slow.clear()
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

    with calling(client(bank, "llm=gemini")) as server:
        assert server.ask("retrieve_memory", query=TASK)["formatted_prompt"]
        server.ask("save_lesson", query="x", title="A title", content="A lesson of some length.", success=True)
        attempt = {"query": TASK, "trajectory": TRAJECTORY}
        queued = server.ask("extract_memory", **attempt, async_mode=True)
        assert queued["status"] == "processing" and "GEMINI_API_KEY" in queued["waits_for_model"]
        assert "GEMINI_API_KEY" in server.refused("extract_memory", **attempt, async_mode=False)
        status = server.ask("bank_status")
        assert "model" not in status and "GEMINI_API_KEY" in status["model_is_missing"]
        assert status["pending_jobs"] == 1 and status["failed_jobs"] == 0


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
