"""stream.split_by=type: a bank for each type of task, its streams at once, and the same result as one after another."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections import Counter

import forkserver
import pytest
from conftest import TOY, command, read_json, read_rows

from analysis.audit import audit
from analysis.runs import read_run
from core.errors import InfraError, StopRun, UserError
from core.memory.open import read_records
from core.run.ahead import Ahead
from core.run.records import episode_row
from core.seeding import derive_seed
from workflows.split_stream import episode_of

APART = (*TOY, "memory.domain=type", "retrieval.domain=same")
SPLIT = (*APART, "stream.split_by=type")
TYPES = ["amber", "birch", "cedar", "dune"]
OF_TIME = ("wall_s", "wall_s_per_success", "calls")


@pytest.fixture(scope="module")
def one_after_another(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    forkserver.run(command(*SPLIT, f"run_dir={folder}"), check=True, capture_output=True, timeout=120)
    return folder


def lessons(bank):
    """The bank's records in their order, without the clock."""
    return [
        {name: value for name, value in vars(r).items() if name != "created_at"} for r in read_records(bank, "default")
    ]


def banks(run_dir):
    return {path.stem: lessons(path) for path in sorted((run_dir / "banks").glob("*.sqlite"))}


def same(run_dir, other):
    assert (run_dir / "episodes.jsonl").read_bytes() == (other / "episodes.jsonl").read_bytes()
    assert banks(run_dir) == banks(other)
    one, two = (read_json(path / "summary.json") for path in (run_dir, other))
    assert {key: one[key] for key in one if key not in OF_TIME} == {key: two[key] for key in two if key not in OF_TIME}


@pytest.mark.parametrize("workers", [2, 4, 9])
def test_several_streams_at_once_give_the_bytes_of_one_after_another(here, tmp_path, one_after_another, workers):
    run_dir, _ = here(*SPLIT, f"max_concurrency={workers}", run_dir=tmp_path / "run")
    same(run_dir, one_after_another)
    one, other = (read_json(path / "summary.json")["calls"] for path in (run_dir, one_after_another))
    assert {role: made["calls"] for role, made in one.items()} == {role: made["calls"] for role, made in other.items()}
    assert [*banks(run_dir)] == TYPES
    assert all(len(found) == 10 and {r["domain"] for r in found} == {name} for name, found in banks(run_dir).items())
    assert not list(run_dir.glob("ahead.jsonl")) and not list(run_dir.glob("bank.sqlite"))
    assert not audit(read_run(run_dir))["broken"]


def test_it_is_the_run_with_one_bank_in_which_types_share_nothing(here, tmp_path, one_after_another):
    plain, _ = here(*APART, run_dir=tmp_path / "plain")
    assert (plain / "episodes.jsonl").read_bytes() == (one_after_another / "episodes.jsonl").read_bytes()
    assert "split_by" not in read_json(plain / "summary.json")["stream"]
    assert read_json(one_after_another / "summary.json")["stream"]["split_by"] == "type"


@pytest.fixture
def meeting(monkeypatch):
    """The first call of each type waits until those of all other types have begun: else it breaks."""
    from envs import toy_script

    original, barrier, met = toy_script.play, threading.Barrier(len(TYPES)), set()

    def play(messages, role, sample):
        name = (
            next((name for name in TYPES if f"{name} box" in messages[1]["content"]), None) if role == "agent" else None
        )
        if name is not None and name not in met:
            met.add(name)
            barrier.wait(timeout=60)
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    return met


def test_the_streams_really_run_at_once(here, tmp_path, meeting):
    run_dir, _ = here(*SPLIT, "max_concurrency=4", "stream.order=by_type", "limit=40", run_dir=tmp_path / "run")
    assert len(meeting) == 4
    assert read_json(run_dir / "summary.json")["complete"]


def test_killed_at_random_moments_it_goes_on_and_keeps_what_was_ahead(tmp_path):
    words = (*SPLIT, "stream.order=by_type", "workflow=matts_parallel", "llm.delay_s=0.01")
    whole, run_dir, rng, ahead = tmp_path / "whole", tmp_path / "run", random.Random(3), []
    forkserver.run(command(*words, f"run_dir={whole}"), check=True, capture_output=True, timeout=240)
    for _ in range(6):
        process = forkserver.Popen(
            command(*words, "max_concurrency=4", f"run_dir={run_dir}"), stdout=subprocess.DEVNULL, stderr=-3
        )
        before, end = written(run_dir), time.monotonic() + 60
        until = before + rng.randint(1, 60_000)
        while process.poll() is None and written(run_dir) < until and time.monotonic() < end:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        ahead.append(len(Ahead(run_dir / "ahead.jsonl").rows) if (run_dir / "ahead.jsonl").exists() else 0)
    assert max(ahead) > 2  # the streams were at different places, and what they had done was kept
    done = forkserver.run(command(*words, "max_concurrency=4", f"run_dir={run_dir}"), capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    same(run_dir, whole)
    assert not (run_dir / "ahead.jsonl").exists()


def written(run_dir):
    files = (run_dir / name for name in ("episodes.jsonl", "ahead.jsonl"))
    return sum(file.stat().st_size for file in files if file.exists())


@pytest.fixture
def breaking(monkeypatch):
    """breaking(NAME, ...): the next call of the agent about each of these boxes breaks."""
    from envs import toy_script

    original, left = toy_script.play, []

    def play(messages, role, sample):
        if role == "agent" and (name := next((n for n in left if n in messages[1]["content"]), None)):
            left.remove(name)
            raise InfraError("oops", "server")
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    return lambda *names: left.extend(names)


def test_what_breaks_is_tried_again_at_the_end_as_one_after_another(here, breaking, tmp_path):
    for workers, name in ((1, "one"), (4, "four")):
        breaking("birch box: box 1 ", "dune box: box 2 ")
        here(*SPLIT, "llm.fallbacks=null", f"max_concurrency={workers}", run_dir=tmp_path / name)
    rows = read_rows(tmp_path / "four")
    assert [row["status"] for row in rows].count("infra_error") == 2 and len(rows) == 42
    same(tmp_path / "four", tmp_path / "one")


def test_tasks_that_break_in_a_row_end_the_run_and_the_same_command_goes_on(here, breaking, tmp_path):
    words = (*SPLIT, "stream.order=by_type", "max_concurrency=4")
    breaking(*(f"amber box: box {n} " for n in (1, 2, 3)))
    with pytest.raises(StopRun, match="3 tasks in a row broke"):
        here(*words, run_dir=tmp_path / "run")
    here(*words, run_dir=tmp_path / "run")
    assert read_json(tmp_path / "run/summary.json")["complete"]


def test_an_outage_breaks_no_more_of_a_type_than_would_end_the_run(here, breaking, monkeypatch, tmp_path):
    from envs import toy_script

    first = min(TYPES, key=lambda name: (derive_seed(0, name, "stream"), name))
    breaking(*(f"{name} box: box {n} " for name in TYPES if name != first for n in range(1, 11)))
    broken = toy_script.play
    monkeypatch.setattr("envs.toy_script.play", lambda *words: time.sleep(0.1) or broken(*words))
    with pytest.raises(StopRun, match="3 tasks in a row broke"):
        here(*SPLIT, "stream.order=by_type", "max_concurrency=4", run_dir=tmp_path / "run")
    ahead = Ahead(tmp_path / "run/ahead.jsonl").rows  # some of which are in episodes.jsonl already
    rows = ahead | {row["index"]: row for row in read_rows(tmp_path / "run")}
    each = Counter(row["task_type"] for row in rows.values() if row["status"] == "infra_error")
    assert max(each.values()) == 3 and len(each) >= 2


def test_an_error_in_one_stream_ends_all_at_once_and_the_same_command_goes_on(here, monkeypatch, tmp_path):
    from envs import toy_script

    original, words = toy_script.play, (*SPLIT, "stream.order=by_type", "max_concurrency=4", "llm.delay_s=0.05")
    last = read_rows(here(*words, run_dir=tmp_path / "whole")[0])[-1]["query"]
    n_calls = 0

    def play(messages, role, sample):
        nonlocal n_calls
        n_calls += 1
        if role == "agent" and last.split(": ")[0].removeprefix("Open the ") in messages[1]["content"]:
            raise RuntimeError("a mistake in a part")  # of the type that comes last
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    with pytest.raises(RuntimeError, match="a mistake in a part"):
        here(*words, run_dir=tmp_path / "run")
    assert n_calls < 20  # 120 without the error
    monkeypatch.setattr("envs.toy_script.play", original)
    here(*words, run_dir=tmp_path / "run")
    same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("calls", [40, 130])
def test_a_budget_ends_all_streams_and_a_larger_one_goes_on(here, tmp_path, one_after_another, calls):
    run_dir, _ = here(*SPLIT, "max_concurrency=4", f"budget.run.calls={calls}", run_dir=tmp_path / "run")
    assert not read_json(run_dir / "summary.json")["complete"]
    assert read_rows(run_dir)[-1]["status"] == "stopped"
    here(*SPLIT, "max_concurrency=4", run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == (one_after_another / "episodes.jsonl").read_bytes()
    assert banks(run_dir) == banks(one_after_another)


def test_it_grows(here, tmp_path, one_after_another):
    here(*SPLIT, "max_concurrency=4", "limit=13", run_dir=tmp_path / "run")
    here(*SPLIT, "max_concurrency=4", run_dir=tmp_path / "run")
    assert banks(tmp_path / "run") == banks(one_after_another)
    assert read_rows(tmp_path / "run") == read_rows(one_after_another)


def test_where_nothing_is_learned_it_changes_nothing(here, tmp_path):
    words = ("workflow=vanilla", "max_concurrency=4", "limit=8")
    here(*TOY, *words, run_dir=tmp_path / "plain")
    here(*TOY, *words, "stream.split_by=type", run_dir=tmp_path / "split")
    assert (tmp_path / "plain/episodes.jsonl").read_bytes() == (tmp_path / "split/episodes.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((*TOY, "stream.split_by=type"), "give memory.domain=type retrieval.domain=same as well"),
        ((*SPLIT, "memory.path=other.sqlite"), "makes its own banks: leave out memory.path"),
        ((*SPLIT, "stream.batch=4"), "leave out stream.batch"),
        ((*SPLIT, "limit=1"), "all tasks are of one type"),
        ((*APART, "stream.split_by=site"), "stream.split_by=site: choose null or type"),
    ],
)
def test_what_cannot_be_split_is_refused(here, tmp_path, words, why):
    with pytest.raises(UserError, match=why):
        here(*words, run_dir=tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.jsonl"))


def test_an_episode_is_read_back_as_it_was(one_after_another):
    for row in read_rows(one_after_another):
        assert _plain(episode_row(episode_of(row))) == row


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def test_a_run_of_before_this_key_goes_on(here, tmp_path):
    here(*TOY, "limit=3", run_dir=tmp_path / "run")
    path = tmp_path / "run/manifest.json"
    manifest = read_json(path)
    for config in (manifest["config"], manifest["fingerprint"]["config"]):
        del config["stream"]["split_by"]
    path.write_text(json.dumps(manifest))
    here(*TOY, "limit=5", run_dir=tmp_path / "run")
    assert len(read_rows(tmp_path / "run")) == 5
