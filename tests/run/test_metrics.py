"""From rows to numbers."""

from __future__ import annotations

import json
from statistics import median

import pytest
from conftest import read_json
from scipy.stats import binomtest

from analysis.cells import make_cells, rows_of
from analysis.load import load_runs
from core.proportions import difference, wilson
from core.run.display import facts_of
from core.run.keys import differences
from core.run.metrics import summarise
from core.types import Usage


@pytest.mark.parametrize(("k", "n"), [(0, 40), (36, 40), (40, 40), (1, 3), (17, 500)])
def test_wilson_is_scipys(k, n):
    interval = binomtest(k, n).proportion_ci(method="wilson")
    assert wilson(k, n) == pytest.approx([interval.low, interval.high], abs=1e-4)
    assert wilson(0, 0) is None


def test_a_difference_of_proportions_is_newcombes():
    """His table II: 56 of 70 against 48 of 80 by method 10 is 0.0524 to 0.3339, 9 of 10 against 3 of 10 0.1705 to
    0.8090, 10 of 10 against 0 of 10 0.6075 to 1."""
    for (n, won, other_n, other_won), ends in (
        ((70, 56, 80, 48), (0.2, 0.0524, 0.3339)),
        ((10, 9, 10, 3), (0.6, 0.1705, 0.8090)),
        ((10, 10, 10, 0), (1.0, 0.6075, 1.0)),
    ):
        assert difference(n, won, other_n, other_won) == pytest.approx(ends, abs=5e-5)
    assert difference(0, 0, 10, 3) is difference(10, 3, 0, 0) is None


def row(status, label=None, kind="", steps=2, cost=0.5):
    usage = {"calls": 1, "prompt_tokens": 10, "completion_tokens": 5, "cost_usd": cost}
    trajectory = {
        "gold": "",
        "ended_by": "infra_error" if status == "infra_error" else "end",
        "success": status == "success",
        "error": "timeout: too slow",
        "steps": [{"text": "x", "valid": True, "finish_reason": "stop"}] * steps,
    }
    verdict = {"label": label, "source": "llm" if label else "none", "parsed": True, "truncated": False}
    return {
        "index": 0,
        "task_id": "t",
        "query": "?",
        "status": status,
        "task_type": kind,
        "reward": float(status == "success"),
        "verdict": verdict,
        "verdicts": [verdict],
        "selection": None,
        "trajectories": [trajectory],
        "chosen": 0,
        "lessons": [],
        "n_dropped": 0,
        "n_truncated": 0,
        "retrieved": [],
        "learning_errors": [],
        "usage": {"agent": usage, "judge": usage},
    }


def test_an_infra_error_is_in_no_denominator():
    rows = [row("success", "success"), row("failure", "success"), row("infra_error", steps=9)]
    s = summarise(rows, n_tasks=4, wall_s=1.5)
    assert (s["n"], s["n_success"], s["success_rate"], s["n_infra_error"]) == (2, 1, 0.5, 1)
    assert (s["complete"], s["n_tasks"], s["mean_steps"], s["judge_agreement"]) == (False, 4, 2.0, 0.5)
    assert s["tokens"] == {"agent": 45, "judge": 45, "total": 90}
    assert s["cost_usd"] == 3.0


def test_an_unknown_price_is_null_and_never_zero():
    assert summarise([row("success"), row("success", cost=None)], 2)["cost_usd"] is None


def test_replies_that_state_no_answer_are_counted_where_the_env_tells():
    rows = [row("failure"), row("failure"), row("success"), row("infra_error")]
    for given, stated in zip(rows, (False, None, True, False)):
        given["trajectories"][0]["info"] = {} if stated is None else {"stated": stated}
    assert summarise(rows, 4)["n_unstated"] == 1


def test_nothing_finished_is_no_rate():
    s = summarise([row("infra_error")], 3)
    assert (s["n"], s["success_rate"], s["ci95"], s["judge_agreement"], s["mean_steps"]) == (0, None, None, None, None)


def test_types_are_told_apart_when_there_are_several():
    s = summarise([row("success", kind="a"), row("failure", kind="b"), row("failure", kind="b") | {"task_id": "u"}], 3)
    ends = pytest.approx(wilson(0, 2), abs=1e-4)
    assert s["by_type"]["b"] == {"n": 2, "n_success": 0, "success_rate": 0.0, "ci95": ends}
    assert summarise([row("success", kind="a")], 1)["by_type"] == {}


def test_a_success_costs_what_all_tasks_cost():
    rows = [row("success"), row("success"), row("failure"), row("infra_error")]
    rows[0] |= {"lessons": [{}, {}], "retrieved": [{"n_items": 3, "n_shown": 2}, {"n_items": 1, "n_shown": 1}]}
    rows[2] |= {"lessons": [{}], "retrieved": [{"n_items": 3, "n_shown": 3}]}
    s = summarise(rows, 4, wall_s=9.0, rounds=Usage(cost_usd=0.5))
    assert (s["n_lessons"], s["lessons_per_100"], s["shown_per_task"]) == (3, 100.0, 2.0)
    assert (s["cost_usd"], s["cost_usd_per_success"]) == (4.5, 2.25)
    assert (s["wall_s"], s["wall_s_per_success"]) == (9.0, 4.5)
    facts = dict(facts_of(s | {"calls": {}, "stream": {}, "by_pass": []}))
    assert facts["success"].startswith("66.7 %   (2 of 3), 95 % interval ")
    assert facts["not complete"] == "3 of 4 tasks"
    assert facts["lessons"] == "3 learned, 2.00 shown per task"
    assert facts["spent"].endswith(" tokens, 4.5000 USD (2.2500 a success), 9.0 s")
    assert facts["broken (not counted)"] == "1"


def test_the_table_of_a_run_has_what_a_person_needs_and_no_zeros():
    rows = [row("success", kind=kind) for kind in ("1", "2", "geometry of the plane", "number theory and counting")]
    facts = dict(facts_of(summarise(rows, 4) | {"stream": {}, "by_pass": []}))
    assert list(facts) == ["success", "mean steps", "spent", "by type"], facts
    lines = facts["by type"].split("\n")
    assert lines[0] == "level 1 100.0 % of 1   level 2 100.0 % of 1"
    assert len(lines) == 3 and max(map(len, lines)) <= 62


def test_what_is_not_known_of_a_success_is_null():
    s = summarise([row("failure")], 1, wall_s=2.0)
    assert (s["cost_usd_per_success"], s["wall_s_per_success"], s["shown_per_task"]) == (None, None, 0.0)
    assert summarise([row("success", cost=None)], 1)["cost_usd_per_success"] is None
    nothing = summarise([], 1)
    assert [nothing[key] for key in ("lessons_per_100", "shown_per_task", "cost_usd_per_success")] == [None] * 3


def timings_of(run):
    return [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]


def test_the_summary_and_the_tables_say_the_same(toy_runs):
    for run in ("none-0", "bank-0", "par-0"):
        summary = read_json(toy_runs / run / "summary.json")
        [cell] = rows_of(make_cells(load_runs([toy_runs / run])).table)
        assert cell["lessons_per_100"] == summary["lessons_per_100"]
        assert cell["cost_per_success"] == summary["cost_usd_per_success"]
        timings = timings_of(toy_runs / run)
        assert len(timings) == summary["n_tasks"]
        assert all(0 <= timing["retrieve_s"] < timing["wall_s"] + 1e-4 for timing in timings)
    bank, none = (median(timing["retrieve_s"] for timing in timings_of(toy_runs / run)) for run in ("bank-0", "none-0"))
    assert bank > none  # a search, and no call at all


def test_differences_name_the_leaves():
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == ["a.c: 2 -> 3", "d: None -> 4"]


def test_a_task_that_the_stream_repeats_is_one_in_the_interval():
    """Four tasks in two passes, of which two are solved in both: Wilson's interval of 2 of 4, not of 4 of 8."""
    rows = [row("success" if n % 4 < 2 else "failure") | {"task_id": f"t{n % 4}"} for n in range(8)]
    s = summarise(rows, 8)
    assert (s["n"], s["success_rate"]) == (8, 0.5)
    assert s["ci95"] == [0.15, 0.85]  # 1/2 -+ 1.96 * sqrt(1 / 16 + 1.96^2 / 64) / (1 + 1.96^2 / 4)
