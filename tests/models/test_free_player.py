"""llm=free: every workflow on any env without a model, the same each time, and named as no model everywhere."""

from __future__ import annotations

import json
from itertools import product

import pytest
from conftest import REPO, read_json, read_rows

from core.agent import offer
from core.learning.judges import CONFIDENCE_SCHEMA, JUDGE_SCHEMA
from core.learning.structured import (
    lessons_schema,
    object_schema,
    parse_confidence,
    parse_json,
    parse_lessons,
    parse_status,
)
from core.memory.hygiene.guard import SCHEMA as OPINION
from core.models.base import Request
from core.models.offline import FreePlayer

WORKFLOWS = sorted(path.stem for path in (REPO / "config/workflow").glob("*.yaml"))
NAME = "free (no model)"
FREE = ("llm=free", "embedder=hashing", "limit=4")


@pytest.fixture
def envs(tmp_path):
    """Words for three envs: one that lists its actions, one with options, one with questions alone."""
    rows = [
        {"id": f"q{n}", "question": f"Which is {n}?", "options": ["one", "two", "three"], "answer_index": n % 3}
        for n in range(4)
    ]
    (tmp_path / "choice.jsonl").write_text("\n".join(map(json.dumps, rows)))
    choice = ("env=mmlu_pro", "env.dataset=own", f"env.path={tmp_path / 'choice.jsonl'}")
    return {"toy": ("env=toy",), "warmup": ("env=warmup",), "choice": choice}


@pytest.mark.parametrize(
    ("env", "workflow"), [*product(["toy"], WORKFLOWS), *product(["warmup", "choice"], ["matts_parallel", "vanilla"])]
)
def test_every_workflow_runs_to_lessons_in_the_bank(here, envs, env, workflow):
    scale = ("k=3",) if workflow == "matts_parallel" else ("r=1",) if workflow == "matts_sequential" else ()
    run_dir, _ = here(*FREE, *envs[env], f"workflow={workflow}", *scale)
    summary, rows = read_json(run_dir / "summary.json"), read_rows(run_dir)
    assert (summary["n"], summary["n_infra_error"], summary["n_learning_errors"]) == (4, 0, 0)
    assert summary["cost_usd"] == 0.0
    assert all(step["valid"] for row in rows for attempt in row["trajectories"] for step in attempt["steps"])
    assert all(verdict["parsed"] for row in rows for verdict in row["verdicts"])
    assert all((row["selection"] or {}).get("parsed", True) for row in rows)
    assert all(row["n_dropped"] == 0 for row in rows)
    models = read_json(run_dir / "manifest.json")["models"].values()
    assert {model["model"] for model in models} == {NAME}
    if workflow == "vanilla":
        assert summary["n_lessons"] == 0
        return
    learned = [row for row in rows if row["lessons"]]
    assert learned or workflow.endswith("_only")  # of attempts judged so, and the judge throws a coin
    assert any(row["retrieved"] for row in rows) == bool(learned[:1] and learned[0]["index"] < 3)
    labels = {row["verdict"]["label"] for row in learned}
    assert labels <= {"success", "failure"} - ({"failure"} if workflow.endswith("success_only") else set())


def test_arms_with_one_attempt_act_alike_and_a_run_repeats_itself(here, tmp_path):
    def acted(name, *words):
        run_dir, _ = here(*FREE, "env=toy", "limit=12", *words, run_dir=tmp_path / name)
        rows = read_rows(run_dir)
        return [[step["action"] for step in row["trajectories"][0]["steps"]] for row in rows], run_dir

    bare, _ = acted("bare", "workflow=vanilla")
    learned, first = acted("learned", "workflow=reasoningbank")
    in_user, _ = acted("in_user", "workflow=reasoningbank", "memory.inject=user")
    assert bare == learned == in_user
    assert len({action for (action,) in bare}) > 1
    _, again = acted("again", "workflow=reasoningbank")
    assert (first / "episodes.jsonl").read_bytes() == (again / "episodes.jsonl").read_bytes()
    other, _ = acted("other", "workflow=vanilla", "seed=1")
    assert other != bare
    drawn, _ = acted("random", "workflow=vanilla", "agent=random")
    assert drawn == bare


def test_what_is_not_listed_is_drawn_from_the_text():
    def said(question, answer_format="Think step by step.", **more):
        messages = [{"role": "system", "content": answer_format}, {"role": "user", "content": question}]
        none = {"role": "user", "content": '{"admissible": []}'}
        return FreePlayer().chat(Request(messages=[*messages, none], role="agent", seed=5, **more)).text

    assert said("What is 6 times 7?") == "The answer is \\boxed{7}."  # 5 of the numbers 6, 7
    assert said("Which?\n\n(A) x\n(B) y\n(C) z") == "The answer is \\boxed{C}."
    act = "Reply with one action and nothing else, on one line."
    assert said("Find the number, from 1 to 100.", act) == "Action: 6"
    react = "Thought: <what you conclude and plan>\nAction: <one action>"
    assert said("Find the exit.", react).endswith("\nAction: exit")
    assert said("?", act) == "Action: look"
    lesson = "<memory_items>\n[1] 900\n</memory_items>\n\n"
    assert said(f"{lesson}What is 6 times 7?") == said("What is 6 times 7?")


def test_an_env_is_asked_for_its_actions_only_while_it_runs():
    from envs.toy import ToyEnv

    env = ToyEnv(instructions="", max_steps=1)
    env.reset()
    assert json.loads(offer(env)["content"])["admissible"] == env.admissible()
    env.step("say nothing")
    assert json.loads(offer(env)["content"]) == {"admissible": []}


def ask(schema, text="Attempt 1:\nAction: go\n\nAttempt 2:\nAction: stay\n", role="judge", sample=0):
    messages = [{"role": "user", "content": text}]
    return FreePlayer().chat(Request(messages=messages, role=role, sample=sample, schema=schema)).text


def test_a_reply_keeps_to_its_schema():
    texts = [ask(CONFIDENCE_SCHEMA, f"Action: {n}") for n in range(20)]
    assert {parse_status(text) for text in texts} == {"success", "failure"}
    assert all(0 <= parse_confidence(text) <= 1 for text in texts)
    assert set(json.loads(ask(JUDGE_SCHEMA))) == {"thoughts", "status"}
    lessons, dropped = parse_lessons(ask(lessons_schema(3), role="extractor"), 3)
    assert dropped == 0
    assert lessons[0].title in ("Tried: go", "Tried: stay")
    assert "No model" in lessons[0].description
    index = object_schema({"index": {"type": "integer", "minimum": 1}})
    picked = {parse_json(ask(index, sample=n), "index")["index"] for n in range(20)}
    assert picked == {1, 2}  # one of the attempts in the prompt
    assert isinstance(json.loads(ask(OPINION))["harmful"], bool)
    assert len(json.loads(ask(lessons_schema(3), "Action: " + "x" * 999))["items"][0]["title"]) == 100
