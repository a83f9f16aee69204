"""Real server processes on one bank: what A saves B finds, races, kill -9, a clean stdout, a light start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys

import forkserver
import pytest
from conftest import REPO
from mcp_kit import (
    ENV,
    HELLO,
    MODEL,
    READY,
    TRAJECTORY,
    ask,
    call,
    client,
    hashed,
    lessons_in,
    raw,
    refused,
    run,
    talk,
    until_done,
)

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from mcp_server.__main__ import main

HEAVY = ("torch", "litellm", "faiss", "sentence_transformers", "sympy", "wandb", "datasets")


def test_a_lesson_saved_by_one_client_is_found_by_another(tmp_path):
    async def go():
        bank = tmp_path / "b.sqlite"
        async with hashed(bank) as a, hashed(bank) as b:
            assert (await ask(b, "retrieve_memory", query="fix the flaky login test"))["formatted_prompt"] == ""
            saved = await ask(a, "save_lesson", query="fix the flaky login test", title="Wait", content="Wait for it.")
            [found] = lessons_in(await ask(b, "retrieve_memory", query="fix the flaky login test"))
            assert found["id"] == saved["memory_id"][:8]
            await ask(b, "mark_helpful", memory_id=found["id"])
            assert (await ask(a, "get_detail", memory_id=saved["memory_id"]))["helpful"] == 1

    run(go())


def test_two_processes_that_write_at_once_lose_nothing(tmp_path):
    async def writer(open_client, name):
        for number in range(25):
            query = f"task {number} of {name}"
            await ask(open_client, "save_lesson", query=query, title=f"{name} {number}", content=f"Lesson {query}.")
            if number % 5 == 0:
                arguments = {"title": f"Shared title {'abcde'[number // 5] * 4}", "content": query, "tags": ["race"]}
                await open_client.call_tool("add_insight", arguments)  # refused where the other was first

    async def go():
        bank = tmp_path / "b.sqlite"
        options = ("--tools", "all", "memory.consolidate=null")
        async with hashed(bank, *options) as a, hashed(bank, *options) as b:
            await asyncio.gather(writer(a, "ann"), writer(b, "bob"))
            return await ask(a, "list_index", limit=200)

    titles = sorted(line["title"] for line in run(go())["insights"])
    shared = [f"Shared title {letter * 4}" for letter in "abcde"]
    assert titles == sorted([*(f"{name} {n}" for name in ("ann", "bob") for n in range(25)), *shared])


def test_an_extraction_that_kill_9_cut_off_is_done_by_the_next_server_once(tmp_path):
    bank = tmp_path / "b.sqlite"
    options = ("--embedder", "hashing-256", *MODEL)

    def state():
        try:
            with sqlite3.connect(bank) as db:
                return db.execute("SELECT state, tries FROM jobs").fetchone()
        except sqlite3.OperationalError:
            return None

    line = [sys.executable, "-m", "mcp_server", "--bank", str(bank), *options, "llm.delay_s=60"]
    env = os.environ | ENV
    server = forkserver.Popen(line, cwd=REPO, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    request = call(1, "extract_memory", query="Accept empty files", trajectory=TRAJECTORY)
    for message in (HELLO, READY, request):
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
    server.stdout.readline()
    told = json.loads(server.stdout.readline())["result"]["structuredContent"]
    assert told["status"] == "processing"
    while state() != ("running", 1):
        assert server.poll() is None
    server.send_signal(signal.SIGKILL)
    server.wait()

    async def go():
        async with client(bank, *options) as b:
            again = await ask(b, "extract_memory", query="Accept empty files", trajectory=TRAJECTORY)
            assert again["task_id"] == told["task_id"]  # the same attempt is the same task
            done = await until_done(b, told["task_id"])
            found = await ask(b, "retrieve_memory", query="Accept empty files", top_k=5)
            return done, found, await ask(b, "bank_status")

    done, found, status = run(go())
    assert (done["status"], done["success"], done["extracted_count"]) == ("completed", True, 1)
    assert [lesson["title"] for lesson in lessons_in(found)] == ["Check for empty input first"]
    assert status["pending_jobs"] == 0 and status["records"] == {"active": 1}
    with sqlite3.connect(bank) as db:
        assert db.execute("SELECT payload, tries FROM jobs").fetchall() == [("{}", 2)]


def test_a_client_that_leaves_does_not_wait_for_an_extraction(tmp_path):
    bank = tmp_path / "b.sqlite"
    request = call(1, "extract_memory", query="Accept empty files", trajectory=TRAJECTORY)
    options = ("--embedder", "hashing-256", *MODEL, "llm.delay_s=300")
    raw(bank, HELLO, READY, request, call(2, "bank_status"), options=options)
    with sqlite3.connect(bank) as db:
        assert db.execute("SELECT state FROM jobs").fetchone()[0] in ("pending", "running")


def test_extraction_at_once_in_the_background_and_failed(tmp_path):
    async def go():
        async with hashed(tmp_path / "b.sqlite", *MODEL) as c:
            now = await ask(
                c, "extract_memory", query="task one", trajectory=TRAJECTORY, async_mode=False, agent_id="x"
            )
            assert (now["status"], now["extracted_count"]) == ("success", 1)
            told = await ask(
                c, "extract_memory", query="task two", trajectory=TRAJECTORY, success_signal=False, agent_id="x"
            )
            assert (told["status"], told["async_mode"]) == ("processing", True)
            assert "there is no extraction" in await refused(c, "task_status", task_id=told["task_id"])
            done = await until_done(c, told["task_id"], agent_id="x")
            assert done["status"] == "completed" and done["success"] is False
            steps = [*TRAJECTORY, {"role": "assistant", "content": "UNREADABLE"}]
            bad = await ask(c, "extract_memory", query="task three", trajectory=steps, agent_id="x")
            failed = await until_done(c, bad["task_id"], agent_id="x")
            assert failed["status"] == "failed" and "no lesson that could be read" in failed["error"]
            assert (await ask(c, "bank_status", agent_id="x"))["failed_jobs"] == 1
            assert (
                await ask(
                    c, "extract_memory", query="task two", trajectory=TRAJECTORY, success_signal=False, agent_id="x"
                )
            )["status"] == "completed"
            now = await refused(c, "extract_memory", query="task three", trajectory=steps, async_mode=False)
            assert "no lesson that could be read" in now

    run(go())


def test_without_arguments_a_bank_in_the_data_folder_is_served_and_named_on_stderr(tmp_path):
    home = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def status(*words, **env):
        lines, errors = talk([sys.executable, *words], HELLO, READY, call(1, "bank_status"), **home | env)
        first, second = errors.splitlines()
        assert "bank.sqlite" in first and second.startswith("[INFO] server running over stdio, ")
        return json.loads(lines[1])["result"]["structuredContent"]

    plain = status("-m", "mcp_server")
    assert plain["preset"] == "production" and plain["bank"].startswith(str(tmp_path))
    there = status("-m", "mcp_server", "preset=reasoningbank_mcp")
    assert (there["preset"], there["retrieval"], "model" in there) == ("reasoningbank_mcp", "hybrid", False)
    there = status("-m", "mcp_server", "llm=dashscope", DASHSCOPE_API_KEY="sk-test-456")
    assert (there["model"], there["bank"]) == ("dashscope/qwen-plus", plain["bank"])


def test_one_process_at_a_time_works_on_the_queue(tmp_path):
    async def go():
        bank = tmp_path / "b.sqlite"
        async with hashed(bank, *MODEL) as a, hashed(bank, *MODEL) as b:
            tasks = []
            for number in range(12):
                steps = [*TRAJECTORY, {"role": "assistant", "content": f"attempt {number}"}]
                told = await ask((a, b)[number % 2], "extract_memory", query=f"task {number}", trajectory=steps)
                tasks.append(told["task_id"])
            states = [(await until_done(a, task))["status"] for task in tasks]
            return states, await ask(b, "bank_status")

    states, status = run(go())
    assert states == ["completed"] * 12 and sum(status["records"].values()) == 12


def test_nothing_but_the_protocol_is_written_to_stdout(tmp_path):
    """With the real embedder, which loads libraries and shows progress bars, and over a bad line."""
    bank = tmp_path / "b.sqlite"
    requests = [
        HELLO,
        READY,
        call(1, "bank_status"),
        call(2, "save_lesson", query="Sort a list of names", title="Use sorted", content="sorted() takes a key."),
        call(3, "retrieve_memory", query="How do I put names into order?"),
        call(4, "bank_status"),
        call(5, "retrieve_memory", query=""),
    ]
    lines, _ = raw(bank, *requests)
    answers = [json.loads(line) for line in lines]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    results = {answer["id"]: answer["result"] for answer in answers if "id" in answer}
    assert results[1]["structuredContent"]["embedder"] == {"name": "all-MiniLM-L6-v2"}
    assert lessons_in(results[3]["structuredContent"])[0]["title"] == "Use sorted"
    assert results[4]["structuredContent"]["embedder"]["loaded"] == "MiniLMEmbedder"
    assert results[5]["isError"] is True


def test_starting_and_saying_hello_loads_nothing_heavy(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom mcp_server.config import load_config\n"
        "from mcp_server.tools import MemoryTools\n"
        "from mcp_server.server import build_server\nfrom mcp_server.service import Service\n"
        "cfg = load_config(['llm=gemini', 'llm.api_key_env=HOME'])\n"
        f"service = Service(Path({str(tmp_path / 'b.sqlite')!r}), cfg)\n"
        "build_server(service, 'all')\nservice.roles()\nMemoryTools(service).bank_status()\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = forkserver.run(
        [sys.executable, "-c", code], fresh=True, cwd=REPO, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("retrieve_memory", "--query", "fill a form"), ("hook", "retrieve"), ("bank_status", "--json")],
    ids=" ".join,
)
def test_a_command_loads_neither_sdk_nor_hydra(tmp_path, words):
    """From its second start on: what Hydra makes of the settings is kept."""
    bank = str(tmp_path / "b.sqlite")
    made = ["save_lesson", "--bank", bank, "--embedder", "hashing-256", "--query", "fill a form"]
    assert main([*made, "--title", "Tab", "--content", "Use the tab key."]) == 0
    code = (
        "import sys\nfrom mcp_server.__main__ import main\n"
        f"status = main({[*words, '--bank', bank]!r})\n"
        "print(status, [name for name in ('mcp', 'mcp_types', 'pydantic', 'hydra', 'faiss') if name in sys.modules])"
    )
    for _ in range(2):
        done = forkserver.run(
            [sys.executable, "-c", code],
            fresh=True,
            cwd=REPO,
            env={**os.environ, **ENV, "XDG_CACHE_HOME": str(tmp_path)},
            input='{"prompt": "fill a form"}',
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.splitlines()[-1] == "0 []" and len(list(tmp_path.glob("reasoningbank/composed/*.json"))) == 1


def test_a_bank_that_no_client_extracts_into_has_an_empty_queue(tmp_path):
    bank = tmp_path / "b.sqlite"
    raw(bank, HELLO, READY, call(1, "bank_status"), options=("--embedder", "hashing-256", *MODEL))
    with sqlite3.connect(bank) as db:
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("preset=prodction",), "did you mean production? Give paper_faithful, production"),
        (("retrieval.topk=3",), "retrieval.topk"),
        (("--embedder", "hashing-64"), "was made by the embedder"),
        (("--transport", "http", "--host", "0.0.0.0"), "bearer token"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_sentence(tmp_path, options, sentence):
    bank = tmp_path / "b.sqlite"
    from memory_kit import item, record

    from core.models.embedding import HashingEmbedder

    opened = MemoryBank(path=str(bank), embedder=HashingEmbedder(), policy=Cosine())
    opened.add(record("one", item(1)))
    opened.close()
    line = [sys.executable, "-m", "mcp_server", "--bank", str(bank), *options]
    done = forkserver.run(line, cwd=REPO, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and sentence in done.stderr and done.stderr.count("\n") == 1
