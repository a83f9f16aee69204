"""Every call is accounted for: the log, the totals, the budgets."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from conftest import TOY, read_json, read_rows

from core.errors import InfraError, OverBudget, StopRun, UserError
from core.jsonl import JsonLines
from core.models.base import Reply, Role
from core.models.meter import Budget, Meter, account_of
from core.models.offline import ScriptedModel
from core.types import Task, Usage

HELLO = [{"role": "user", "content": "hello there"}]


def mumble(messages, role, sample):
    return "hm"


def calls_of(run_dir):
    return [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]


def role(meter, script=lambda messages, role, sample: "one two three", name="agent"):
    return Role(name=name, llm=ScriptedModel(script=script), temperature=0.5, max_tokens=7, meter=meter)


def test_a_run_logs_every_call_and_the_summary_adds_them_up(here):
    run_dir, _ = here(*TOY, "limit=12")
    calls, rows, summary = calls_of(run_dir), read_rows(run_dir), read_json(run_dir / "summary.json")
    for name in ("agent", "judge", "extractor"):
        mine = [call for call in calls if call["role"] == name]
        assert [call["task"] for call in mine] == [row["task_id"] for row in rows]
        logged = sum(c["usage"]["prompt_tokens"] + c["usage"]["completion_tokens"] for c in mine)
        assert logged == summary["tokens"][name] > 0
        assert summary["calls"][name]["calls"] == len(mine) == 12
    assert [call["text"] for call in calls if call["role"] == "agent"] == [
        row["trajectories"][0]["steps"][0]["text"] for row in rows
    ]
    embedded = [call for call in calls if call["role"] == "embedder"]
    assert len(embedded) == len({row["query"] for row in rows})  # each text once
    assert summary["calls"]["total"]["calls"] == len(calls)


def test_a_failed_call_is_logged_with_its_kind(tmp_path):
    def broken(messages, role, sample):
        raise InfraError("too slow", "timeout")

    meter = Meter(log=JsonLines(tmp_path / "calls.jsonl"))
    with pytest.raises(InfraError):
        role(meter, broken).chat(HELLO, task="t")
    [call] = calls_of(tmp_path)
    assert (call["error"], call["usage"], call["task"]) == ("timeout: too slow", None, "t")
    assert meter.totals()["agent"]["errors"] == 1


def test_totals_and_budget_go_on_over_starts_and_a_torn_line(tmp_path):
    log = JsonLines(tmp_path / "calls.jsonl")
    meter = Meter(log=log, run=Budget(calls=3))
    for _ in range(2):
        role(meter).chat(HELLO)
    before = meter.totals()
    log.close()
    with (tmp_path / "calls.jsonl").open("a") as file:
        file.write('{"schema": 1, "role": "ag')
    again = Meter(log=JsonLines(tmp_path / "calls.jsonl"), run=Budget(calls=3))
    assert again.totals() == before
    role(again).chat(HELLO)
    with pytest.raises(OverBudget, match=r"budget.run.calls=3 \(3 used\)"):
        role(again).chat(HELLO)
    assert len(calls_of(tmp_path)) == 3


def test_a_price_that_is_unknown_makes_the_sum_unknown():
    meter = Meter()
    facts = {"role": "agent", "task": "t", "sample": 0, "requested": "m", "messages": HELLO}
    for cost in (0.5, None):
        meter.add(facts, Reply(text="", usage=Usage(calls=1, cost_usd=cost), finish_reason="stop", model="m"), 0.1)
    assert meter.totals()["agent"]["cost_usd"] is None


def test_a_budget_in_dollars_needs_a_price():
    meter = Meter(run=Budget(usd=1.0))
    facts = {"role": "agent", "task": "t", "sample": 0, "requested": "m", "messages": HELLO}
    with pytest.raises(StopRun, match="price_per_mtok"):
        meter.add(facts, Reply(text="", usage=Usage(calls=1, cost_usd=None), finish_reason="stop", model="m"), 0.1)


@pytest.mark.parametrize("limit", ["tokens=0", "calls=-1", "usd=0", "wall_s=0"])
def test_a_budget_of_nothing_is_refused(here, limit):
    with pytest.raises(UserError, match="allows nothing"):
        here(*TOY, f"budget.run.{limit}")


@pytest.mark.parametrize("limit", ["calls=50", "tokens=9000"])
def test_the_runs_budget_ends_it_and_a_larger_one_goes_on_to_the_same_result(here, tmp_path, limit):
    whole, headline = here(*TOY, run_dir=tmp_path / "whole")
    run_dir, _ = here(*TOY, f"budget.run.{limit}", run_dir=tmp_path / "cut")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert 0 < len(rows) < 40
    assert [row["status"] == "stopped" for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1]["records"] == []
    assert (summary["complete"], summary["n_stopped"], summary["n"]) == (False, 1, len(rows) - 1)
    before = (run_dir / "episodes.jsonl").read_bytes()
    here(*TOY, f"budget.run.{limit}", run_dir=run_dir)  # nothing left to spend: nothing changes
    assert (run_dir / "episodes.jsonl").read_bytes() == before
    assert here(*TOY, run_dir=run_dir)[1] == headline
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()


def test_side_by_side_the_runs_budget_leaves_a_clean_end_too(here, tmp_path):
    more = (*TOY, "workflow=vanilla", "max_concurrency=8", "llm.delay_s=0.002")
    whole, _ = here(*more, run_dir=tmp_path / "whole")
    run_dir, _ = here(*more, "budget.run.calls=30", run_dir=tmp_path / "cut")
    rows = read_rows(run_dir)
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert [row["status"] for row in rows].count("stopped") == 1
    here(*more, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()


def test_the_episodes_budget_ends_the_attempt_which_is_recorded_as_it_stands(here):
    mumbles = "llm.script.path=test_calls.mumble"  # never an action, so that an attempt takes all its steps
    run_dir, _ = here(*TOY, mumbles, "workflow=vanilla", "budget.episode.calls=2", "max_steps=5", "limit=4")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert [row["status"] for row in rows] == ["failure"] * 4
    assert {row["trajectories"][0]["ended_by"] for row in rows} == {"budget"}
    assert {len(row["trajectories"][0]["steps"]) for row in rows} == {2}
    assert (summary["n"], summary["n_budget"], summary["complete"]) == (4, 4, True)


def test_an_attempt_that_the_episodes_budget_cut_is_learned_from_like_any_other(here):
    mumbles = "llm.script.path=test_calls.mumble"
    run_dir, _ = here(*TOY, mumbles, "budget.episode.calls=2", "max_steps=5", "limit=2")
    for row in read_rows(run_dir):
        assert (row["status"], row["trajectories"][0]["ended_by"]) == ("failure", "budget")
        assert row["learning_errors"] == []
        assert row["verdict"]["source"] == "llm"
    calls = Counter(call["role"] for call in calls_of(run_dir))
    assert (calls["agent"], calls["judge"], calls["extractor"]) == (4, 2, 2)


def test_a_frozen_run_stops_at_its_budget_wherever_it_is_reached(here, tmp_path):
    bank = here(*TOY, "limit=8", run_dir=tmp_path / "train")[0] / "bank.sqlite"
    frozen = (*TOY, "setting=frozen", f"memory.path={bank}", "limit=8", "seed=1")
    for calls in (3, 4, 5, 6):
        run_dir, _ = here(*frozen, f"budget.run.calls={calls}", run_dir=tmp_path / f"cut{calls}")
        states = [row["status"] for row in read_rows(run_dir)]
        assert states.count("stopped") == 1 and states[-1] == "stopped" and "infra_error" not in states
        here(*frozen, run_dir=run_dir)
        assert "infra_error" not in [row["status"] for row in read_rows(run_dir)]
        assert len(read_rows(run_dir)) == 8


def test_a_note_beyond_the_episodes_budget_leaves_the_round_before_it(here):
    words = ("workflow=matts_sequential", "r=1", "refine=continue", "budget.episode.calls=1", "limit=6")
    rows = read_rows(here(*TOY, *words)[0])
    assert {row["status"] for row in rows} <= {"success", "failure"}
    assert {len(row["trajectories"]) for row in rows} == {1}


def test_many_threads_lose_no_call(tmp_path):
    meter = Meter(log=JsonLines(tmp_path / "calls.jsonl"))
    agent = role(meter, lambda messages, role, sample: messages[0]["content"])
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda n: agent.chat([{"role": "user", "content": f"call {n}"}], task=f"t{n}"), range(500)))
    assert sorted(int(call["text"].split()[1]) for call in calls_of(tmp_path)) == list(range(500))
    assert meter.totals()["agent"]["calls"] == 500


def test_half_a_surrogate_pair_is_replaced_before_it_reaches_a_provider_or_a_file(tmp_path):
    meter = Meter(log=JsonLines(tmp_path / "calls.jsonl"))
    assert role(meter, lambda messages, role, sample: "a\ud800b").chat(HELLO).text == "a?b"
    assert calls_of(tmp_path)[0]["text"] == "a?b"


def test_what_a_killed_start_spent_on_an_episode_stays_spent():
    meter = Meter(episode=Budget(calls=2))
    meter.begin("t", Usage(calls=2), role="agent")
    meter.check("t", "judge")  # whose calls the budget of an attempt does not hold
    with pytest.raises(OverBudget, match="calls=2"):
        meter.check("t", "agent")
    meter.begin("t")
    meter.check("t", "agent")


def test_attempts_that_end_after_another_was_refused_are_kept(here, monkeypatch, tmp_path):
    """Attempt 0 needs a second call, which the run's budget refuses while the first calls of the others go on."""
    from envs import toy_script

    words = (*TOY, "workflow=matts_parallel", "memory=none", "select=first", "limit=1")
    original, check, refused, at_once = toy_script.play, Meter.check, Event(), Barrier(3, timeout=20)
    made = []

    def play(messages, role, sample):
        made.append(sample)
        if sample == 0 and len(messages) == 2:
            return "Thought: hm.\nAction: wait"
        return original(messages, role, sample)

    def meets(messages, role, sample):
        if len(messages) == 2:
            at_once.wait()
        assert sample == 0 or refused.wait(20)
        return play(messages, role, sample)

    def checks(self, task, role):
        try:
            check(self, task, role)
        except OverBudget:
            refused.set()
            raise

    monkeypatch.setattr("envs.toy_script.play", play)
    whole = here(*words, run_dir=tmp_path / "whole")[0] / "episodes.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("envs.toy_script.play", meets)
        patch.setattr(Meter, "check", checks)
        run_dir, _ = here(*words, "budget.run.calls=1", run_dir=tmp_path / "cut")
    [row] = read_rows(run_dir)
    assert (row["status"], [t["ended_by"] for t in row["trajectories"]]) == ("stopped", ["budget", "end", "end"])
    made.clear()
    here(*words, run_dir=run_dir)
    assert set(made) == {0}  # the others are not paid for again
    assert (run_dir / "episodes.jsonl").read_bytes() == whole.read_bytes()


def test_two_visits_of_a_task_at_once_have_a_budget_each(here, monkeypatch):
    at_once = Barrier(2, timeout=20)

    def play(messages, role, sample):
        if len(messages) == 2:
            at_once.wait()  # passes only when both visits have begun
        return "hm"  # no action, so that an attempt takes all its steps

    monkeypatch.setattr("envs.toy_script.play", play)
    keys = ("limit=1", "stream.passes=2", "max_concurrency=2", "budget.episode.calls=3", "max_steps=5")
    run_dir, _ = here(*TOY, "workflow=vanilla", *keys)
    rows = read_rows(run_dir)
    assert [len(row["trajectories"][0]["steps"]) for row in rows] == [3, 3]
    assert {call["task"] for call in calls_of(run_dir)} == {rows[0]["task_id"]}


def test_a_refusal_of_the_runs_budget_is_told_to_its_own_visit():
    first, second = Task(id="t", query="Q"), Task(id="t", query="Q", visit=1)
    meter = Meter(run=Budget(calls=1))
    meter.begin(account_of(first))
    role(meter).chat(HELLO, task=account_of(first))
    with pytest.raises(OverBudget):
        role(meter).chat(HELLO, task=account_of(first))
    meter.begin(account_of(second))  # which does not take back that the first was refused
    assert meter.stopped("t")
    assert meter.stopped(account_of(second)) is None
