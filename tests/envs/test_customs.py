"""env=customs, setting=told, distiller.style=quote: the links of the positive control, each by a scripted player."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import read_json, read_rows
from env_contract import EnvContract

from core.errors import UserError
from core.learning.lessons import Distiller
from core.models.base import Role
from core.models.offline import ScriptedModel
from core.types import Step, Task, Trajectory, Verdict
from envs.customs import BRANDS, BUTTONS, CustomsEnv
from scripts.audit import main as audit

RULE = re.compile(r"[Ee]very (\w+) machine must be started with its (\w+) button\.")
CUSTOMS = ("env=customs", "env.jobs_per_family=3", "llm=scripted", "llm.script.path=test_customs.play")
CUSTOMS += ("embedder=hashing",)


def make(**fields) -> CustomsEnv:
    return CustomsEnv(**({"instructions": "", "max_steps": 4, "families": 3, "jobs_per_family": 2} | fields))


class TestTwoPresses(EnvContract):
    def make_env(self, folder: Path) -> CustomsEnv:
        return make(rule="steps", page="brand_last")


class TestByTheLamp(EnvContract):
    def make_env(self, folder: Path) -> CustomsEnv:
        return make(rule="condition")


def play(messages, role, sample):
    """A worker, a judge and a distiller of env=customs: each knows what its prompt says, and nothing else."""
    text = messages[-1]["content"]
    if role == "judge":
        return f'Thoughts: it is said.\nStatus: "{"success" if "The machine starts" in text else "failure"}"'
    if role == "extractor":
        stated = RULE.search(text)
        content = stated[0] if stated else "Press with care."
        return f"```\n# Memory Item 1\n## Title Buttons\n## Description A rule.\n## Content {content}\n```"
    told = dict(RULE.findall(messages[0]["content"]))
    brand = next(name for name in BRANDS if name in messages[1]["content"])
    return f"press {told.get(brand, 'yellow')}"


def test_the_rule_belongs_to_the_brand_and_the_seed_and_every_task_can_be_solved():
    for rule in ("plain", "condition", "steps"):
        for page in ("brand_first", "brand_last"):
            env = make(rule=rule, page=page, families=12, jobs_per_family=4)
            for task in env.tasks():
                assert task.type in env.reset(task)
                for action in env.walkthrough():
                    *_, done, info = env.step(action)
                assert done and info["won"] and env.evaluate(None)
    rules = {seed: [make(seed=seed).rule_of(brand).words() for brand in BRANDS] for seed in (0, 0, 1)}
    assert rules[0] != rules[1]


def test_a_wrong_press_ends_the_job_and_is_told_the_rule():
    env = make()
    task = env.tasks()[0]
    env.reset(task)
    wrong = next(button for button in BUTTONS if f"press the {button} button" not in env.walkthrough())
    said, reward, done, info = env.step(f"Press the {wrong} button.")
    assert env.rule_of(task.type).words() in said and (reward, done, info["won"]) == (0.0, True, False)


def test_a_chance_player_gets_a_quarter_and_no_place_among_the_buttons_is_right():
    env = make(families=12, jobs_per_family=50)
    places, reds = [0] * 4, 0
    for task in env.tasks():
        listed = re.findall(r"\n- press the (\w+) button", env.reset(task))
        [right] = (action.split()[2] for action in env.walkthrough())
        places[listed.index(right)] += 1
        reds += right == "red"
    assert all(100 < place < 200 for place in places)
    assert reds < 400  # of 600


def test_each_arm_of_the_control_shows_where_the_chain_breaks(here, tmp_path):
    """Without a lesson a guess; with the right one all is solved; with one drawn by lot what the lot gives."""
    won = {}
    for arm in ("no_memory", "told_lesson", "told_random", "true_labels", "reasoningbank", "quote"):
        run_dir, _ = here(*CUSTOMS, f"arm={arm}", run_dir=tmp_path / arm)
        rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
        won[arm] = summary["n_success"]
        if arm == "told_lesson":
            assert all(row["task_type"] in row["trajectories"][0]["opening"][0]["content"] for row in rows)
            assert summary["label_source"] == "oracle+answers" and summary["n_lessons"] == 0
        if arm == "told_random":
            right = [row["task_type"] in row["trajectories"][0]["opening"][0]["content"] for row in rows]
            assert 0 < sum(right) < 18
            assert all(row["status"] == "success" for row, told in zip(rows, right) if told)
        assert audit([str(run_dir)]) == 0
    assert won["told_lesson"] == 18 and won["no_memory"] <= won["told_random"] < 18
    assert won["no_memory"] < won["reasoningbank"] == won["true_labels"] == won["quote"] < 18


def test_a_run_with_told_lessons_is_continued_and_its_lessons_are_there_once(here, tmp_path):
    words = (*CUSTOMS, "arm=told_lesson")
    run_dir, _ = here(*words, "limit=5", run_dir=tmp_path / "run")
    here(*words, "limit=9", run_dir=run_dir)
    whole, _ = here(*words, "limit=9", run_dir=tmp_path / "whole")
    assert (run_dir / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert read_json(run_dir / "manifest.json")["bank_labels"] == ["answers", "oracle"]


def test_a_bank_of_told_lessons_is_never_anothers_and_needs_lessons_to_tell(here, tmp_path):
    with pytest.raises(UserError, match="setting=told makes a bank of its own: leave out memory.path"):
        here(*CUSTOMS, "arm=told_lesson", f"memory.path={tmp_path / 'bank'}")
    assert not (tmp_path / "bank").exists()
    with pytest.raises(UserError, match="has no lessons to tell"):
        here("env=warmup", "llm=scripted", "embedder=hashing", "setting=told")


@pytest.mark.parametrize("label", ["success", "failure"])
def test_a_quoting_distiller_keeps_what_quotes_an_observation(label):
    said = "It does not start. The rule here: every Ravel machine must be started with its red button."
    step = Step(text="press blue", thought="", action="press blue", observation=said)
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "ended_by": "end", "reward": 0.0}
    attempt = Trajectory(**values, steps=(step,), success=False, gold="")
    asked = []

    def script(messages, role, sample):
        asked.append(messages[-1]["content"])
        items = ["Every Ravel machine must be started with its RED button. Press it.", "Check the power supply first."]
        form = "# Memory Item {}\n## Title T{}\n## Description D.\n## Content {}\n"
        return "".join(form.format(n, n, text) for n, text in enumerate(items, 1))

    role = Role(name="extractor", llm=ScriptedModel(script=script), temperature=0.0, max_tokens=None)
    made = Distiller(role=role, seed=0, style="quote").distil(
        Task(id="t", query="q"), attempt, Verdict(label=label, source="llm"), [], None
    )
    assert [lesson.title for lesson in made.lessons] == ["T1"] and made.n_dropped == 1
    assert "copied exactly from an observation" in asked[0]


def test_quotes_are_refused_where_a_reply_is_the_whole_attempt(here):
    words = ("env=customs", "arm=quote", "llm=free", "embedder=hashing", "limit=1")
    with pytest.raises(UserError, match="style=quote: here a reply is the whole attempt"):
        here(*words, "max_steps=1")
    here(*words)


def test_two_presses_are_said_where_two_are_needed(here):
    run_dir, _ = here("env=customs_steps", "agent=gold", "workflow=vanilla", "llm=free", "embedder=hashing", "limit=1")
    [row] = read_rows(run_dir)
    assert row["reward"] == 1.0 and len(row["trajectories"][0]["steps"]) == 2
    env = read_json(run_dir / "manifest.json")["config"]["env"]
    assert env["rule"] == "steps" and "Two of the four buttons" in env["instructions"]
