"""A run against a provider that breaks three times in ten: nothing is lost, nothing doubled, nobody stormed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from conftest import read_json, read_rows
from faulty import FAULTS, FaultyServer

from core.errors import StopRun
from core.models import retry

ATTEMPTS = 3
ONCE = ("retry_broken=0", "stop_after_broken=null")  # what broke stays broken


@pytest.fixture
def faulty(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    servers = []

    def start(answer):
        servers.append(FaultyServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def play(request):
    from envs.toy_script import play as toy

    messages = request["messages"]
    role = "agent" if len(messages) > 1 else "judge" if "Status:" in messages[0]["content"] else "extractor"
    return toy(messages, role, 0)


def overrides(server, *more):
    limits = ("llm.timeout_s=0.4", f"llm.attempts={ATTEMPTS}", "llm.retry_s=20", "llm.json_schema=false")
    return ("env=toy", "llm=vllm", "embedder=hashing", f"llm.api_base={server.url}", *limits, *more)


def check(run_dir, server, n):
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    calls = [json.loads(line) for line in (run_dir / "calls.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == list(range(n))
    assert len({row["task_id"] for row in rows}) == n
    statuses = Counter(row["status"] for row in rows)
    assert set(statuses) <= {"success", "failure", "infra_error"}
    assert (summary["complete"], summary["n"] + summary["n_infra_error"]) == (statuses["infra_error"] == 0, n)
    assert sum(summary["infra_errors"].values()) == summary["n_infra_error"] == statuses["infra_error"]
    assert max(server.tries.values()) <= ATTEMPTS  # no request reached the server more often than configured
    made = [call for call in calls if call["role"] != "embedder"]
    undelivered = sum(1 + call["retries"] for call in made) - sum(server.tries.values())
    assert 0 <= undelivered <= n // 100  # a busy machine can run out of time before the server has read the request
    assert summary["calls"]["total"]["retries"] == sum(call["retries"] for call in calls)
    assert all(call["retries"] == ATTEMPTS - 1 for call in made if call["error"])
    return statuses, made


def test_two_hundred_calls_sixteen_at_a_time(faulty, here, tmp_path):
    server = faulty(play)
    more = ("env.families=8", "env.boxes_per_family=25", "max_concurrency=16", "workflow=vanilla", "max_steps=1")
    run_dir = tmp_path / "run"
    with pytest.raises(StopRun, match="of 200 tasks broken"):
        here(*overrides(server, *more, *ONCE), run_dir=run_dir)
    statuses, made = check(run_dir, server, 200)
    assert len(made) == 200
    assert 0 < statuses["infra_error"] < 20  # 0.3 ** 3 of 200 is 5
    broke = sum(server.faults[fault] for fault in FAULTS) / sum(server.faults.values())
    assert 0.2 < broke < 0.4
    assert all(server.faults[fault] > 1 for fault in FAULTS)
    here(*overrides(server, *more), run_dir=run_dir)  # the same command, which may try again now
    summary, rows = read_json(run_dir / "summary.json"), read_rows(run_dir)
    assert (summary["complete"], summary["n"], summary["n_retried"]) == (True, 200, statuses["infra_error"])
    assert [row["index"] for row in rows] == list(range(200 + statuses["infra_error"]))


def test_the_whole_loop_learns_on_among_the_faults(faulty, here, tmp_path):
    server = faulty(play)
    run_dir = tmp_path / "run"
    try:
        here(*overrides(server, "env.families=4", "env.boxes_per_family=6", *ONCE), run_dir=run_dir)
    except StopRun as error:  # which calls break depends on the wording of the prompts
        assert "of 24 tasks broken" in str(error)
    check(run_dir, server, 24)
    assert read_json(run_dir / "summary.json")["success_rate"] > 0.6  # 20 of 24 without any fault
    for row in read_rows(run_dir):
        if row["status"] == "infra_error":
            assert (row["lessons"], row["records"], row["verdict"]["label"]) == ([], [], None)
