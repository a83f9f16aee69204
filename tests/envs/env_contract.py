"""The contract that every env keeps, as tests to inherit (after dm_env's test_utils).

    class TestMyEnv(EnvContract):
        def make_env(self, folder):          # folder: an empty one that stays the same for the whole class
            return MyEnv(...)

Each env has at least two tasks. What an env lacks it says by the class attributes. An env outside this repository is
tested in the same way, with this folder and its own on PYTHONPATH (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.errors import InfraError
from core.types import Task
from envs.base import BaseEnv, EnvStateError

ODD_ACTIONS = {
    "empty": "",
    "blank": " \t\n ",
    "huge": "go to " + "x" * 1_000_000,
    "control": "look\x00\x1b[2J\x07\r\x7f",
    "lines": "look\n\nlook\nlook",
    "non-ascii": "打开 抽屉 1 🚪 Ünïcödé \u202e",
    "surrogate": "look \ud800",
    "template": "{{ 7*7 }} {0} %s ${seed} \\boxed{1}",
    "number": "0",
}


class EnvContract:
    """Inherit, name it Test..., give make_env."""

    invalid_action: str | None = "frobnicate the quux"  # None: the env accepts every text (single turn)
    deterministic = True  # False: equal actions need not give equal observations, and only the outcome is compared

    def make_env(self, folder: Path) -> BaseEnv:
        raise NotImplementedError

    def worker_pid(self, env: BaseEnv) -> int | None:
        """The process behind the running episode; None where there is none."""
        return None

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        return tmp_path_factory.mktemp("env")

    @pytest.fixture(scope="class")
    def shared(self, folder, request):
        """One env for all tests that leave it usable: starting an engine is slow."""
        env = request.cls().make_env(folder)
        yield env
        env.close()

    @pytest.fixture(scope="class")
    def other(self, folder, request):
        """A second instance, for what two of them do alike; each test but the last leaves it usable, too."""
        env = request.cls().make_env(folder)
        yield env
        env.close()

    def play(self, env: BaseEnv, task: Task, actions: list[str] | None = None) -> list[Any]:
        """Reset and act, the walkthrough's actions if none are given: [first observation, (obs, reward, done), ...]."""
        told: list[Any] = [env.reset(task)]
        for action in env.walkthrough() if actions is None else actions:
            observation, reward, done, _ = env.step(action)
            told.append((observation, reward, done))
            if done:
                break
        return told if self.deterministic else [(reward, done) for _, reward, done in told[1:]]

    def test_tasks_have_unique_ids_that_two_instances_agree_on(self, shared, other):
        tasks, told = shared.tasks(), shared.describe()
        assert len(tasks) >= 2
        assert len({task.id for task in tasks}) == len(tasks)
        assert all(task.id and task.query for task in tasks)
        assert other.tasks() == tasks
        assert told["dataset"] and told["sha256"]

    def test_an_episode_can_be_reset_at_any_time(self, shared):
        task, other = shared.tasks()[:2]
        first = shared.reset(task)
        assert isinstance(first, str) and first
        shared.step(shared.walkthrough()[0])
        shared.reset(other)
        assert shared.reset(task) == first or not self.deterministic

    def test_reset_without_a_task_takes_the_next_one(self, other):
        """One that is given does not move the stream on."""
        for task in other.tasks()[:2]:
            told = other.reset()
            assert told and (told == other.reset(task) or not self.deterministic)

    def test_a_step_and_the_ground_truth_have_the_agreed_form(self, shared):
        shared.reset(shared.tasks()[0])
        assert isinstance(shared.get_ground_truth(), str) and shared.get_ground_truth()
        observation, reward, done, info = shared.step(shared.walkthrough()[0])
        assert [type(observation), type(reward), type(done)] == [str, float, bool]
        assert [type(info["valid"]), type(info["won"])] == [bool, bool]
        assert info["valid"]

    def test_the_walkthrough_solves_the_task_and_nothing_else_does(self, shared):
        for task in shared.tasks()[:2]:
            shared.reset(task)
            assert not shared.evaluate(None), "solved at the start"
            for action in shared.walkthrough():
                _, _, done, info = shared.step(action)
                if done:  # a walkthrough may go on a little beyond the goal
                    break
            assert done
            assert info["won"] is True
            assert shared.evaluate(action)
            with pytest.raises(EnvStateError):
                shared.step("look")
            shared.reset(task)
            assert not shared.evaluate(None), "still solved after a reset"

    def test_any_text_is_survived(self, shared):
        running, task = False, shared.tasks()[0]
        for name, action in ODD_ACTIONS.items():
            running or shared.reset(task)
            observation, _, done, info = shared.step(action)
            assert isinstance(observation, str), name
            assert not info["won"], name
            running = not done
        shared.reset(task)
        assert shared.step(shared.walkthrough()[0])[3]["valid"]

    def test_an_invalid_action_is_an_observation_and_marked(self, shared):
        if self.invalid_action is None:
            pytest.skip("this env accepts every text")
        shared.reset(shared.tasks()[0])
        observation, reward, done, info = shared.step(self.invalid_action)
        assert observation
        assert (reward, done, info["valid"], info["won"]) == (0.0, False, False, False)

    def test_the_same_actions_give_the_same_answers_in_two_instances_side_by_side(self, shared, other):
        one, two = shared.tasks()[:2]
        alone = [self.play(shared, one), self.play(other, two)]
        with ThreadPoolExecutor(2) as pool:
            together = [pool.submit(self.play, other, one), pool.submit(self.play, shared, two)]
            assert [future.result() for future in together] == alone

    def test_a_worker_that_dies_is_an_infra_error_and_the_next_task_runs(self, other):
        task = other.tasks()[0]
        other.reset(task)
        pid = self.worker_pid(other)
        if pid is None:
            pytest.skip("this env has no process of its own")
        actions = other.walkthrough()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(InfraError):
            other.step(actions[0])
        self.play(other, task, actions)
        assert other.evaluate(actions[-1])

    def test_there_is_no_step_before_a_reset_and_after_close(self, folder, other):
        """The last test, as it closes `other`; its fixture does so once more."""
        with self.make_env(folder) as fresh, pytest.raises(EnvStateError):
            fresh.step("look")
        other.reset(other.tasks()[0])
        pid = self.worker_pid(other)
        other.close()
        for work in (lambda: other.step("look"), lambda: other.reset(other.tasks()[0])):
            with pytest.raises(EnvStateError):
                work()
        if pid is not None:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
