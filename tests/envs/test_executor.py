"""How many envs live at once, what becomes of an attempt past its time, and that neither shows in a result."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pytest
from conftest import TOY, read_json, read_rows

from core.errors import InfraError, StopRun, UserError
from core.process import WorkerProcess
from envs import toy_script
from envs.pool import EnvPool
from envs.questions import QuestionsEnv
from envs.toy import ToyEnv

PARALLEL = (*TOY, "workflow=matts_parallel", "limit=6")


class Slow:
    """What an env's worker process hosts here."""

    def step(self, seconds):
        time.sleep(seconds)
        return seconds


@dataclass(kw_only=True)
class SlowEnv(ToyEnv):
    """Its steps happen in a process of its own and take as long as the action says."""

    def __post_init__(self):
        self.worker = WorkerProcess(factory=Slow)
        self.worker.start()

    def _step(self, action):
        return str(self.worker.call("step", float(action))), 0.0, False, {}

    def abort(self):
        super().abort()
        self.worker.abort()

    def close(self):
        super().close()
        self.worker.close()


make_slow = partial(SlowEnv, instructions="", max_steps=3)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_live_envs_changes_no_result(here, tmp_path, monkeypatch, workers):
    free = here(*PARALLEL, run_dir=tmp_path / "free")[0] / "episodes.jsonl"
    live = set()
    reset = ToyEnv._reset
    monkeypatch.setattr(ToyEnv, "_reset", lambda self, task: (live.add(id(self)), reset(self, task))[1])
    bound, _ = here(*PARALLEL, f"env.workers={workers}", "max_concurrency=3", run_dir=tmp_path / "bound")
    assert (bound / "episodes.jsonl").read_bytes() == free.read_bytes()
    assert 1 <= len(live) <= workers


def test_workers_may_change_when_a_run_goes_on(here, tmp_path):
    run_dir, rate = here(*PARALLEL, "env.workers=1", run_dir=tmp_path / "run")
    assert here(*PARALLEL, "env.workers=4", run_dir=run_dir)[1] == rate
    with pytest.raises(UserError, match="another configuration"):
        here(*PARALLEL, "episode_timeout_s=9", run_dir=run_dir)


@pytest.mark.parametrize("words", ["env.workers=0", "episode_timeout_s=0", "episode_timeout_s=soon"])
def test_limits_that_allow_nothing_are_refused(here, words):
    with pytest.raises(UserError, match="give"):
        here(*TOY, words)


@pytest.mark.parametrize(
    ("words", "ended", "status"),
    [
        ("workflow=matts_parallel", ["end", "infra_error", "end"], "failure"),
        ("workflow=matts_sequential", ["end", "infra_error"], "infra_error"),
    ],
)
def test_an_attempt_past_its_time_is_an_infra_error_and_the_others_go_on(
    here, monkeypatch, tmp_path, words, ended, status
):
    original, hang = toy_script.play, threading.Event()

    def play(messages, role, sample):
        if role == "agent" and sample == 1:
            hang.wait(60)
        return original(messages, role, sample)

    monkeypatch.setattr("envs.toy_script.play", play)
    began = time.monotonic()
    run_dir = tmp_path / "run"
    with pytest.raises(StopRun, match="1 of 1 tasks broke") if status == "infra_error" else nullcontext():
        here(*TOY, words, "limit=1", "episode_timeout_s=1", "retry_broken=0", run_dir=run_dir)
    assert time.monotonic() - began < 60  # as long as the call hangs
    hang.set()
    row = read_rows(run_dir)[0]
    assert [t["ended_by"] for t in row["trajectories"]] == ended
    assert row["status"] == status
    assert row["trajectories"][1]["error"] == "timeout: a call hung for longer than episode_timeout_s=1"
    if status == "infra_error":
        assert read_json(run_dir / "summary.json")["infra_errors"] == {"timeout": 1}


def test_the_env_of_an_attempt_past_its_time_is_killed_with_its_worker_and_never_used_again():
    pool = EnvPool(make_slow, timeout_s=0.5)
    with pytest.raises(InfraError, match="longer than episode_timeout_s=0.5"), pool.lease() as env:
        env.reset(env.tasks()[0])
        process = env.worker._process
        pool.limited(env, lambda: env.step("60"))
    assert process.wait(10) == -9
    with pool.lease() as other:
        assert other is not env
        other.reset(other.tasks()[0])
        assert pool.limited(other, lambda: other.step("0"))[0] == "0.0"
    pool.close()
    assert other.worker.pid is None


def test_what_an_attempt_raises_in_time_is_raised():
    pool = EnvPool(make_slow, timeout_s=20)
    with pytest.raises(KeyError), pool.lease() as env:
        pool.limited(env, lambda: {}["x"])
    pool.close()


def test_an_env_that_cannot_be_closed_leaves_no_other_open():
    pool = EnvPool(make_slow)
    with pool.lease() as one, pool.lease() as two, pool.lease() as three:
        workers = [env.worker._process for env in (one, two, three)]
        two.close = lambda: {}["x"]
    with pytest.raises(KeyError):
        pool.close()
    assert [worker.poll() is not None for worker in workers] == [True, False, True]
    two.worker.close()


def test_the_envs_of_a_pool_read_their_dataset_once(tmp_path):
    rows, file = ({"question": "1 + 1?", "answer": "2"}, {"question": "Who?", "answer": "Ann"}), tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    how = {"instructions": "", "max_steps": 1, "path": str(file)}
    pool = EnvPool(lambda: QuestionsEnv(**how))
    with pool.lease() as one:
        tasks = one.tasks()
        file.unlink()
        with pool.lease() as other:
            assert other is not one and other.tasks() == tasks
            assert one.reset(tasks[0]) == "1 + 1?" and other.reset(tasks[1]) == "Who?"
            assert [env.step("Ann")[3]["won"] for env in (one, other)] == [False, True]
    pool.close()
