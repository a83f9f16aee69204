"""ScienceWorld in the real engine: its own splits and gold paths, its failures and its settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import InfraError, UserError
from core.types import Task
from envs.base import EnvStateError

pytest.importorskip("scienceworld", reason="the scienceworld extra is not installed")

from env_contract import EnvContract

from envs.scienceworld.env import ScienceWorldEnv

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT.parent / "shared/data/trajectories/SwiftSage_scienceworld_oracle_30tasks.jsonl"
QUICK = ["lifespan-longest-lived", "find-non-living-thing"]  # short gold paths
# One task of each topic: the engine's search for its gold path, and playing it, takes up to 20 s of the others.
ONE_OF_EACH = """freeze use-thermometer power-component chemistry-mix-paint-secondary-color find-animal
lifespan-longest-lived inclined-plane-determine-angle""".split()


def make(**fields) -> ScienceWorldEnv:
    return ScienceWorldEnv(**({"instructions": "", "max_steps": 100} | fields))


@pytest.fixture(scope="module")
def env():
    with make() as env:
        yield env


@pytest.fixture(scope="module")
def quick():
    with make(task_names=QUICK) as env:
        yield env


def play(env: ScienceWorldEnv, task: Task, actions: list[str]) -> list[tuple]:
    """[(observation, reward, done, info), ...] up to the end of the episode."""
    env.reset(task)
    return moves(env, actions)


def moves(env: ScienceWorldEnv, actions: list[str]) -> list[tuple]:
    told = []
    for action in actions:
        told.append(env.step(action))
        if told[-1][2]:
            break
    return told


class TestContract(EnvContract):
    def make_env(self, folder):
        return make(task_names=QUICK)

    def worker_pid(self, env):
        return env._engine.pid


def test_the_default_is_one_test_variation_of_each_of_the_thirty_tasks(env):
    tasks = env.tasks()
    assert len(tasks) == 30
    assert (tasks[0].id, tasks[0].type) == ("scienceworld/boil/21", "Matter")
    assert tasks[0].query.startswith("Your task is to boil ")
    assert len({task.id.split("/")[1] for task in tasks}) == 30
    assert len({task.type for task in tasks}) == 7


def test_more_variations_are_interleaved_and_come_from_the_split():
    with make(variations_per_task=2, task_names=["boil", "4-4"]) as env:
        names = ["boil/0", "find-animal/0", "boil/1", "find-animal/1"]
        assert [task.id for task in env.tasks("train")] == [f"scienceworld/{name}" for name in names]
        env.variations_per_task, env.task_names = None, ["identify-life-stages-1", "identify-life-stages-2"]
        env._listed.clear()
        dev, test = ([task.id.split("/", 1)[1] for task in env.tasks(split)] for split in ("dev", "test"))
    assert (len(dev), len(test)) == (3 + 2, 5 + 4) and not {*dev} & {*test}
    assert test[-1] == "identify-life-stages-1/13"  # the longer list goes on alone


def test_the_gold_path_solves_a_task_of_each_topic(env):
    lost, played = [], [task for task in env.tasks() if task.id.split("/")[1] in ONE_OF_EACH]
    assert {task.type for task in played} == {task.type for task in env.tasks()}
    for task in played:
        env.reset(task)
        told = moves(env, env.walkthrough())
        rewards = sum(reward for _, reward, _, _ in told)
        if not (told[-1][3]["won"] and told[-1][3]["score"] == 100 and env.evaluate(None) and abs(rewards - 1) < 1e-9):
            lost.append((task.id, told[-1]))
    assert not lost


def test_recorded_runs_end_with_the_same_score(env):
    """Of other tasks, up to 30 steps long."""
    if not RECORDED.exists():
        pytest.skip(f"{RECORDED.relative_to(ROOT.parent)} is not beside the repository")
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    rows = [row for row in rows if len(row["steps"]) <= 30 and row["task"] not in ONE_OF_EACH]
    assert len(rows) > 10
    for row in rows:
        task = Task(id=f"scienceworld/{row['task']}/{row['variation']}", query="")
        told = play(env, task, [step["action"] for step in row["steps"]])
        assert told[-1][3]["score"] == 100 * float(row["score"]), row["task"]


def test_the_same_episode_reads_the_same_after_other_tasks_and_in_another_jvm(env, quick):
    """In the greenhouse, through which bees fly: the most random of all places."""
    task = Task(id="scienceworld/grow-fruit/93", query="")
    actions = ["teleport to greenhouse", "open bee hive", *["look around", "wait1"] * 15]
    told = play(env, task, actions)
    assert len({text for text, *_ in told[2::2]}) > 3
    play(env, env.tasks()[0], ["look around"])
    assert play(env, task, actions) == told
    assert play(quick, task, actions) == told


def test_the_first_observation_states_the_task_and_the_room(quick):
    task = quick.tasks()[0]
    first = quick.reset(task)
    assert first.startswith(task.query)
    assert "This room is called" in first
    assert quick.get_ground_truth().startswith("focus on ")


def test_a_wrong_focus_ends_the_episode_with_raw_minus_100_counted_as_zero(quick):
    quick.reset(quick.tasks()[0])
    _, reward, done, info = quick.step("focus on agent")
    assert (reward, done) == (0.0, True)
    assert (info["valid"], info["won"], info["score"], info["raw_score"]) == (True, False, 0, -100)
    assert not quick.evaluate(None)


def test_refusals_are_marked_invalid_and_a_menu_is_answered_by_number(env):
    task = next(task for task in env.tasks() if task.id.startswith("scienceworld/find-animal/"))
    actions = ["teleport to hallway", "open door", "0", "look around"]
    told = play(env, task, actions)
    menus = [number for number, (text, _, _, _) in enumerate(told) if text.startswith("Ambiguous request")]
    assert menus == [1]
    assert [info["valid"] for *_, info in told] == [True, False, True, True]


def test_admissible_actions_are_listed_on_demand_alone(quick, monkeypatch):
    task = quick.tasks()[0]
    with pytest.raises(EnvStateError):
        make().admissible()
    first = quick.reset(task)
    listed = quick.admissible()
    assert "look around" in listed
    assert len(listed) > 100
    assert "Valid actions" not in first
    monkeypatch.setattr(quick, "show_valid", True)
    shown = quick.reset(task).split("Valid actions:\n")
    assert shown[0].strip() == first
    assert set(listed) == set(shown[1].split("\n"))
    assert "Valid actions:\n" in quick.step("inventory")[0]


def test_a_walkthrough_asked_for_in_mid_episode_leaves_the_episode_alone(quick):
    task = quick.tasks()[0]
    quick.reset(task)
    actions = quick.walkthrough()
    told = play(quick, task, actions)
    quick.reset(task)
    again = []
    for action in actions[: len(told)]:
        again.append(quick.step(action))
        if len(again) == 2:
            assert quick.walkthrough() == actions
            assert quick.tasks("train")
    assert again == told


def test_an_engine_error_is_not_a_failure(quick):
    quick.reset(quick.tasks()[0])
    quick._engine._ask("agentInterface").get().setErrorState("java.lang.Boom")
    with pytest.raises(InfraError, match="Boom"):
        quick.step("look around")
    quick.reset(quick.tasks()[0])  # the next task runs


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": "valid"}, "train, dev, test"),
        ({"task_names": ["fly"]}, "no task fly"),
        ({"simplification": "tiny"}, "no tiny; there are easy"),
        ({"simplification": "noElectricalAction"}, "power-component"),
        ({"jvm_heap": "lots"}, "256m"),
        ({"variations_per_task": 0}, "at least 1"),
    ],
)
def test_a_wrong_setting_is_one_clear_error(fields, message):
    with pytest.raises(UserError, match=message), make(**fields) as env:
        env.tasks()


def test_a_foreign_task_is_refused(quick):
    for name in ("math500/1", "scienceworld/boil/9999", "scienceworld/fly/0"):
        with pytest.raises(UserError):
            quick.reset(Task(id=name, query=""))


def test_teleport_is_taught_only_where_it_exists():
    assert "teleport" in make(instructions="Commands:").instructions
    assert "teleport" not in make(instructions="Commands:", simplification="openDoors").instructions
