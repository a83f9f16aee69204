"""env=alfworld without a split: the benchmark's games where they are, else generated ones, and it is said so."""

from __future__ import annotations

import json

import pytest
from alfworld_kit import make, write_archive
from conftest import read_rows

from analysis.load import run_columns
from analysis.runs import read_run
from analysis.tables import whole_name
from core.errors import UserError
from core.run.arms import env_label
from envs.alfworld.env import AlfworldEnv
from envs.alfworld.games import list_games

pytest.importorskip("alfworld")
WORDS = ("env=alfworld", "llm=free", "embedder=hashing", "max_steps=2", "workflow=vanilla")
RUN, MORE = (*WORDS, "limit=1"), (*WORDS, "limit=2")
LINE = "env=alfworld: without game files generated games are played (split generated), which are not the benchmark"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A home without games."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    return tmp_path


def rows_of(runs):
    """The facts that tables, reports and plots show of each run."""
    return [run_columns(run, {}) for run in runs]


def settled(**config):
    return AlfworldEnv.settled({"split": None, "data": None} | config)


def test_what_is_played_depends_on_what_is_there(nowhere, monkeypatch):
    assert settled() == {"split": "generated"}
    for folder in ("home/.cache/alfworld/json_2.1.1/valid_seen", "empty"):  # folders without a game
        (nowhere / folder).mkdir(parents=True)
    assert settled() == {"split": "generated"}
    monkeypatch.setenv("ALFWORLD_DATA", str(nowhere / "empty"))
    assert settled() == {"split": "generated"}
    monkeypatch.setenv("ALFWORLD_DATA", str(nowhere / "gone"))
    assert settled() == {"split": "generated"}
    archive = write_archive(nowhere)
    monkeypatch.setenv("ALFWORLD_DATA", str(archive))
    assert settled() == {"split": "valid_seen"}
    monkeypatch.setenv("ALFWORLD_DATA", str(nowhere))  # unpacked
    assert settled() == {"split": "valid_seen"}
    assert make(nowhere, split=None).describe()["dataset"] == "alfworld/valid_seen"
    assert settled(split="train") == {}  # what is typed is what is played


def test_data_that_is_named_is_never_replaced(nowhere):
    assert settled(data=str(nowhere / "gone")) == {"split": "valid_seen"}
    with pytest.raises(UserError, match=r"gone does not exist: fetch them with alfworld-download"):
        make(nowhere, split=None, data=str(nowhere / "gone")).tasks()
    with pytest.raises(
        UserError, match=r"no games at all: fetch them with alfworld-download, or play env.split=generated"
    ):
        list_games(nowhere, "valid_seen", nowhere / "cache")


def test_a_label_says_what_was_generated():
    assert env_label("alfworld", {"split": "generated"}) == "alfworld (generated)"
    assert env_label("alfworld", {"split": "valid_seen"}) == env_label("alfworld", None) == "alfworld"


def test_a_run_keeps_its_split_and_its_table_says_so(main_here, nowhere, monkeypatch):
    code, said, errors = main_here(*RUN, "run_dir=run")
    assert code == 0, errors
    assert said.splitlines()[0].startswith(LINE) and "alfworld-download" in said.splitlines()[0]
    assert "on alfworld (generated), setting" in said
    monkeypatch.setenv("ALFWORLD_DATA", str(write_archive(nowhere)))
    code, said, errors = main_here(*MORE, "run_dir=run")
    assert code == 0, errors
    assert said.splitlines()[0].startswith(LINE)
    manifest = json.loads((nowhere / "run" / "manifest.json").read_text())
    assert manifest["config"]["env"]["split"] == "generated"
    assert manifest["fingerprint"]["dataset"]["dataset"] == "alfworld/generated"
    assert all(row["task_id"].startswith("alfworld/generated/") for row in read_rows(nowhere / "run"))
    [row] = rows_of([read_run(nowhere / "run")])
    assert row["env"] == "alfworld (generated)" and whole_name(row) == "alfworld (generated)"
    _, said, _ = main_here(*RUN, "run_dir=real")
    assert LINE not in said and "on alfworld, setting" in said
    monkeypatch.delenv("ALFWORLD_DATA")  # the games are gone
    code, _, errors = main_here(*MORE, "run_dir=real")
    assert code != 0 and "fetch them with alfworld-download" in errors


def test_a_sweep_keeps_its_split(main_here, nowhere, monkeypatch):
    """Its first cell finds no games; those of a later start, when there are some, play what it played."""
    code, said, _ = main_here("-m", *RUN, "seed=0,5", "run_dir=sweep")
    assert code == 0 and said.count(LINE) == 1  # once for all cells
    monkeypatch.setenv("ALFWORLD_DATA", str(write_archive(nowhere)))
    code, said, errors = main_here("-m", *MORE, "seed=0,1", "run_dir=sweep")
    assert code == 0, errors
    made = [json.loads(path.read_text()) for path in sorted(nowhere.glob("sweep/*/manifest.json"))]
    assert [each["config"]["env"]["split"] for each in made] == ["generated"] * 3  # one grown, and not begun anew
    assert "(generated)" in said
