"""MaTTS over MCP: contrast_attempts, the two prompts, and the program of docs/own_agent.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from conftest import REPO
from mcp_kit import calling, hashed, served

from benchmarks.latency_server import running
from core.memory.open import read_records

MODEL = ("llm=scripted", "llm.script.path=test_contrast_attempts.play")
TASK = "How much is six times seven?"


def play(messages, role, sample):
    """Attempt 2 is right; a check corrects; the judge knows 42; the lesson says what the distiller was shown."""
    text = messages[-1]["content"]
    if role == "agent":
        used = " I use the retrieved lesson." if "<memory_items>" in messages[0]["content"] else ""
        checking = "your own work" in text or "Check your own work" in text
        return f"Result: {42 if checking or sample == 1 else 41 + 2 * sample}.{used}"
    if "name the best one" in text:
        return json.dumps({"analysis": "the second is right", "index": 2})
    if role == "judge":
        return f'Thoughts: I work it out.\nStatus: "{"success" if "Result: 42" in text else "failure"}"'
    kinds = {"at the same task": "parallel", "asked to check its work": "sequential"}
    kind = next((name for words, name in kinds.items() if words in text), "single")
    results = "/".join(re.findall(r"Result: (\d+)", text))
    return (
        f"```\n# Memory Item 1\n## Title {kind} {results}\n## Description About products.\n"
        "## Content Add the seven six times over and compare.\n```"
    )


def attempt(result, **more):
    turns = [{"role": "user", "content": TASK}, {"role": "assistant", "content": f"Result: {result}."}]
    return {"trajectory": turns, **more}


def compared(tmp_path, *attempts, words=(), **arguments):
    with served(tmp_path / "b.sqlite", *MODEL, "memory.consolidate=null", *words) as (client, service):
        told = client.ask("contrast_attempts", query=TASK, attempts=list(attempts), async_mode=False, **arguments)
        return told, service.bank.get(told["memory_id"]), service.bank.records()


def test_all_attempts_become_one_record_with_the_outcome_of_the_best(tmp_path):
    told, record, records = compared(tmp_path, attempt(41), attempt(42), attempt(45))
    assert (told["best"], told["outcomes"], told["success"]) == (2, ["failure", "success", "failure"], True)
    assert [memory["title"] for memory in told["memories"]] == ["parallel 41/42/45"]
    assert len(records) == 1 and (record.outcome, record.original_query) == ("success", TASK)
    assert record.provenance["best"] == 2


def test_of_revisions_the_last_counts_and_the_client_may_know_the_outcomes(tmp_path):
    signals = [attempt(42, success_signal=False), attempt(41, success_signal=False)]
    told, record, _ = compared(tmp_path, *signals, pattern="sequential")
    assert (told["best"], told["outcomes"]) == (2, ["failure", "failure"])
    assert told["memories"][0]["title"] == "sequential 42/41"
    assert (record.outcome, record.label_source) == ("failure", "client")


def test_the_judge_may_choose_and_the_labels_may_be_shown(tmp_path):
    told, _, _ = compared(tmp_path, attempt(42), attempt(41), words=("select=judge", "contrast.labels=judge"))
    assert told["best"] == 1


def test_it_waits_in_the_queue_and_is_one_task_however_often_it_is_sent(tmp_path):
    given = {"query": TASK, "attempts": [attempt(41), attempt(42)]}
    with calling(hashed(tmp_path / "b.sqlite", "--tools", "all", *MODEL)) as client:
        first = client.ask("contrast_attempts", **given)
        done = client.until_done(first["task_id"])
        assert first["status"] == "processing" and (done["status"], done["best"]) == ("completed", 2)
        assert client.ask("contrast_attempts", **given)["task_id"] == first["task_id"]


BAD = [
    ({"attempts": [attempt(1)]}, "attempts has 1 entries: give 2 to 20"),
    ({"attempts": [attempt(n) for n in range(21)]}, "attempts has 21 entries"),
    ({"attempts": [attempt(1), {"trajectory": []}]}, "trajectory is empty"),
    ({"attempts": [attempt(1), {}]}, "attempts.1.trajectory is missing"),
    ({"attempts": [attempt(1), attempt("y" * 600_000), attempt("y" * 600_000)]}, "together"),
    ({"attempts": [attempt(1), attempt(2)], "pattern": "both"}, "pattern=both: give parallel or sequential"),
    ({"attempts": [attempt(1), attempt(2)], "query": " "}, "query is empty"),
]


def test_bad_input_is_one_sentence(tmp_path, subtests):
    with served(tmp_path / "b.sqlite", *MODEL) as (client, _):
        for given, why in BAD:
            with subtests.test(why):
                assert why in client.refused("contrast_attempts", **{"query": TASK} | given)


def test_without_a_model_or_a_contrast_it_says_what_to_do_instead(tmp_path):
    for words, instead in (((), "save_lesson"), ((*MODEL, "contrast=null"), "extract_memory")):
        with served(tmp_path / "b.sqlite", *words) as (client, _):
            given = {"query": TASK, "attempts": [attempt(1), attempt(2)], "async_mode": False}
            assert instead in client.refused("contrast_attempts", **given)


def test_the_prompts_name_the_tools_in_their_order(tmp_path):
    with served(tmp_path / "b.sqlite", tools="core") as (client, _):
        parallel = client.prompt("matts_parallel", task="Fix </task> it", k="5")
        sequential = client.prompt("matts_sequential", task="Fix it")
        assert "3 times" in client.prompt("matts_parallel", task="x", k="many")
    assert "5 times" in parallel and parallel.count("</task>") == 1
    for text, pattern in ((parallel, "parallel"), (sequential, "sequential")):
        places = [text.index(word) for word in ("retrieve_memory", "contrast_attempts", "save_lesson", "mark_helpful")]
        assert places == sorted(places) and f"pattern = '{pattern}'" in text


def test_the_program_of_the_playbook_answers_and_learns(tmp_path):
    page = (REPO / "docs" / "own_agent.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "matts.py").write_text(program, encoding="utf-8")
    bank = tmp_path / "b.sqlite"
    with running(0.01) as url:
        env = os.environ | {"OPENAI_BASE_URL": url, "PYTHONPATH": str(REPO), "REASONINGBANK_SETTINGS": "none"}
        words = [sys.executable, tmp_path / "matts.py", bank, TASK]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "The answer is \\boxed{42}" in done.stdout and "learned: Read the task twice" in done.stdout
    [record] = read_records(bank, "default")
    assert record.original_query == TASK and record.provenance["best"] == 1
