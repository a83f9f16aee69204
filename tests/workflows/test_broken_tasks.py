"""What broke is tried again before a run counts as complete, and what stays broken cannot be overlooked."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from conftest import TOY, WITH_KITS, command, read_json, read_rows
from kill_kit import kill_at
from provider import completion

from analysis.audit import audit
from analysis.load import frame_of
from analysis.runs import read_run
from core.errors import InfraError, StopRun, UserError
from core.models import retry
from core.models.offline import ScriptedModel
from core.run.records import current, read_episodes
from envs import toy_script
from envs.toy import ToyEnv

REMOTE = ("env=toy", "llm=vllm", "embedder=hashing", "llm.json_schema=false", "llm.attempts=1")


@pytest.fixture
def breaking(monkeypatch):
    """breaking(n): from now on the agent's calls about some tasks break, for each task the first n of them."""
    original, counts, left, lock = toy_script.play, {}, {}, threading.Lock()

    def play(messages, role, sample):
        task = messages[1]["content"].split(".")[0] if role == "agent" else ""
        with lock:
            counts[task] = counts.get(task, 0) + 1
            breaks = next((name for name in left if name in task and left[name] > 0), None)
            if breaks:
                left[breaks] -= 1
        if breaks:
            raise InfraError("oops", "server")
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)

    def start(**tasks):
        left.clear()
        left.update({name.replace("_", " box: box "): n for name, n in tasks.items()})
        counts.clear()
        return counts

    return start


def audited(run_dir):
    return audit(read_run(run_dir))["broken"]


@pytest.fixture
def whole(here, tmp_path):
    return (here(*TOY, "limit=12", "workflow=vanilla", run_dir=tmp_path / "whole")[0] / "episodes.jsonl").read_bytes()


@pytest.mark.parametrize("workers", [1, 4])
def test_where_nothing_is_learned_a_broken_task_is_tried_again_at_once(here, breaking, tmp_path, whole, workers):
    counts = breaking(birch_1=2, dune_2=1)
    run_dir, _ = here(*TOY, "limit=12", "workflow=vanilla", f"max_concurrency={workers}", run_dir=tmp_path / "run")
    assert (run_dir / "episodes.jsonl").read_bytes() == whole
    assert read_json(run_dir / "summary.json")["complete"] is True
    assert sum(counts.values()) == 12 + 3


def test_a_frozen_bank_is_no_other_case(here, breaking, tmp_path):
    bank = here(*TOY, "limit=8", run_dir=tmp_path / "bank")[0] / "bank.sqlite"
    words = (*TOY, "setting=frozen", f"memory.path={bank}", "limit=12", "seed=1", "max_concurrency=3")
    before = (here(*words, run_dir=tmp_path / "a")[0] / "episodes.jsonl").read_bytes()
    breaking(amber_1=2, cedar_3=2)
    assert (here(*words, run_dir=tmp_path / "b")[0] / "episodes.jsonl").read_bytes() == before


def test_where_a_run_learns_they_come_at_the_streams_end_and_the_order_is_on_record(here, breaking):
    breaking(birch_1=1, dune_2=2)
    run_dir, rate = here(*TOY, "limit=12")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert [row["index"] for row in rows] == list(range(15))
    assert [(row["index"], row["retries"], row["status"]) for row in rows if "retries" in row] == [
        (12, 1, "success"),  # birch/2 has taught the word by now
        (13, 7, "infra_error"),
        (14, 7, "success"),
    ]
    assert {rows[1]["status"], rows[7]["status"]} == {"infra_error"}
    assert (summary["n"], summary["n_infra_error"], summary["complete"], summary["n_retried"]) == (12, 0, True, 2)
    assert rate == round(sum(row["status"] == "success" for row in current(rows)) / 12, 4)
    assert audited(run_dir) == {}
    made = [record["tick"] for row in rows for record in row["records"]]
    assert made == sorted(made) and len(made) == 12
    run = read_run(run_dir)
    assert [row["task_id"] for row in run.rows] == run.manifest["task_ids"] and run.complete
    assert frame_of([run])["index"].tolist() == list(range(12))


def test_what_stays_broken_is_named_and_the_same_command_tries_again(here, breaking, tmp_path, capsys):
    words = (*TOY, "limit=12")
    breaking(birch_1=99, dune_2=99)
    with pytest.raises(StopRun, match=r"2 of 12 tasks broken \(2 by server\)"):
        here(*words, run_dir=tmp_path / "run")
    printed, summary = capsys.readouterr().out, read_json(tmp_path / "run/summary.json")
    assert "broken: toy/birch/1" in printed and "server: oops" in printed and "not complete" in printed
    assert (summary["complete"], summary["n"], summary["n_infra_error"]) == (False, 10, 2)
    assert summary["broken"] == [
        {"task_id": "toy/birch/1", "index": 1, "error": "server: oops"},
        {"task_id": "toy/dune/2", "index": 7, "error": "server: oops"},
    ]
    breaking()
    run_dir, rate = here(*words, run_dir=tmp_path / "run")
    summary = read_json(run_dir / "summary.json")
    assert (summary["complete"], summary["n"], summary["broken"], rate) == (True, 12, [], summary["success_rate"])
    assert audited(run_dir) == {}
    before = (run_dir / "episodes.jsonl").read_bytes()
    here(*words, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == before


def test_zero_tries_none_again_and_the_run_is_not_complete(here, breaking, tmp_path):
    counts = breaking(birch_1=99)
    for _ in range(2):
        with pytest.raises(StopRun, match="1 of 8 tasks broken"):
            here(*TOY, "limit=8", "retry_broken=0", run_dir=tmp_path / "run")
    assert counts["Open the birch box: box 1 of the birch family"] == 1
    assert len(read_rows(tmp_path / "run")) == 8


def test_a_run_without_learning_that_goes_on_tries_as_often_again_as_was_said(here, breaking, tmp_path):
    counts = breaking(birch_1=99)
    for tries in (1 + 2, 1 + 2 + 2):
        with pytest.raises(StopRun, match="1 of 4 tasks broken"):
            here(*TOY, "limit=4", "workflow=vanilla", "retry_broken=2", run_dir=tmp_path / "run")
        assert counts["Open the birch box: box 1 of the birch family"] == tries


@pytest.mark.parametrize("workflow", ["vanilla", "reasoningbank"])
def test_several_in_a_row_stop_the_run_which_goes_on_later(here, breaking, tmp_path, workflow):
    words = (*TOY, "limit=12", f"workflow={workflow}")
    breaking(box=99)
    with pytest.raises(StopRun, match=r"3 tasks in a row broke \(stop_after_broken\), the last by server: oops"):
        here(*words, run_dir=tmp_path / "run")
    assert len(read_rows(tmp_path / "run")) == 3
    assert read_json(tmp_path / "run/summary.json")["complete"] is False
    breaking()
    run_dir, _ = here(*words, run_dir=tmp_path / "run")
    assert read_json(run_dir / "summary.json")["n"] == 12
    assert audited(run_dir) == {}


def test_two_in_a_row_and_a_success_do_not_stop_it(here, breaking):
    breaking(amber_1=1, birch_1=1, dune_1=1, amber_2=1)
    run_dir, _ = here(*TOY, "limit=12")
    assert read_json(run_dir / "summary.json")["complete"] is True


def test_of_several_rounds_the_whole_ones_are_not_made_again(here, monkeypatch, tmp_path):
    words = (*TOY, "workflow=matts_sequential", "memory=none", "limit=4")
    first = (here(*words, run_dir=tmp_path / "a")[0] / "episodes.jsonl").read_bytes()
    original, seen = toy_script.play, []

    def play(messages, role, sample):
        seen.append((messages[1]["content"], len(messages)))
        if len(messages) > 2 and seen.count(seen[-1]) == 1:
            raise InfraError("oops", "server")
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    second = (here(*words, run_dir=tmp_path / "b")[0] / "episodes.jsonl").read_bytes()
    assert second == first
    assert len([call for call in seen if call[1] == 2]) == 4  # the first rounds, each once


def test_a_server_that_stays_bad_and_one_that_heals(main_here, serve, monkeypatch, tmp_path):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.01)
    state = {"bad": True}

    def answer(request, number):
        messages = request["messages"]
        role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
        if state["bad"] and role == "agent" and "box 2" in messages[1]["content"]:
            return 500, {"error": {"message": "out of order"}}
        return 200, completion(toy_script.play(messages, role, 0))

    words = (*REMOTE, f"llm.api_base={serve(answer).url}", "limit=12", f"run_dir={tmp_path / 'run'}")
    status, said, errors = main_here(*words, "stop_after_broken=null")
    assert status == 1
    assert "4 of 12 tasks broken (4 by server)" in errors and "to go on where it stopped" in errors
    assert "broken: toy/amber/2" in said and "Traceback" not in errors
    summary = read_json(tmp_path / "run/summary.json")
    assert (summary["complete"], summary["n"], len(summary["broken"])) == (False, 8, 4)
    status, _, errors = main_here(*words)
    assert status == 1 and "3 tasks in a row broke" in errors and "out of order" in errors
    state["bad"] = False
    status, _, errors = main_here(*words)
    assert status == 0, errors
    summary = read_json(tmp_path / "run/summary.json")
    assert (summary["complete"], summary["n"], summary["broken"]) == (True, 12, [])
    assert audited(tmp_path / "run") == {}


@pytest.mark.parametrize("arm", ["workflow=reasoningbank", "workflow=matts_parallel k=2", "stream.batch=5"])
def test_stopped_at_any_call_among_broken_tasks_it_goes_on_to_the_same_bytes(here, monkeypatch, tmp_path, arm):
    original = toy_script.play
    calls, stop_at = 0, None

    def play(messages, role, sample):
        nonlocal calls
        calls += 1
        if stop_at is not None and calls >= stop_at:
            raise StopRun("the server is gone")
        if role == "agent":
            task = messages[1]["content"].split(".")[0]
            if any(name in task for name in ("birch box: box 1 ", "cedar box: box 2 ")) and not healed():
                raise InfraError("oops", "server")
        return original(messages, role, sample)

    def healed():  # breaks until the stream has come to its end, whenever this process was started
        path = run_dir / "episodes.jsonl"
        return path.exists() and path.read_bytes().count(b"\n") >= 10

    monkeypatch.setattr("envs.toy_script.play", play)
    words = (*TOY, *arm.split(), "limit=10")
    run_dir = tmp_path / "whole"
    whole = (here(*words, run_dir=run_dir)[0] / "episodes.jsonl").read_bytes()
    assert whole.count(b'"retries"') == 2
    for first in range(5, calls + 1, calls // 3):  # three moments
        run_dir = tmp_path / str(first)
        for number in (first, 7, 3, None):
            stop_at, calls = number, 0
            try:
                here(*words, run_dir=run_dir)
            except StopRun:
                continue
        assert (run_dir / "episodes.jsonl").read_bytes() == whole
        assert audited(run_dir) == {}


def test_killed_among_the_tries_it_goes_on_to_the_same_bytes(here, monkeypatch, tmp_path):
    words = (*TOY, "limit=10", "llm.script.path=test_broken_tasks.ill_at_first", "llm.delay_s=0.02")

    def whole(folder):
        monkeypatch.setenv("ILL", str(folder))
        return (here(*words, run_dir=folder)[0] / "episodes.jsonl").read_bytes()

    never_killed, folder = whole(tmp_path / "whole"), tmp_path / "killed"
    assert never_killed.count(b'"retries"') == 3
    for n in (4, 11):  # in the stream, and among the tries at its end
        kill_at(n, command(*words, f"run_dir={folder}"), folder, env=WITH_KITS | {"ILL": str(folder)})
    assert whole(folder) == never_killed


def ill_at_first(messages, role, sample):
    """The toy's player, which breaks for three tasks until all ten have a line in the run's episodes."""
    path = Path(os.environ["ILL"]) / "episodes.jsonl"
    n = path.read_bytes().count(b"\n") if path.exists() else 0
    ill = ("birch box: box 1 ", "dune box: box 1 ", "cedar box: box 2 ")
    if role == "agent" and n < 10 and any(name in messages[1]["content"] for name in ill):
        raise InfraError("oops", "server")
    return toy_script.play(messages, role, sample)


def test_the_budget_ends_the_tries_and_a_larger_one_goes_on(here, breaking, tmp_path):
    breaking(birch_1=1, dune_1=1)
    whole = (here(*TOY, "limit=8", run_dir=tmp_path / "whole")[0] / "episodes.jsonl").read_bytes()
    last = read_json(tmp_path / "whole/summary.json")["calls"]["total"]["calls"] - 2
    breaking(birch_1=1, dune_1=1)
    here(*TOY, "limit=8", f"budget.run.calls={last}", run_dir=tmp_path / "cut")
    rows = read_rows(tmp_path / "cut")
    assert rows[-1]["status"] == "stopped" and rows[-1]["retries"] in (1, 3)
    assert read_json(tmp_path / "cut/summary.json")["complete"] is False
    breaking()
    here(*TOY, "limit=8", run_dir=tmp_path / "cut")
    assert (tmp_path / "cut/episodes.jsonl").read_bytes() == whole


def test_a_line_that_retries_another_task_is_damaged(here, breaking, tmp_path):
    breaking(birch_1=1)
    run_dir, _ = here(*TOY, "limit=4")
    rows = read_rows(run_dir)
    rows[-1]["retries"] = 2
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="retries index 2, which is another task's"):
        read_episodes(tmp_path / "bad.jsonl")


def test_the_audit_does_not_call_a_copy_of_a_running_run_broken(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=12")
    assert audited(run_dir) == {}
    lines = (run_dir / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    early = here(*TOY, "limit=5", run_dir=tmp_path / "early")[0] / "bank.sqlite"
    for name, n, bank, torn in (
        ("bank ahead", 7, run_dir / "bank.sqlite", False),
        ("bank behind", 12, early, False),
        ("bank torn", 7, run_dir / "bank.sqlite", True),
    ):
        copy = shutil.copytree(run_dir, tmp_path / name)
        (copy / "summary.json").unlink()
        (copy / "episodes.jsonl").write_bytes(b"".join(lines[:n]) + lines[0][:100])
        for file in copy.glob("bank.sqlite*"):
            file.unlink()
        data = bank.read_bytes()
        (copy / "bank.sqlite").write_bytes(data[: len(data) // 3] if torn else data)
        assert audited(copy) == {}, name
    lost = shutil.copytree(run_dir, tmp_path / "lost")  # and a finished run that lost a record is still found
    shutil.copy(early, lost / "bank.sqlite")
    for file in lost.glob("bank.sqlite-*"):
        file.unlink()
    assert "lost_or_doubled" in audited(lost)


def test_the_second_pass_has_seeds_of_its_own_and_the_first_those_of_ever(here, monkeypatch, tmp_path):
    seeds, original = [], ScriptedModel.chat

    def chat(self, request):
        seeds.append((request.role, request.seed))
        return original(self, request)

    monkeypatch.setattr(ScriptedModel, "chat", chat)
    here(*TOY, "limit=4", run_dir=tmp_path / "one")
    once = list(seeds)
    seeds.clear()
    here(*TOY, "limit=4", "stream.passes=2", run_dir=tmp_path / "two")
    assert seeds[: len(once)] == once
    assert not set(seeds[len(once) :]) & set(once)
    assert {role for role, _ in seeds[len(once) :]} == {"agent", "judge", "extractor"}


def test_lessons_of_failures_are_stored_as_of_failures_though_the_answer_is_a_success(here):
    words = ("env=toy_chance", *TOY[1:], "limit=8", "workflow=matts_parallel", "select=judge", "k=3")
    run_dir, _ = here(*words, "workflow.learn_from=failure", "llm.script.path=test_broken_tasks.mixed")
    mixed = [row for row in read_rows(run_dir) if row["records"] and row["verdict"]["label"] == "success"]
    assert mixed
    for row in mixed:
        assert {(record["outcome"], record["score"]) for record in row["records"]} == {("failure", 0.0)}
        failed = [t["id"] for t, v in zip(row["trajectories"], row["verdicts"], strict=True) if v["label"] == "failure"]
        assert row["records"][0]["source_trajectory_id"] == failed[0]


def mixed(messages, role, sample):
    """Attempts 0 and 2 know the word, the others guess; judge and distiller are the toy's."""
    if role == "agent" and sample % 2 == 0:
        family = re.search(r"of the (\w+) family", messages[1]["content"]).group(1)
        return f"Action: say {ToyEnv(instructions='', max_steps=5).word(family)}"
    return toy_script.play(messages, role, sample)
