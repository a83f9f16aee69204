"""One attempt: the conversation grows, limits and breakages are told apart, randomness comes from names."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest

from core.agent import ReActAgent
from core.concurrency import ordered_map
from core.conversation import NO_REPLY
from core.errors import InfraError, StopRun
from core.models.base import ChatModel, Reply, Role
from core.seeding import derive_seed
from core.types import Task, Usage
from envs.base import BaseEnv
from envs.pool import EnvPool
from workflows.rollout import NO_ACTION, Rollout

TASK = Task(id="count/1", query="Count to three.")


@dataclass(kw_only=True)
class Counting(BaseEnv):
    """Won by three `next`; `break` breaks it."""

    instructions: str = "Say next three times."
    max_steps: int = 6
    count: int = field(default=0, init=False)

    def _tasks(self, split):
        return [TASK]

    def _reset(self, task):
        self.count = 0
        return "Start."

    def _step(self, action):
        if action == "break":
            raise InfraError("the engine died")
        if action == "quit":
            return "You gave up.", 0.0, True, {"won": False}
        if action != "next":
            return "Nothing happens.", 0.0, False, {"valid": False, "won": False, "admissible": ["next"]}
        self.count += 1
        return f"At {self.count}.", 0.5, self.count == 3, {"won": self.count == 3, "level": self.count}

    def get_ground_truth(self):
        return "three"

    def evaluate(self, prediction):
        return self.count == 3


class Sequence(ChatModel):
    """Says its lines one after another and keeps what it was sent."""

    name, supports_schema = "sequence", False

    def __init__(self, *lines):
        self.lines, self.calls, self.seeds = list(lines), [], []

    def chat(self, request):
        self.calls.append([dict(m) for m in request.messages])
        self.seeds.append(request.seed)
        line = self.lines[min(len(self.calls), len(self.lines)) - 1]
        if isinstance(line, Exception):
            raise line
        return Reply(text=line, usage=Usage(calls=1, prompt_tokens=2), finish_reason="stop", model="m")


def attempt(*lines, sample=0, **limits):
    model = Sequence(*lines)
    role = Role(name="agent", llm=model, temperature=0.7, max_tokens=None)
    rollout = Rollout(agent=ReActAgent(answer_format="Act."), role=role, seed=0, **limits)
    return rollout.run(Counting(), TASK, [], sample), model


def test_a_won_attempt():
    trajectory, _ = attempt("Thought: go\nAction: next")
    assert (trajectory.ended_by, trajectory.success, trajectory.reward) == ("goal", True, 1.5)
    assert [s.observation for s in trajectory.steps] == ["At 1.", "At 2.", "At 3."]
    assert trajectory.usage == Usage(calls=3, prompt_tokens=6)
    assert trajectory.info == {"won": True, "level": 3}
    assert trajectory.gold == "three"


def test_the_conversation_is_appended_to_and_never_rewritten():
    _, model = attempt("Action: look", "no action here", "", "Action: next")
    for before, after in zip(model.calls, model.calls[1:], strict=False):
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2
    assert [m["role"] for m in model.calls[-1]][:4] == ["system", "user", "assistant", "user"]
    assert model.calls[-1][4:8] == [
        {"role": "assistant", "content": "no action here"},
        {"role": "user", "content": NO_ACTION},
        {"role": "assistant", "content": NO_REPLY},
        {"role": "user", "content": NO_ACTION},
    ]


def test_each_step_is_told_and_a_reply_without_an_action_is_too(caplog):
    caplog.set_level("INFO", "actions")
    attempt("no action here", "Action: look")
    told = [record.getMessage() for record in caplog.records if record.name == "actions"]
    assert told[0].startswith("step 1: no action in: no action here (") and told[1].startswith("step 2: look (")


def test_an_invalid_action_is_an_observation_and_counted():
    trajectory, _ = attempt("Action: dance", "gibberish", "Action: next")
    assert [s.valid for s in trajectory.steps] == [False, False, True, True, True]
    assert [s.observation for s in trajectory.steps[:2]] == ["Nothing happens.", NO_ACTION]


def test_an_attempt_that_only_repeats_itself_is_ended_where_this_is_wanted():
    played, _ = attempt("Action: dance")
    assert (played.ended_by, len(played.steps)) == ("step_limit", 6)
    stuck, model = attempt("Action: dance", "Action: look", "Action: look", "Action: dance", max_repeats=3)
    assert (stuck.ended_by, len(stuck.steps), stuck.success, len(model.calls)) == ("stuck", 6, False, 6)
    moving, _ = attempt("Action: next", max_repeats=2)  # the same action, but it led on
    assert moving.ended_by == "goal"
    mute, _ = attempt("no action here", "none here either", max_repeats=2)
    assert (mute.ended_by, len(mute.steps)) == ("stuck", 2)


def test_goal_end_step_limit_and_error_are_four_things():
    assert attempt("Action: quit")[0].ended_by == "end"
    limited, _ = attempt("Action: next", max_steps=2)
    assert (limited.ended_by, len(limited.steps), limited.success) == ("step_limit", 2, False)
    broken, _ = attempt("Action: next", "Action: break")
    assert (broken.ended_by, len(broken.steps)) == ("infra_error", 1)
    assert broken.error == "env: the engine died"
    silent, _ = attempt("Action: next", InfraError("no answer"))
    assert (silent.ended_by, len(silent.steps), silent.usage.calls) == ("infra_error", 1, 1)


def test_what_no_later_call_can_mend_is_not_swallowed():
    with pytest.raises(StopRun):
        attempt(StopRun("no key"))


def test_seeds_come_from_names_alone():
    _, one = attempt("Action: next")
    _, two = attempt("Action: next")
    _, other = attempt("Action: next", sample=1)
    assert one.seeds == two.seeds
    assert len({*one.seeds, *other.seeds}) == 6
    assert derive_seed(0, "a", 1) != derive_seed(0, "a1") != derive_seed(0, "a", "1", "")
    assert all(0 <= derive_seed(n) < 2**31 for n in range(200))


def test_a_pool_makes_as_many_envs_as_are_used_at_once_and_closes_all():
    pool = EnvPool(Counting)
    with pool.lease() as one, pool.lease() as two:
        assert one is not two
    with pool.lease() as again:
        assert again in (one, two)
    pool.close()
    assert {one._state, two._state} == {"closed"}


def test_ordered_map_keeps_order_and_really_runs_side_by_side():
    barrier = threading.Barrier(5, timeout=10)

    def meet(n):
        barrier.wait()  # passes only when five are in flight at once
        time.sleep((5 - n % 5) / 200)
        return n

    assert list(ordered_map(meet, range(10), 5)) == list(range(10))


@pytest.mark.parametrize("workers", [1, 4])
def test_ordered_map_gives_the_results_before_an_error_first(workers):
    def check(n):
        if n == 3:
            raise ValueError("three")
        return n

    seen = []
    with pytest.raises(ValueError, match="three"):
        for n in ordered_map(check, range(50), workers):
            seen.append(n)
    assert seen == [0, 1, 2]
