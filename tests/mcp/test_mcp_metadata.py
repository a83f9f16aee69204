"""The metadata of a trajectory's steps: kept in the queue, scrubbed, capped, and read by judge and distiller."""

from __future__ import annotations

import json
import time

from mcp_kit import MODEL, TRAJECTORY, answer, served

from mcp_server import checks
from mcp_server.config import ServerSettings, load_config
from mcp_server.extraction import as_trajectory

SETTINGS = ServerSettings.of(load_config([]))
KEY = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def turns(*metadata):
    return [{"role": "tool", "content": f"step {n}", "metadata": given} for n, given in enumerate(metadata)]


def test_metadata_is_kept_scrubbed_and_capped():
    kept = checks.attempt(turns({"exit_code": 1, "token": KEY}, {}, {"log": "x" * 9000}), "q", SETTINGS)["trajectory"]
    assert json.loads(kept[0]["metadata"])["exit_code"] == 1 and KEY not in kept[0]["metadata"]
    assert kept[1] == {"role": "tool", "content": "step 1"}  # as it was queued before metadata was kept
    assert len(kept[2]["metadata"]) < SETTINGS.max_metadata_chars + 60 and "left out" in kept[2]["metadata"]
    off = ServerSettings.of(load_config(["server.max_metadata_chars=0"]))
    assert all("metadata" not in turn for turn in checks.attempt(turns({"a": 1}), "q", off)["trajectory"])


def test_metadata_stands_behind_its_turn_and_in_no_action():
    steps = [
        {"role": "user", "content": "do it", "metadata": {"n": 0}},
        {"role": "assistant", "content": "I run it", "metadata": {"tool": "bash"}},
        {"role": "tool", "content": "failed", "metadata": {"exit_code": 2}},
    ]
    made = as_trajectory(checks.attempt(steps, "q", SETTINGS))
    assert made.steps[0].observation == '(user) do it\n(metadata) {"n": 0}'
    assert (made.steps[1].text, made.steps[1].action, made.answer) == ("I run it",) * 3
    assert made.steps[1].observation == '(metadata) {"tool": "bash"}\n(tool) failed\n(metadata) {"exit_code": 2}'


def test_judge_and_distiller_read_it_over_mcp(tmp_path, monkeypatch):
    prompts = {}

    def listening(messages, role, sample):
        prompts[role] = messages[-1]["content"]
        return answer(messages, role, sample)

    steps = [*TRAJECTORY[:2], TRAJECTORY[2] | {"metadata": {"exit_code": 3, "auth": f"Bearer {KEY}"}}]
    words = {"query": "Accept empty files", "async_mode": False}
    monkeypatch.setattr("mcp_kit.answer", listening)
    with served(tmp_path / "b.sqlite", *MODEL, "memory.consolidate=null") as (client, _):
        plain, told = (client.ask("extract_memory", trajectory=given, **words) for given in (TRAJECTORY, steps))
    assert plain["task_id"] != told["task_id"]
    for role in ("judge", "extractor"):
        assert '"exit_code": 3' in prompts[role] and KEY not in prompts[role]


def test_metadata_of_megabytes_is_scrubbed_in_time_and_no_half_of_a_key_is_left():
    spent = []
    for n in (50_000, 1_000_000):
        began = time.thread_time()
        [kept] = checks.attempt(turns({"a": "\\(" * n}), "q", SETTINGS)["trajectory"]
        spent.append(time.thread_time() - began)
    assert spent[1] < 10 * spent[0]  # of 20 times as much only the ends are scrubbed
    assert "left out" in kept["metadata"] and len(kept["metadata"]) < SETTINGS.max_metadata_chars + 60

    half, keys = SETTINGS.max_metadata_chars // 2, " ".join([KEY] * 3_000)
    for before in (0, half - 20, half + 8_990, half + 9_000, half + 9_010):  # a key across each edge, either end
        around = "x " * (before // 2), " y" * (before // 2)
        [turn] = checks.attempt(turns({"a": keys.join(around)}), "q", SETTINGS)["trajectory"]
        assert "left out" in turn["metadata"] and "ghp_" not in turn["metadata"] and KEY[-12:] not in turn["metadata"]
