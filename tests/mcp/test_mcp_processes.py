"""Real server processes on one bank: what A saves B finds, races, kill -9, a clean stdout, a light start."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import forkserver
from conftest import REPO
from mcp_kit import ENV, HELLO, MODEL, READY, TRAJECTORY, call, calling, client, hashed, lessons_in, raw, talk
from memory_kit import item, record

from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from mcp_server.__main__ import main

HEAVY = ("torch", "litellm", "faiss", "sentence_transformers", "sympy", "wandb", "datasets")
EXTRACT = {"query": "Accept empty files", "trajectory": TRAJECTORY}


def test_a_lesson_saved_by_one_client_is_found_by_another(tmp_path):
    task = {"query": "fix the flaky login test"}
    with calling(hashed(tmp_path / "b.sqlite")) as a, calling(hashed(tmp_path / "b.sqlite")) as b:
        assert b.ask("retrieve_memory", **task)["formatted_prompt"] == ""
        saved = a.ask("save_lesson", **task, title="Wait", content="Wait for it.")
        [found] = lessons_in(b.ask("retrieve_memory", **task))
        assert found["id"] == saved["memory_id"][:8]
        b.ask("mark_helpful", memory_id=found["id"])
        assert a.ask("get_detail", memory_id=saved["memory_id"])["helpful"] == 1


def test_two_processes_that_write_at_once_lose_nothing(tmp_path):
    def write(client, name):
        for number in range(10):
            query = f"task {number} of {name}"
            client.ask("save_lesson", query=query, title=f"{name} {number}", content=f"Lesson {query}.")
            if number % 5 == 0:  # refused where the other was first
                client.call("add_insight", title=f"Shared title {number}", content=query, tags=["race"])

    options = ("--tools", "all", "memory.consolidate=null")
    with (
        calling(hashed(tmp_path / "b.sqlite", *options)) as a,
        calling(hashed(tmp_path / "b.sqlite", *options)) as b,
        ThreadPoolExecutor(2) as pool,
    ):
        list(pool.map(write, (a, b), ("ann", "bob")))
        titles = sorted(line["title"] for line in a.ask("list_index", limit=200)["insights"])
    own = [f"{name} {n}" for name in ("ann", "bob") for n in range(10)]
    assert titles == sorted([*own, "Shared title 0", "Shared title 5"])


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
    for message in (HELLO, READY, call(1, "extract_memory", **EXTRACT)):
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
    server.stdout.readline()
    told = json.loads(server.stdout.readline())["result"]["structuredContent"]
    assert told["status"] == "processing"
    while state() != ("running", 1):
        assert server.poll() is None
    server.send_signal(signal.SIGKILL)
    server.wait()

    with calling(client(bank, *options)) as b:
        assert b.ask("extract_memory", **EXTRACT)["task_id"] == told["task_id"]  # the same attempt is the same task
        done = b.until_done(told["task_id"])
        found, status = b.ask("retrieve_memory", query=EXTRACT["query"], top_k=5), b.ask("bank_status")
    assert (done["status"], done["success"], done["extracted_count"]) == ("completed", True, 1)
    assert [lesson["title"] for lesson in lessons_in(found)] == ["Check for empty input first"]
    assert status["pending_jobs"] == 0 and status["records"] == {"active": 1}
    with sqlite3.connect(bank) as db:
        assert db.execute("SELECT payload, tries FROM jobs").fetchall() == [("{}", 2)]


def test_a_client_that_leaves_does_not_wait_for_an_extraction(tmp_path):
    bank = tmp_path / "b.sqlite"
    options = ("--embedder", "hashing-256", *MODEL, "llm.delay_s=300")
    raw(bank, HELLO, READY, call(1, "extract_memory", **EXTRACT), call(2, "bank_status"), options=options)
    with sqlite3.connect(bank) as db:
        assert db.execute("SELECT state FROM jobs").fetchone()[0] in ("pending", "running")


def test_extraction_at_once_in_the_background_and_failed(tmp_path):
    two = {"query": "task two", "trajectory": TRAJECTORY, "success_signal": False, "agent_id": "x"}
    steps = [*TRAJECTORY, {"role": "assistant", "content": "UNREADABLE"}]
    with calling(hashed(tmp_path / "b.sqlite", *MODEL)) as c:
        now = c.ask("extract_memory", query="one", trajectory=TRAJECTORY, async_mode=False, agent_id="x")
        assert (now["status"], now["extracted_count"]) == ("success", 1)
        told = c.ask("extract_memory", **two)
        assert (told["status"], told["async_mode"]) == ("processing", True)
        assert "there is no extraction" in c.refused("task_status", task_id=told["task_id"])
        done = c.until_done(told["task_id"], agent_id="x")
        assert done["status"] == "completed" and done["success"] is False
        bad = c.ask("extract_memory", query="task three", trajectory=steps, agent_id="x")
        failed = c.until_done(bad["task_id"], agent_id="x")
        assert failed["status"] == "failed" and "no lesson that could be read" in failed["error"]
        assert c.ask("bank_status", agent_id="x")["failed_jobs"] == 1
        assert c.ask("extract_memory", **two)["status"] == "completed"
        now = c.refused("extract_memory", query="task three", trajectory=steps, async_mode=False)
        assert "no lesson that could be read" in now


def test_without_arguments_a_bank_in_the_data_folder_is_served_and_named_on_stderr(tmp_path):
    home = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def status(*words, **env):
        line = [sys.executable, "-m", "mcp_server", *words]
        lines, errors = talk(line, HELLO, READY, call(1, "bank_status"), **home | env)
        first, second = errors.splitlines()
        assert f"{tmp_path}/reasoningbank/" in first and second.startswith("[INFO] server running over stdio, ")
        return json.loads(lines[1])["result"]["structuredContent"]

    plain = status()
    assert plain["preset"] == "production" and plain["bank"].startswith(str(tmp_path)) and "model" not in plain
    there = status("llm=dashscope", "preset=reasoningbank_mcp", DASHSCOPE_API_KEY="sk-test-456")
    assert (there["model"], there["bank"]) == ("dashscope/qwen-plus", plain["bank"])
    assert (there["preset"], there["retrieval"]) == ("reasoningbank_mcp", "hybrid")


def test_one_process_at_a_time_works_on_the_queue(tmp_path):
    bank, tasks = tmp_path / "b.sqlite", []
    with calling(hashed(bank, *MODEL)) as a, calling(hashed(bank, *MODEL)) as b:
        for number in range(6):
            steps = [*TRAJECTORY, {"role": "assistant", "content": f"attempt {number}"}]
            told = (a, b)[number % 2].ask("extract_memory", query=f"task {number}", trajectory=steps)
            tasks.append(told["task_id"])
        assert [a.until_done(task)["status"] for task in tasks] == ["completed"] * 6
        assert sum(b.ask("bank_status")["records"].values()) == 6


def test_nothing_but_the_protocol_is_written_to_stdout(tmp_path):
    """With the real embedder, which loads libraries and shows progress bars, and over a bad line."""
    requests = [
        HELLO,
        READY,
        call(1, "bank_status"),
        call(2, "save_lesson", query="Sort a list of names", title="Use sorted", content="sorted() takes a key."),
        call(3, "retrieve_memory", query="How do I put names into order?"),
        call(4, "bank_status"),
        call(5, "retrieve_memory", query=""),
    ]
    lines, _ = raw(tmp_path / "b.sqlite", *requests)
    answers = [json.loads(line) for line in lines]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    results = {answer["id"]: answer["result"] for answer in answers if "id" in answer}
    assert results[1]["structuredContent"]["embedder"] == {"name": "all-MiniLM-L6-v2"}
    assert lessons_in(results[3]["structuredContent"])[0]["title"] == "Use sorted"
    assert results[4]["structuredContent"]["embedder"]["loaded"] == "MiniLMEmbedder"
    assert results[5]["isError"] is True


def fresh(code, **options):
    """What a program prints that is started by exec, with nothing imported."""
    line = [sys.executable, "-c", code]
    done = forkserver.run(line, fresh=True, cwd=REPO, capture_output=True, text=True, check=True, **options)
    return done.stdout


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
    assert fresh(code).strip() == "[]"


def test_commands_load_neither_sdk_nor_hydra(tmp_path):
    """From their second start on: what Hydra makes of the settings is kept."""
    bank = str(tmp_path / "b.sqlite")
    made = ["save_lesson", "--bank", bank, "--embedder", "hashing-256", "--query", "fill a form"]
    assert main([*made, "--title", "Tab", "--content", "Use the tab key."]) == 0
    commands = [("retrieve_memory", "--query", "fill a form"), ("hook", "retrieve"), ("bank_status", "--json")]
    code = (
        "import sys\nfrom mcp_server.__main__ import main\n"
        f"status = [main([*words, '--bank', {bank!r}]) for words in {commands!r}]\n"
        "print(status, [name for name in ('mcp', 'mcp_types', 'pydantic', 'hydra', 'faiss') if name in sys.modules])"
    )
    env = {**os.environ, **ENV, "XDG_CACHE_HOME": str(tmp_path)}
    said = [fresh(code, env=env, input='{"prompt": "fill a form"}') for _ in range(2)]
    assert said[1].splitlines()[-1] == "[0, 0, 0] []"
    assert len(list(tmp_path.glob("reasoningbank/composed/*.json"))) == 1


def test_a_server_that_cannot_start_says_why_in_one_sentence(tmp_path, monkeypatch, capfd, subtests):
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    bank = str(tmp_path / "b.sqlite")
    with closing(MemoryBank(path=bank, embedder=HashingEmbedder(), policy=Cosine())) as opened:
        opened.add(record("one", item(1)))
    for options, sentence in (
        (("preset=prodction",), "did you mean production? Give paper_faithful, production"),
        (("retrieval.topk=3",), "retrieval.topk"),
        (("--embedder", "hashing-64"), "was made by the embedder"),
        (("--transport", "http", "--host", "0.0.0.0"), "bearer token"),
    ):
        with subtests.test(sentence):
            assert main(["--bank", bank, *options]) == 2
            out, err = capfd.readouterr()
            assert out == "" and err.startswith("error: ") and sentence in err and err.count("\n") == 1
