"""experiment=recorded: a real model's replies replayed through today's harness, as `make run` does it first."""

from __future__ import annotations

import shutil

import pytest
from conftest import REPO, read_json

from analysis.recorded import PLANNED

ONE = ("experiment=recorded", "arm=reasoningbank", "seed=0")


@pytest.fixture
def at_home(program):
    """main.py in the repository, where the recorded replies are."""
    return lambda *words: program("main.py", *words, cwd=REPO)


def test_the_study_replays_to_the_result_that_was_recorded_and_tells_its_story(at_home, tmp_path):
    done = at_home("experiment=recorded", f"run_dir={tmp_path / 'S'}")
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "No model is called: the replies were recorded, from hosted_vllm/qwen2.5-coder-1.5b-instruct" in said
    assert "experiment=recorded llm.cache=read_write" in said and "2026-11-27" in said
    solved = {path.parent.name: read_json(path)["n_success"] for path in (tmp_path / "S").glob("*/summary.json")}
    of = {arm: [solved[f"arm={arm},env=customs,seed={seed}"] for seed in range(5)] for arm in ARMS}
    assert of == ARMS
    assert PLANNED in said
    assert "24 tasks x 5 seeds" in said and "▲ · n 120" in said
    places = [
        said.index(text) for text in ("one lesson, ", "\n  before", "\n  lesson", "\n  after", "next, does memory")
    ]
    assert places == sorted(places)
    assert "fetch minilm" in said and 'make run ARGS="llm=local"' in said


ARMS = {"no_memory": [7, 5, 4, 6, 8], "reasoningbank": [18, 14, 11, 17, 15]}  # solved by seed, of 24


def test_a_prompt_that_differs_stops_the_replay(at_home, tmp_path):
    (tmp_path / "prompts").mkdir()
    own = tmp_path / "prompts" / "judge.jinja"
    own.write_text((REPO / "prompts" / "judge.jinja").read_text(encoding="utf-8").replace("Decide", "Say"), "utf-8")
    done = at_home(*ONE, f"prompts={tmp_path / 'prompts'}", f"run_dir={tmp_path / 'S'}")
    assert done.returncode == 1
    assert "holds no answer to this request of role judge" in done.stderr and "llm.cache=read_write" in done.stderr


def test_replay_changes_nothing_beside_the_file_and_needs_no_weights(at_home, tmp_path):
    shutil.copy(REPO / "docs/study/recorded.sqlite", tmp_path / "copy.sqlite")
    before = (tmp_path / "copy.sqlite").read_bytes()
    path = f"llm.cache_path={tmp_path / 'copy.sqlite'}"
    done = at_home(*ONE, "limit=2", path, f"run_dir={tmp_path / 'S'}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy.sqlite").read_bytes() == before
    assert [each.name for each in tmp_path.glob("copy.sqlite*")] == ["copy.sqlite"]
    other = at_home(*ONE, "limit=2", path, "env.page=brand_last", f"run_dir={tmp_path / 'T'}")
    assert "embedder.mode=replay" in other.stderr  # of a text that was not recorded
