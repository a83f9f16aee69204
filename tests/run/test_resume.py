"""A run survives kill -9 at any moment, a torn line, a lost bank and a full disk, and continues to the same bytes."""

from __future__ import annotations

import hashlib
import json
import random
import resource
import shutil
import signal
import sqlite3
import sys
import time
from contextlib import closing

import forkserver
import pytest
from conftest import REPO, TOY, command, read_json, read_rows

from benchmarks.kill_drill import killed_once
from core.errors import StopRun, UserError


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    forkserver.run(command(*TOY, "limit=40", f"run_dir={folder}"), check=True, capture_output=True, timeout=120)
    return (folder / "episodes.jsonl").read_bytes()


def kill_often(run_dir, words, undisturbed, kills, step):
    """Kill a run at random moments until it was killed that often; returns the lengths its episodes had by then."""
    episodes, rng = run_dir / "episodes.jsonl", random.Random(20)
    killed, lengths = 0, set()
    while killed < kills:
        # Half of the kills fall anywhere from the start on, half a moment after something was written.
        killed += killed_once(words, episodes, rng, step if killed % 2 else None, forkserver.Popen)
        lengths.add(episodes.stat().st_size if episodes.exists() else 0)
        if episodes.exists() and episodes.read_bytes() == undisturbed:
            shutil.rmtree(run_dir)  # it got through before the last kill: the rest falls on another run
    forkserver.run(words, check=True, capture_output=True, timeout=120)
    assert episodes.read_bytes() == undisturbed
    return lengths


def test_killed_six_times_at_random_moments(tmp_path, undisturbed):
    run_dir = tmp_path / "D"
    lengths = kill_often(run_dir, command(*TOY, "limit=40", f"run_dir={run_dir}"), undisturbed, 6, 12_000)
    assert len(lengths) > 2  # the kills did not all fall before the first episode
    assert read_json(run_dir / "summary.json")["n_success"] == 36


def test_scaling_killed_three_times_at_random_moments(here, tmp_path):
    words = (*TOY, "limit=9", "workflow=matts_parallel", "llm.delay_s=0.01", "stream.batch=3", "max_concurrency=2")
    whole = (here(*words, run_dir=tmp_path / "whole")[0] / "episodes.jsonl").read_bytes()
    run_dir = tmp_path / "D"
    lengths = kill_often(run_dir, command(*words, f"run_dir={run_dir}"), whole, 3, 40_000)
    assert len(lengths) > 1
    assert (run_dir / "rollouts.jsonl").read_bytes() == b""


SCALED = ["workflow=matts_parallel", "workflow=matts_sequential r=2", "arm=matts_parallel_alone k=2", "stream.batch=7"]


@pytest.mark.parametrize("arm", SCALED)
def test_a_run_that_stops_at_any_call_goes_on_to_the_same_bytes_and_pays_for_no_attempt_twice(
    here, monkeypatch, tmp_path, arm
):
    from envs import toy_script

    original = toy_script.play
    made: list[tuple] = []
    stop_at, calls = None, 0

    def play(messages, role, sample):
        nonlocal calls
        calls += 1
        if stop_at is not None and calls >= stop_at:
            raise StopRun("the server is gone")
        text = original(messages, role, sample)
        if role == "agent":
            made.append((messages[1]["content"], len(messages), sample))
        return text

    monkeypatch.setattr("envs.toy_script.play", play)
    words = (*TOY, *arm.split(), "limit=8", "max_concurrency=2")
    whole = (here(*words, run_dir=tmp_path / "whole")[0] / "episodes.jsonl").read_bytes()
    paid = sorted(made)
    for first in range(5, calls + 1, 37):
        run_dir = tmp_path / str(first)
        made.clear()
        for number in (first, 7, 3, None):  # three starts that end early, then one that does not
            stop_at, calls = number, 0
            try:
                here(*words, run_dir=run_dir)
            except StopRun:
                continue
        assert (run_dir / "episodes.jsonl").read_bytes() == whole
        assert sorted(made) == paid
        assert (run_dir / "rollouts.jsonl").read_bytes() == b""


SHORT = (*TOY, "limit=8")


def truncated(here, tmp_path, keep: int, tail: bytes = b""):
    """A short run as a kill after its first `keep` episodes leaves it, and its undisturbed bytes."""
    run_dir, _ = here(*SHORT, run_dir=tmp_path / "cut")
    path = run_dir / "episodes.jsonl"
    (run_dir / "summary.json").unlink()
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:keep]) + tail)
    return run_dir, whole


def forget_bank(run_dir):
    for path in run_dir.glob("bank.sqlite*"):
        path.unlink()


def test_a_torn_last_line_is_cut_off_and_its_task_runs_again(here, tmp_path):
    run_dir, whole = truncated(here, tmp_path, 8)
    (run_dir / "episodes.jsonl").write_bytes(whole[:-25])
    forget_bank(run_dir)  # the line comes before the record, so a bank never knows of a torn one
    here(*SHORT, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == whole


def test_a_bank_that_lost_records_is_rebuilt_from_the_episodes(here, tmp_path):
    run_dir, whole = truncated(here, tmp_path, 4)
    forget_bank(run_dir)
    here(*SHORT, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == whole


def test_episodes_removed_under_their_bank_are_noticed(here, tmp_path):
    run_dir, _ = truncated(here, tmp_path, 4)
    with pytest.raises(UserError, match="holds 4 records that its episodes.jsonl does not"):
        here(*SHORT, run_dir=run_dir)


def test_a_start_that_failed_does_not_spoil_the_directory(here, tmp_path):
    with pytest.raises(UserError, match="judge=oracle"):
        here(*SHORT, "judge=oracle", run_dir=tmp_path / "run")
    assert here(*SHORT, run_dir=tmp_path / "run")[1] == 0.5  # each of four families once failed and once solved


def test_a_start_without_an_episode_is_taken_over_by_another_configuration(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=3", run_dir=tmp_path / "run")
    for name in ("episodes.jsonl", "summary.json", "bank.sqlite", "bank.sqlite.journal"):
        (run_dir / name).unlink(missing_ok=True)
    here(*TOY, "limit=2", "seed=1", run_dir=run_dir)
    assert len(read_rows(run_dir)) == 2
    assert read_json(run_dir / "manifest.json")["config"]["seed"] == 1
    with pytest.raises(UserError, match=r"made with another configuration \(seed, "):
        here(*TOY, "limit=2", "seed=2", run_dir=run_dir)


def test_a_finished_run_started_again_changes_nothing(here, tmp_path):
    run_dir, first = here(*SHORT, run_dir=tmp_path / "run")
    manifest, episodes = read_json(run_dir / "manifest.json"), (run_dir / "episodes.jsonl").read_bytes()
    assert manifest["models"]["agent"]["sent"] == {"model": "scripted"}
    assert here(*SHORT, run_dir=run_dir)[1] == first
    assert read_json(run_dir / "manifest.json") == manifest
    assert (run_dir / "episodes.jsonl").read_bytes() == episodes


def test_another_frozen_bank_under_the_same_name_is_noticed(here, tmp_path):
    bank = here(*SHORT, run_dir=tmp_path / "learned")[0] / "bank.sqlite"
    other = here(*TOY, "limit=2", run_dir=tmp_path / "other")[0] / "bank.sqlite"
    words = (*TOY, "limit=2", "setting=frozen", f"memory.path={bank}")
    here(*words, run_dir=tmp_path / "frozen")
    assert {p.name for p in bank.parent.glob("bank*")} == {"bank.sqlite", "bank.sqlite.journal"}
    shutil.copy(other, bank)
    with pytest.raises(UserError, match="frozen_bank"):
        here(*words, run_dir=tmp_path / "frozen")


def test_a_frozen_bank_to_whose_log_a_learner_has_added_is_noticed(here, tmp_path):
    bank = here(*SHORT, run_dir=tmp_path / "learned")[0] / "bank.sqlite"
    words = (*TOY, "limit=2", "setting=frozen", f"memory.path={bank}")
    plain = hashlib.sha256(bank.read_bytes()).hexdigest()
    run_dir, _ = here(*words, run_dir=tmp_path / "without a log")
    assert read_json(run_dir / "manifest.json")["fingerprint"]["frozen_bank"] == plain
    with closing(sqlite3.connect(bank, isolation_level=None)) as db:  # stands for a learner, or for one that was killed
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("INSERT INTO meta VALUES ('a note', '1')")
        before = bank.read_bytes()
        assert bank.with_name("bank.sqlite-wal").stat().st_size > 0
        run_dir, _ = here(*words, run_dir=tmp_path / "frozen")
        here(*words, run_dir=run_dir)  # goes on: the bank is the same
        db.execute("INSERT INTO meta VALUES ('another', '2')")
        assert bank.read_bytes() == before
        with pytest.raises(UserError, match="frozen_bank"):
            here(*words, run_dir=run_dir)


def test_a_damaged_line_is_named(here, tmp_path):
    run_dir, whole = truncated(here, tmp_path, 2, b'{"index": 2, oops}\n')
    with pytest.raises(UserError, match="line 3 is damaged"):
        here(*SHORT, run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes().startswith(whole[:100])


def test_another_configuration_is_refused_with_the_difference(here, tmp_path):
    run_dir, _ = here(*TOY, "limit=3", run_dir=tmp_path / "run")
    before = (run_dir / "episodes.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"another configuration[\s\S]*config.seed: 0 -> 1"):
        here(*TOY, "limit=3", "seed=1", run_dir=run_dir)
    assert (run_dir / "episodes.jsonl").read_bytes() == before
    assert "seed: 0" in (run_dir / ".hydra/config.yaml").read_text()


def test_two_processes_cannot_write_one_run(cli, tmp_path):
    slow = (*TOY, "llm.delay_s=0.3", f"run_dir={tmp_path / 'run'}")
    first = forkserver.Popen(command(*slow), stdout=-3, stderr=-3)
    try:
        while not (tmp_path / "run/episodes.jsonl").exists():
            time.sleep(0.05)
        second = cli(*slow)
    finally:
        first.kill()
        first.wait()
    assert second.returncode == 1
    assert "is being written by another process" in second.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_whole_episodes_and_says_how_to_go_on(tmp_path, number):
    run_dir = tmp_path / "run"
    words = (*TOY, "llm.delay_s=0.05", "limit=20", f"run_dir={run_dir}")
    process = forkserver.Popen(command(*words), stdout=-1, stderr=-1, text=True)
    while not (run_dir / "episodes.jsonl").exists() or (run_dir / "episodes.jsonl").stat().st_size < 5000:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"to go on where it stopped: {sys.executable} {REPO / 'main.py'} env=toy" in errors
    assert f"run_dir={run_dir}" in errors
    assert "Traceback" not in errors
    assert 0 < len(read_rows(run_dir)) < 20
    assert read_json(run_dir / "summary.json")["complete"] is False


def test_a_full_disk_stops_with_one_sentence_and_loses_nothing(tmp_path, undisturbed):
    run_dir = tmp_path / "run"

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, resource.RLIM_INFINITY))

    words = command(*TOY, "limit=40", f"run_dir={run_dir}")
    full = forkserver.run(words, preexec_fn=small_files, capture_output=True, text=True, timeout=60, check=False)
    assert full.returncode == 1
    assert "cannot be written" in full.stderr
    assert "Traceback" not in full.stderr
    for line in (run_dir / "episodes.jsonl").read_bytes().splitlines():
        json.loads(line)
    forkserver.run(words, check=True, capture_output=True, timeout=60)
    assert (run_dir / "episodes.jsonl").read_bytes() == undisturbed
