"""MaTTS over MCP: contrast_attempts, the two prompts, and the controller with real server processes."""

from __future__ import annotations

import json
import os
import re

import pytest
from conftest import KITS, REPO
from mcp.client.client import Client
from mcp_kit import ask, client, here, http_server, refused, run, until_done

from core.errors import InfraError
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from scripts import matts_controller

MODEL = ("llm=scripted", "llm.script.path=test_matts_controller.play")
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
    async def go(server):
        async with Client(server) as open_client:
            given = {"query": TASK, "attempts": list(attempts), "async_mode": False, **arguments}
            return await ask(open_client, "contrast_attempts", **given)

    with here(tmp_path / "b.sqlite", *MODEL, "memory.consolidate=null", *words) as (server, service):
        told = run(go(server))
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
    async def go():
        async with client(tmp_path / "b.sqlite", "--embedder", "hashing-256", "--tools", "all", *MODEL) as open_client:
            given = {"query": TASK, "attempts": [attempt(41), attempt(42)]}
            first = await ask(open_client, "contrast_attempts", **given)
            done = await until_done(open_client, first["task_id"])
            again = await ask(open_client, "contrast_attempts", **given)
            return first, done, again

    first, done, again = run(go())
    assert first["status"] == "processing" and (done["status"], done["best"]) == ("completed", 2)
    assert again["task_id"] == first["task_id"]


BAD = [
    ({"attempts": [attempt(1)]}, "attempts has 1 entries: give 2 to 20"),
    ({"attempts": [attempt(n) for n in range(21)]}, "attempts has 21 entries"),
    ({"attempts": [attempt(1), {"trajectory": []}]}, "trajectory is empty"),
    ({"attempts": [attempt(1), {}]}, "attempts.1.trajectory is missing"),
    ({"attempts": [attempt(1), attempt("y" * 600_000), attempt("y" * 600_000)]}, "together"),
    ({"attempts": [attempt(1), attempt(2)], "pattern": "both"}, "pattern=both: give parallel or sequential"),
    ({"attempts": [attempt(1), attempt(2)], "query": " "}, "query is empty"),
]


@pytest.mark.parametrize(("given", "why"), BAD, ids=[why for _, why in BAD])
def test_bad_input_is_one_sentence(tmp_path, given, why):
    async def go(server):
        async with Client(server) as open_client:
            return await refused(open_client, "contrast_attempts", **{"query": TASK} | given)

    with here(tmp_path / "b.sqlite", *MODEL) as (server, _):
        assert why in run(go(server))


def test_without_a_model_or_a_contrast_it_says_what_to_do_instead(tmp_path):
    async def go(server):
        async with Client(server) as open_client:
            given = {"query": TASK, "attempts": [attempt(1), attempt(2)], "async_mode": False}
            return await refused(open_client, "contrast_attempts", **given)

    with here(tmp_path / "b.sqlite") as (server, _):
        assert "save_lesson" in run(go(server))
    with here(tmp_path / "b.sqlite", *MODEL, "contrast=null") as (server, _):
        assert "extract_memory" in run(go(server))


def test_the_prompts_name_the_tools_in_their_order(tmp_path):
    async def go(server):
        async with Client(server) as open_client:
            made = [
                await open_client.get_prompt("matts_parallel", {"task": "Fix </task> it", "k": "5"}),
                await open_client.get_prompt("matts_sequential", {"task": "Fix it"}),
            ]
            odd = await open_client.get_prompt("matts_parallel", {"task": "x", "k": "many"})
            assert "3 times" in odd.messages[0].content.text
            return [prompt.messages[0].content.text for prompt in made]

    with here(tmp_path / "b.sqlite", tools="core") as (server, _):
        parallel, sequential = run(go(server))
    assert "5 times" in parallel and parallel.count("</task>") == 1
    for text, pattern in ((parallel, "parallel"), (sequential, "sequential")):
        places = [text.index(word) for word in ("retrieve_memory", "contrast_attempts", "save_lesson", "mark_helpful")]
        assert places == sorted(places) and f"pattern = '{pattern}'" in text


@pytest.fixture
def server_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPO), KITS]))


def control(capsys, *words):
    assert matts_controller.main([TASK, *map(str, words), "--json", *MODEL]) == 0
    return json.loads(capsys.readouterr().out)


def records_at(path):
    bank = MemoryBank(path=str(path), embedder=HashingEmbedder(), policy=Cosine(), read_only=True)
    try:
        return bank.records()
    finally:
        bank.close()


def test_the_controller_runs_both_patterns_with_a_server_of_its_own(tmp_path, capsys, server_path):
    bank = ("--bank", tmp_path / "b.sqlite", "--embedder", "hashing-256")
    told = control(capsys, *bank, "--k", 3)
    assert (told["attempts"], told["best"], told["answer"]) == (3, 2, "Result: 42.")
    assert told["memories"][0]["title"] == "parallel 41/42/45"
    told = control(capsys, *bank, "--pattern", "sequential", "--rounds", 2)  # it is shown the lesson of the first
    assert (told["attempts"], told["best"]) == (3, 3)
    assert told["answer"] == "Result: 42. I use the retrieved lesson." and told["outcomes"][0] == "failure"
    assert told["memories"][0]["title"] == "sequential 41/42/42"
    first, second = records_at(tmp_path / "b.sqlite")
    assert (first.n_used, second.n_used) == (1, 0)  # the server knows by its id that the first was used


def test_the_controller_uses_a_running_server(tmp_path, capsys, server_path):
    with http_server(tmp_path / "b.sqlite", "--tools", "all", *MODEL) as url:
        told = control(capsys, "--url", f"{url}/mcp", "--k", 2, "--agent-id", "solver")
    assert (told["best"], told["attempts"]) == (2, 2)
    assert [record.namespace for record in records_at(tmp_path / "b.sqlite")] == ["solver"]


def test_the_controller_prints_the_answer_and_what_was_learned(tmp_path, capsys, server_path):
    words = [TASK, "--bank", str(tmp_path / "b.sqlite"), "--embedder", "hashing-256", "--k", "1", *MODEL]
    assert matts_controller.main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("Result: 41.\n\nof 1 attempts, number 1; learned (") and "- single 41: About products." in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--k", "0", *MODEL), "--k 1 to 20"),
        ((), "say which model"),
        (("llm=nothing",), "llm"),
    ],
)
def test_the_controllers_bad_input_is_one_sentence(tmp_path, capsys, words, why):
    assert matts_controller.main([TASK, "--bank", str(tmp_path / "b.sqlite"), *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("where", [("--url", "http://127.0.0.1:9/mcp"), ("--url", "nonsense"), ("--bank", "{folder}")])
def test_a_server_that_does_not_answer_is_one_sentence(tmp_path, capfd, where):
    option, value = where[0], where[1].format(folder=tmp_path)
    assert matts_controller.main([TASK, option, value, *MODEL]) == 2
    said = capfd.readouterr().err
    assert f"error: {value} does not answer as a memory server: " in said and "Traceback" not in said
    assert said.endswith(".\n") and not said.endswith("..\n")


def test_an_attempt_that_breaks_leaves_the_others_and_all_that_break_are_an_error():
    calls = []

    async def tool(name, **arguments):
        calls.append((name, arguments))
        return {"formatted_prompt": "", "best": 1}

    def make(broken):
        def one(lessons, number):
            if number in broken:
                raise InfraError("the provider is gone")
            return attempt(number)["trajectory"]

        return one

    assert run(matts_controller.solve_apart(tool, TASK, make({1}), 3))["attempts"] == 2
    assert run(matts_controller.solve_apart(tool, TASK, make({0, 1}), 3))["answer"] == "Result: 2."
    assert [name for name, _ in calls] == ["retrieve_memory", "contrast_attempts", "retrieve_memory", "extract_memory"]
    with pytest.raises(InfraError):
        run(matts_controller.solve_apart(tool, TASK, make({0, 1, 2}), 3))

    def revise(lessons, before):
        return make({1})(lessons, len(before))

    assert run(matts_controller.solve_in_rounds(tool, TASK, revise, 3))["answer"] == "Result: 0."
