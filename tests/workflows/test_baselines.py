"""The paper's baselines share the bank and its retrieval; only what they keep of an attempt differs."""

from __future__ import annotations

import pytest
from conftest import TOY, read_json, read_rows

CAP = 6000  # the agent's max_memory_chars


@pytest.mark.parametrize("memory", ["synapse", "awm"])
def test_several_attempts_without_a_success_teach_nothing(here, memory):
    run_dir, rate = here(*TOY, f"memory={memory}", "workflow=matts_parallel", "limit=8")
    assert (rate, read_json(run_dir / "summary.json")["n_lessons"]) == (0.0, 0)


@pytest.mark.parametrize("memory", ["synapse", "awm"])
def test_with_failures_they_know_the_word_after_a_familys_first_box(here, memory):
    run_dir, rate = here(*TOY, f"memory={memory}", "distiller.failures=true", "limit=8")
    assert rate == 0.5
    row = read_rows(run_dir)[0]
    told = "would have been" if memory == "synapse" else "word of the amber family"
    assert told in row["lessons"][0]["content"]
    assert (row["usage"]["extractor"]["calls"] == 0) == (memory == "synapse")


def test_the_longest_attempt_that_synapse_keeps_still_fits_the_prompt(here, monkeypatch):
    monkeypatch.setattr("envs.toy_script.GUESS", "x" * 50_000)
    run_dir, _ = here(*TOY, "memory=synapse", "distiller.failures=true", "limit=5")
    item = read_rows(run_dir)[0]["lessons"][0]
    assert "characters left out" in item["content"]
    assert sum(map(len, item.values())) < CAP
    assert "<memory_items>" in read_rows(run_dir)[4]["trajectories"][0]["opening"][0]["content"]


def test_retrieval_is_the_same_for_all(here, tmp_path):
    found = []
    for memory in ("reasoning_bank", "synapse", "awm"):
        failures = () if memory == "reasoning_bank" else ("distiller.failures=true",)
        run_dir, _ = here(*TOY, f"memory={memory}", *failures, "limit=20", run_dir=tmp_path / memory)
        tick = {row["records"][0]["id"]: row["index"] for row in read_rows(run_dir)}
        found.append([[tick[hit["id"]] for hit in row["retrieved"]] for row in read_rows(run_dir)])
    assert found[0] == found[1] == found[2]
