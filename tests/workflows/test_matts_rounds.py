"""Rounds that go on with one another, and selections that must not know the truth."""

from __future__ import annotations

import pytest
from test_matts import PARALLEL, SEQUENTIAL, played  # noqa: F401 - played is a fixture

from core.errors import UserError


def slow(messages, role, sample):
    """The toy world's player, who waits twice before it speaks, by a lesson that it names; its note names none."""
    turns = sum(message["role"] == "assistant" for message in messages)
    return "Thought: I go by [1].\nAction: wait" if role == "agent" and turns < 2 else None


def test_an_attempt_that_is_over_is_judged_and_counted_by_what_it_did_and_not_by_its_note(played):  # noqa: F811
    keys = ("refine=continue", "memory=confidence", "memory.uses=cited", "limit=8")
    rows, summary, seen = played(slow, *SEQUENTIAL, *keys)
    assert {row["chosen"] for row in rows} == {1}
    [note] = rows[0]["trajectories"][1]["steps"]
    assert (note["action"][:4], note["observation"]) == ("say ", "(the episode is over: no action was taken)")
    assert all(len(row["trajectories"][1]["steps"]) == 1 for row in rows)
    assert [row["status"] for row in rows] == ["failure"] * 4 + ["success"] * 4
    assert [row["verdict"]["label"] for row in rows] == [row["status"] for row in rows]
    assert summary["judge_agreement"] == 1.0
    assert not any("no action was taken" in prompt for role, _, prompt in seen if role == "judge")
    assert summary["mean_steps"] == 3.0
    assert {hit["n_cited"] for row in rows for hit in row["retrieved"]} == {1}


def test_a_round_that_goes_on_is_judged_with_the_steps_before_it(played):  # noqa: F811
    rows, summary, seen = played(slow, *SEQUENTIAL, "refine=continue", "max_steps=2", "limit=8")
    judged = [(sample, prompt) for role, sample, prompt in seen if role == "judge" and "box 1 of the amber" in prompt]
    first, second = (prompt for _, prompt in sorted(judged))
    assert [prompt.count("Action: wait") for prompt in (first, second)] == [2, 2]
    assert [prompt.count("Action: say") for prompt in (first, second)] == [0, 1]
    assert len(rows[0]["trajectories"][1]["steps"]) == 1  # what is recorded of a round is its own
    assert [made["ended_by"] for made in rows[-1]["trajectories"]] == ["step_limit", "goal"]
    assert summary["n_success"] == 4


def test_a_round_in_a_new_episode_is_judged_by_itself(played):  # noqa: F811
    _, summary, seen = played(slow, *SEQUENTIAL, "refine=restart", "limit=1")
    first, second = (prompt for _, prompt in sorted((n, prompt) for role, n, prompt in seen if role == "judge"))
    assert [prompt.count("Action: wait") for prompt in (first, second)] == [2, 0]
    assert summary["mean_steps"] == 1.0


@pytest.mark.parametrize(
    ("rounds", "keep", "by", "chosen", "rates"),
    [
        ("7-7", "true", "kept", 2, [1.0, 1.0, 1.0]),  # one that ended after the middle round would have kept the first
        ("7--", "true", "kept", 0, [1.0, 1.0, 1.0]),
        ("7--", "false", "last", 2, [1.0, 0.0, 0.0]),
        ("78-", "true", "kept", 1, [1.0, 0.0, 0.0]),
        ("-77", "true", "last", 2, [0.0, 1.0, 1.0]),
    ],
)
def test_the_rate_after_a_round_is_that_of_a_run_that_ends_there(played, tmp_path, rounds, keep, by, chosen, rates):  # noqa: F811
    answers = {"judge": "Thoughts: hm.\nStatus: success"}
    answers["extractor"] = "# Memory Item 1\n## Title T\n## Description D.\n## Content C."

    def says(messages, role, sample):
        said = rounds[len(messages) // 2 - 1] if role == "agent" else "-"
        return answers.get(role, "There is no earlier attempt.") if said == "-" else f"So \\boxed{{{said}}}."

    data = tmp_path / "seven.jsonl"
    data.write_text('{"id": "a", "question": "What is 3 + 4?", "answer": "7"}\n')
    words = ("env=math500", f"env.path={data}", "llm=scripted", "embedder=hashing", "workflow=matts_sequential", "r=2")
    [row], summary, _ = played(says, *words, f"workflow.keep_answer={keep}")
    assert [made["info"]["stated"] for made in row["trajectories"]] == [said != "-" for said in rounds]
    assert (row["selection"]["by"], row["chosen"]) == (by, chosen)
    assert summary["scaling"]["success_by_round"] == rates
    assert summary["success_rate"] == rates[-1]
    check = row["trajectories"][1]["opening"][-1]["content"]
    assert "The task was:\nWhat is 3 + 4?" in check
    assert check.endswith("Think step by step, then give the final answer.")


@pytest.mark.parametrize("words", ["env=toy setting=true_labels", "env=toy setting=train", "env=customs setting=told"])
def test_the_truth_selects_no_answer(here, words):
    with pytest.raises(UserError, match="lets the truth choose the answer"):
        here(*words.split(), *PARALLEL[1:], "judge=oracle", "select=judge", "k=2")


def test_where_there_is_nothing_to_select_the_truth_may_judge(here):
    assert here(*PARALLEL, "judge=oracle", "select=judge", "k=1", "setting=train", "limit=1")[1] == 0.0
