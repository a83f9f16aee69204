"""judge=consensus and self_consistency: labels by agreement, without a judging model and without the truth."""

from __future__ import annotations

import json

import pytest
from conftest import TOY, read_json, read_rows

from core.errors import InfraError, UserError
from core.learning.attempts import Attempts
from core.learning.judges import Consensus, SelfConsistency
from core.plain_answer import plain_answer
from core.types import Step, Task, Trajectory, Usage

LESSON = "# Memory Item 1\n## Title T{}\n## Description D.\n## Content C."


def attempt(answer, *, ended_by="end", calls=1):
    step = Step(text="x", thought="", action="x", observation="")
    facts = {"reward": 0.0, "success": False, "gold": "secret", "usage": Usage(calls=calls)}
    error = "timeout: gone" if ended_by == "infra_error" else None
    return Trajectory(
        id="t", sample=0, opening=(), steps=(step,), answer=answer, ended_by=ended_by, error=error, **facts
    )


def judged(answers, more=()):
    attempts = Attempts(task=Task(id="t", query="Q"), trajectories=[attempt(a) for a in answers], evaluate=None)
    asked = []

    def make(n):
        asked.append(n)
        return [each if isinstance(each, Trajectory) else attempt(each) for each in more]

    judge = SelfConsistency(n_more=len(more)) if more else Consensus()
    verdicts = judge.judge_all(attempts, make)
    assert all(verdict.source == ("self_consistency" if more else "consensus") for verdict in verdicts)
    return [verdict.label for verdict in verdicts], verdicts, asked


YES, NO = "success", "failure"


def test_the_label_is_agreement(subtests):
    cases = [
        (["7", "7", "8"], (), [YES, YES, NO]),
        ([" 7  a", "7 A", "8"], (), [YES, YES, NO]),  # as select=majority compares them
        (["(1,2)", "$(1, 2)$", "(1, 3)"], (), [YES, YES, NO]),
        (["7", "7", None], (), [YES, YES, NO]),
        (["7", "8"], (), [NO, NO]),
        (["7", "7", "8", "8"], (), [NO] * 4),
        (["7", "8", "9", "9"], (), [NO, NO, YES, YES]),
        ([None, None], (), [None, None]),
        (["7", None], (), [NO, NO]),
        (["7"], (), [None]),
        (["7"], ("7", "8"), [YES]),
        (["7"], ("8", "8"), [NO]),
        (["7"], ("8", "9"), [NO]),
        ([None], ("8", "8"), [None]),  # nothing to compare: nobody is asked
    ]
    for answers, more, labels in cases:
        with subtests.test(answers=answers, more=more):
            found, verdicts, asked = judged(answers, more)
            assert found == labels
            assert asked == ([len(more)] if more and any(answers) else [])
            assert sum(verdict.usage.calls for verdict in verdicts) == (len(more) if asked else 0)


SAME = [
    ("(1,2)", "(1, 2)", "$(1,2)$", r"\left(1,\, 2\right)", r"\((1,2)\)"),
    ("1000", "1,000", "$1,000$", r"1,\!000", "1{,}000", "1,000."),
    (r"\frac{1}{2}", r"\dfrac{1}{2}", r"$\frac{1}{2}$."),
    ("x=5", "x = 5", "X = 5"),
    ("-5", "- 5", "−5"),
    ("-1000", "- 1,000"),
    ("(-5,3)", "( - 5, 3)"),
    ("1-2", "1 - 2"),
    ("b", r"\text{B}", "B."),
]
OTHER = ["1 -2", "ab", "a b", "(1,234)", "(1234)", "1/2", "0.5", "[1,2]", "12", "1 2", "1.2", "1, 000", "1, 234"]


def test_one_answer_in_several_notations_is_one_vote(subtests):
    for answers in SAME:
        with subtests.test(answers=answers):
            assert judged(answers)[0] == [YES] * len(answers)


def test_other_answers_stay_apart():
    assert len({*map(plain_answer, OTHER), *(plain_answer(answers[0]) for answers in SAME)}) == len(OTHER) + len(SAME)


def test_the_confidence_is_the_share_of_the_votes():
    assert [verdict.confidence for verdict in judged(["7", "7", "8"], ("7", None))[1]] == [0.6] * 3
    assert judged(["7", "8"])[1][0].confidence is None


def test_a_further_answer_that_breaks_leaves_no_label():
    with pytest.raises(InfraError, match="gone") as caught:
        judged(["7"], (attempt(None, ended_by="infra_error"), "7"))
    assert caught.value.kind == "timeout"


@pytest.fixture
def play(here, monkeypatch, tmp_path):
    """Questions whose truth is 70..75: of the agent's answers every fourth sample is wrong, and all to the last one."""
    rows = [{"id": f"q/{n}", "question": f"What is question {n}?", "answer": str(70 + n)} for n in range(6)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = []

    def say(messages, role, sample):
        text = messages[-1]["content"]
        number = int(text.partition("question ")[2][0])
        asked.append((role, number, sample))
        wrong = number == 5 or sample % 4 == 3
        return f"So \\boxed{{{0 if wrong else 70 + number}}}." if role == "agent" else LESSON.format(number)

    monkeypatch.setattr("envs.toy_script.play", say)

    def run(*words):
        data = ("env=math500", f"env.path={tmp_path / 'q.jsonl'}", "llm=scripted", "embedder=hashing")
        run_dir, _ = here(*data, "select=first", *words)
        return read_rows(run_dir), read_json(run_dir / "summary.json"), asked

    return run


def test_attempts_judge_each_other(play):
    rows, summary, asked = play("workflow=matts_parallel", "k=4", "judge=consensus", "contrast=null")
    assert [[v["label"] for v in row["verdicts"]] for row in rows[:5]] == [[YES, YES, YES, NO]] * 5
    assert [v["label"] for v in rows[5]["verdicts"]] == [YES] * 4  # all wrong alike: agreement is not the truth
    assert summary["label_source"] == "consensus"
    assert {record["label_source"] for row in rows for record in row["records"]} == {"consensus"}
    assert summary["judge_agreement"] == round(20 / 24, 4)
    assert not any(role == "judge" for role, _, _ in asked)


def test_one_attempt_is_judged_by_further_answers(play):
    rows, summary, asked = play("judge=self_consistency", "judge.n_more=3")
    assert [row["verdict"]["label"] for row in rows] == [YES] * 6
    assert rows[0]["verdict"]["confidence"] == 0.75
    assert all(len(row["trajectories"]) == 1 for row in rows)
    assert [sample for role, number, sample in asked if (role, number) == ("agent", 0)].count(0) == 1
    assert sorted(sample for role, number, sample in asked if (role, number) == ("agent", 0)) == [0, 1, 2, 3]
    assert {row["usage"]["judge"]["calls"] for row in rows} == {3}
    assert {row["usage"]["agent"]["calls"] for row in rows} == {1}
    assert summary["label_source"] == "self_consistency"


def test_the_votes_are_not_held_by_the_budget_of_the_attempt(play):
    rows, _, _ = play("judge=self_consistency", "judge.n_more=3", "budget.episode.calls=1")
    assert [row["verdict"]["label"] for row in rows] == [YES] * 6
    assert {row["usage"]["judge"]["calls"] for row in rows} == {3}
    assert {row["usage"]["agent"]["calls"] for row in rows} == {1}


def test_a_workflow_with_one_attempt_has_no_consensus(here):
    with pytest.raises(UserError, match="judge=consensus compares the attempts"):
        here(*TOY, "judge=consensus")


def test_in_multi_turn_there_is_no_answer_to_agree_on(here):
    run_dir, _ = here(*TOY, "workflow=matts_parallel", "judge=consensus", "limit=4")
    for row in read_rows(run_dir):
        assert [verdict["label"] for verdict in row["verdicts"]] == [None] * 3
        assert row["verdict"]["source"] == "consensus"


@pytest.mark.parametrize(
    ("arm", "setting"), [("llm", "test_time"), ("consensus", "test_time"), ("truth", "true_labels")]
)
def test_the_experiment_differs_in_the_labels_alone(compose, arm, setting):
    cfg, base = compose(f"arm=labels_{arm}"), compose("arm=labels_self_consistency")
    assert cfg.setting.name == setting
    for key in ("workflow", "contrast", "memory", "retrieval", "distiller", "select"):
        assert cfg[key] == base[key]
