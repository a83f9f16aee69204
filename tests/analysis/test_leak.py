"""No gold answer reaches a prompt of a test_time run, unless the question or the model's own words hold it."""

from __future__ import annotations

import json
import re

import pytest
from conftest import read_rows

# Answers that no other text holds by chance.
ROWS = [
    {"id": f"leak/{n}", "question": f"What is the {n}th secret number?", "answer": str(7919000 + 7 * n)}
    for n in range(8)
]


ARMS = [
    "workflow=vanilla",
    "workflow=reasoningbank",
    "workflow=reasoningbank_success_only",
    "workflow=reasoningbank_failure_only",
    "memory=synapse distiller.failures=true",
    "memory=awm distiller.failures=true",
    "retrieval=random stream.batch=4",
    "memory=dc_cumulative",
    "memory=dc_synthesis",
    "memory=ace",
    "memory=expel",
    "memory=memp",
    "memory=amem",
    "arm=grpo",
    "workflow=matts_parallel",
    "workflow=matts_parallel memory=none",
    "workflow=matts_parallel memory=awm",
    "workflow=matts_parallel contrast=null select=judge",
    "workflow=matts_parallel contrast.labels=judge select=majority",
    "workflow=matts_parallel judge=heuristic select=judge contrast=null",
    "workflow=matts_sequential r=2",
    "workflow=matts_sequential contrast=null refine=continue",
]


class Recorder:
    """A student that is right every third time, an honest judge and distiller; keeps every prompt it was given."""

    def __init__(self):
        self.prompts: list[tuple[str, str]] = []
        self.said: list[str] = []

    def __call__(self, messages, role, sample):
        self.prompts.append((role, "\n".join(m["content"] for m in messages)))
        turn = int(re.findall(r"What is the (\d+)th secret", self.prompts[-1][1])[-1])
        text = {
            "agent": f"I think the final answer is \\boxed{{{ROWS[turn]['answer'] if turn % 3 == 0 else 100 + turn}}}.",
            "judge": f'Thoughts: hm.\nStatus: "{"success" if turn % 2 else "failure"}"',
            "extractor": f"# Memory Item 1\n## Title Lesson {turn}\n## Description Rule.\n## Content Look at {turn}.",
            "selector": '{"analysis": "The second.", "index": 2}',
        }[role]
        self.said.append(text)
        return text


@pytest.fixture
def play(here, monkeypatch, tmp_path):
    data = tmp_path / "secret.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    recorder = Recorder()
    monkeypatch.setattr("envs.toy_script.play", recorder)

    def run(*words):
        run_dir, _ = here("env=math500", f"env.path={data}", "llm=scripted", "embedder=hashing", *words)
        return recorder, read_rows(run_dir)

    return run


@pytest.mark.parametrize("arm", ARMS)
def test_test_time_prompts_hold_no_gold_that_the_model_did_not_say_itself(play, arm):
    recorder, rows = play(*arm.split())
    own = {row["answer"] for row in ROWS[::3]}  # those the student says itself
    assert len(rows) == 8
    assert sum(row["status"] == "success" for row in rows) == 3
    for _role, prompt in recorder.prompts:
        for row in ROWS:
            if row["answer"] not in own:
                assert row["answer"] not in prompt


def test_the_judge_and_the_distiller_are_told_nothing_of_the_truth(play):
    recorder, rows = play()
    for role, prompt in recorder.prompts:
        if role in ("judge", "extractor"):
            for word in ("reward", "ground truth", "would have been", "gold", "oracle", "correct result"):
                assert word not in prompt.lower()
    # The stored outcome is the judge's, right or wrong, never the env's.
    for row in rows:
        assert row["verdict"]["source"] == "llm"
        assert row["records"][0]["outcome"] == row["verdict"]["label"]
        assert row["records"][0]["score"] == (1.0 if row["verdict"]["label"] == "success" else 0.0)
    assert any(row["verdict"]["label"] != row["status"] for row in rows)


def test_true_labels_change_the_labels_and_tell_nothing_else(play):
    recorder, rows = play("setting=true_labels")
    assert not any(role == "judge" for role, _ in recorder.prompts)
    assert all(row["verdict"]["label"] == row["status"] and row["verdict"]["source"] == "oracle" for row in rows)
    failures = [row for row in rows if row["status"] == "failure"]
    asked = [prompt for role, prompt in recorder.prompts if role == "extractor"]
    assert len(failures) == 5
    assert not any("correct result" in prompt for prompt in asked)
    for row in failures:
        assert not any(row["trajectories"][0]["gold"] in prompt for prompt in asked)


def test_train_may_tell_the_failure_prompt_the_answer_and_only_that(play):
    recorder, rows = play("setting=train")
    told = [p for role, p in recorder.prompts if role == "extractor" and "correct result" in p]
    failures = [row for row in rows if row["status"] == "failure"]
    assert len(told) == len(failures) == 5
    assert not any(role == "judge" for role, _ in recorder.prompts)
    for row, prompt in zip(failures, told, strict=True):
        assert row["trajectories"][0]["gold"] in prompt


def test_the_observation_after_an_answer_says_nothing(play):
    _, rows = play()
    assert {step["observation"] for row in rows for t in row["trajectories"] for step in t["steps"]} == {""}
