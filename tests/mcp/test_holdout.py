"""A fair comparison in daily use: the coin, the interval calculated by hand, and how often it errs."""

from __future__ import annotations

import io
import json
import math
import random
from contextlib import closing

import pytest
from mcp_kit import MODEL, here

from benchmarks.holdout_simulation import user
from core.errors import UserError
from core.types import UNJUDGED
from mcp_server import run_records
from mcp_server.__main__ import main
from mcp_server.extraction import QueueWorker
from mcp_server.holdout import FIRST, compare, more_runs, shows
from mcp_server.tools import MemoryTools

QUERY = "Make the invoice export skip cancelled orders"
LESSON = {"title": "Cancelled orders", "content": "Filter on the status."}


def test_the_coin_is_kept_and_falls_as_often_as_asked():
    drawn = [shows("key", f"task {n}", 0, 0.2) for n in range(5000)]
    assert drawn == [shows("key", f"task {n}", 0, 0.2) for n in range(5000)]
    assert abs(sum(drawn) / 5000 - 0.8) < 0.03
    assert drawn != [shows("another", f"task {n}", 0, 0.2) for n in range(5000)]
    assert len({shows("key", "the same task", n, 0.5) for n in range(20)}) == 2


def test_nothing_is_said_before_there_are_runs_of_both_kinds():
    found = compare([True] * 30 + [False] * (FIRST - 1), [1.0] * 39, [0.2] * 39, rates=True)
    assert (found.low, found.high, found.difference) == (None, None, None)
    assert (found.n_shown, found.n_held, found.with_memory) == (30, 9, 1.0) and more_runs(found, 0.2) is None


def test_the_difference_is_that_of_the_scores_by_hand():
    """Held out first and failed, then shown and solved; by turns. Each score is calculated here once more."""
    shown, values = [n % 2 == 1 for n in range(20)], [float(n % 2) for n in range(20)]
    sums, counts, scores = [1.0, 1.0], [2.0, 2.0], []
    for is_shown, value in zip(shown, values, strict=True):
        means = [sums[0] / counts[0], sums[1] / counts[1]]
        scores.append(means[1] - means[0] + (2 if is_shown else -2) * (value - means[is_shown]))
        sums[is_shown] += value
        counts[is_shown] += 1
    found = compare(shown, values, [0.5] * 20, rates=True)
    assert found.difference == pytest.approx(sum(scores) / 20)
    variance = (11 / 12 * 1 / 12 + 1 / 12 * 11 / 12) * 2
    rho = (-2 * math.log(0.05) + math.log(1 - 2 * math.log(0.05))) / 100
    half = math.sqrt(variance * 2 * (20 * rho + 1) / (400 * rho) * math.log(math.sqrt(20 * rho + 1) / 0.05))
    assert (found.low, found.high) == (pytest.approx(found.difference - half), pytest.approx(found.difference + half))
    assert found.low > 0 and more_runs(found, 0.5) > 0


def test_users_who_look_after_each_run_seldom_see_a_false_difference():
    """50 users at a rate of a half: 4 % err (benchmarks/holdout_simulation.py); 7 and more would be one in 200."""
    rng = random.Random(1)
    assert sum(bool(user(rng, 90, 0.3, 0.5, 0.0)["errs"]) for _ in range(50)) <= 6


def saved(path):
    with here(path) as (_, service):
        MemoryTools(service).save_lesson(QUERY, **LESSON)


def rows(path, *names):
    return [tuple(run[name] for name in names) for run in run_records.read(path)]


def test_a_server_shows_no_memory_to_a_share_of_the_tasks_and_compares_them(tmp_path, capsys):
    path = tmp_path / "b.sqlite"
    saved(path)
    with here(path, "server.holdout=0.5", "retrieval.min_score=null") as (_, service):
        tools, found = MemoryTools(service), []
        for n in range(60):
            task = f"{QUERY}, part {n}"
            answers = {tools.retrieve_memory(words, 1).text for words in (task, f" {task} ")}
            assert len(answers) == 1  # asked again, before it is said how the task ended
            found.append(answers != {"No lesson fits this task."})
            tools.save_lesson(task, f"Part {n}", f"Part {n} is done.", success=found[-1])
        assert len({tools.retrieve_memory(f"{QUERY}, part 0", 1).text for _ in range(9)}) == 1
    told = rows(path, "shown", "verdict", "label_source", "retrieved", "program")
    assert told[:60] == [(int(each), "success" if each else "failure", "client", 2 * each, "query") for each in found]
    assert len(told) == 61 and told[60][1] is None
    assert main(["runs", "--bank", str(path)]) == 0
    said = capsys.readouterr().out
    shown = sum(found) + told[60][0]
    assert f"compared by holdout: {shown} runs with memory, {61 - shown} without" in said
    assert "success (client): 100 % with memory, 0 % without: +" in said and "not judged: " in said


def hook(what, path, monkeypatch, event, *words):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(event)))
    options = ["--bank", str(path), "--embedder", "hashing-256", "server.holdout=0.5", "retrieval.min_score=null"]
    assert main(["hook", what, *options, *words]) == 0


def test_the_prompts_of_a_session_fall_alike_and_its_end_is_judged(tmp_path, monkeypatch, capfd):
    """By --check at once, else by the model of a server on the same bank, which need not know of the coin."""
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    path, log = tmp_path / "b.sqlite", tmp_path / "t.jsonl"
    saved(path)
    usage = {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 20}
    reply = {"role": "assistant", "content": "I filter on the status.", "id": "m1", "usage": usage}
    turns = [{"role": "user", "content": QUERY}, {"type": "assistant", "message": reply}]
    log.write_text("\n".join(map(json.dumps, turns)))
    for n in range(12):
        for prompt in (QUERY, "Now the other exports"):
            hook("retrieve", path, monkeypatch, {"prompt": prompt, "session_id": f"s{n}"})
        said = capfd.readouterr().out
        assert said.count("Filter on the status.") == 2 * rows(path, "shown")[n][0]
        check = [[], ["--check", "test -e t.jsonl"], ["--check", "false"]][n % 3]
        event = {"transcript_path": str(log), "session_id": f"s{n}", "cwd": str(tmp_path)}
        hook("extract", path, monkeypatch, event, *check)
    by_check = [("success", "client"), ("failure", "client")]
    assert rows(path, "verdict", "label_source") == [(None, None), *by_check] * 4
    with here(path, *MODEL) as (_, service), closing(QueueWorker(service)) as worker:
        worker._work()
    assert rows(path, "verdict", "label_source") == [("success", "llm"), *by_check] * 4
    assert {shown for (shown,) in rows(path, "shown")} == {0, 1} and None not in rows(path, "duration_s")
    for wrong in (-5, 0, 10**30, None):
        run_records.end(path, QUERY, "", "s0", UNJUDGED, wrong)
    assert set(rows(path, "tokens")) == {(1020,)}  # as the transcript says


def test_a_session_whose_check_takes_too_long_is_learned_from_without_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("REASONINGBANK_SETTINGS", "none")
    path, log = tmp_path / "b.sqlite", tmp_path / "t.jsonl"
    saved(path)
    turns = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": "I filter on the status."}]
    log.write_text("\n".join(map(json.dumps, turns)))
    event = {"transcript_path": str(log), "session_id": "s", "cwd": str(tmp_path)}
    hook("extract", path, monkeypatch, event, "--check", "sleep 20", "--check-timeout", "0.2")
    assert "--check took longer than 0.2 s (--check-timeout)" in capfd.readouterr().err
    with here(path, *MODEL) as (_, service), closing(QueueWorker(service)) as worker:
        worker._work()
        assert len(service.bank_for("").records()) == 2


def test_where_no_coin_can_be_tossed_one_sentence_says_so(tmp_path):
    bank, database = tmp_path / "b.sqlite", "postgresql://nobody@localhost/none"
    for path, share, tools, why in (
        (bank, 0, "core", r"server\.holdout=0: give a share between"),
        (bank, 1, "core", "give a share between"),
        (bank, "often", "core", "give a share between"),
        (bank, 0.2, "ace", "has no retrieve_memory"),
        (database, 0.2, "core", r"server\.holdout: .* is a database"),
    ):
        with pytest.raises(UserError, match=why), here(path, f"server.holdout={share}", tools=tools):
            pass


def run_of(shown, success, holdout=0.5, **more):
    row = {"shown": int(shown), "holdout": holdout, "verdict": "success" if success else "failure"}
    return row | {"exit_status": 0, "label_source": "check", "duration_s": 1.0, "tokens": None} | more


def test_runs_that_the_user_broke_off_are_counted_for_both_kinds():
    """Without memory the command hangs, and is broken off, where it would fail: what is left are its successes."""
    runs = [run_of(n % 2, True) for n in range(24)]
    runs += [run_of(False, False, exit_status=run_records.INTERRUPTED) for _ in range(30)] + [run_of(True, False)]
    said = run_records.comparison(runs)
    assert said[0] == "compared by holdout: 13 runs with memory, 12 without"
    assert said[1] == "  broken off by you, and not counted: 0 of those with memory, 30 of those without"
    assert run_records.comparison([run for run in runs if run["exit_status"]])[1] == said[1]


def test_after_another_share_the_rates_of_the_two_kinds_are_not_held_against_each_other():
    """Memory changes nothing: first 20 of 100 are solved, at a half held out, then 80 of 100, at a tenth. 82 of 140
    with memory and 18 of 60 without would be 59 and 30 %."""
    early = [run_of(n % 2, n % 10 < 2, 0.5) for n in range(100)]
    late = [run_of(n % 10, n // 10 % 10 < 8, 0.1) for n in range(100)]
    said = "\n".join(run_records.comparison(early + late))
    assert "success (check): the share held out changed, so no rates are given: " in said and "%" not in said
    found = compare(
        *zip(*((bool(r["shown"]), r["verdict"] == "success", r["holdout"]) for r in early + late)), rates=True
    )
    assert abs(found.difference) < 0.05 and found.with_memory - found.without_memory > 0.25
    assert "success (check): 20 % with memory, 20 % without" in "\n".join(run_records.comparison(early))


def test_what_the_held_out_tasks_cost_is_said_with_its_interval():
    """Nothing was shown: 8 of 20 solved with memory, 6 of 20 without, at a half held out."""
    runs = [run_of(n % 2, n // 2 < (8 if n % 2 else 6)) for n in range(40)]
    found = compare([bool(r["shown"]) for r in runs], [r["verdict"] == "success" for r in runs], [0.5] * 40, rates=True)
    least, about, most = (f"{20 * each:.1f}" for each in (found.low, found.difference, found.high))
    assert float(least) < 0 < float(most)
    said = run_records.comparison(runs)
    assert f"  the runs without memory cost about {about} solved tasks ({least} to {most})" in said


def test_each_share_held_out_is_estimated_by_itself():
    """Memory changes nothing. First every task is solved, at a half held out, then half of them, at a tenth. With one
    variance for both times 12 of these 40 users saw a difference; the interval promises 2."""
    n, rng = 200, random.Random(1)
    holdouts = [0.5] * 100 + [0.1] * 100
    n_erring = 0
    for _ in range(40):
        shown = [rng.random() >= each for each in holdouts]
        values = [float(rng.random() < (1.0 if place < 100 else 0.5)) for place in range(n)]
        looks = (compare(shown[:end], values[:end], holdouts[:end], rates=True) for end in range(20, n + 1, 10))
        n_erring += any(look.low > 0 or look.high < 0 for look in looks if look.low is not None)
    assert n_erring <= 4
    both = compare(shown, values, holdouts, rates=True)
    early, late = (compare(shown[own], values[own], holdouts[own], rates=True) for own in (slice(100), slice(100, n)))
    assert both.difference == pytest.approx((early.difference + late.difference) / 2)
