"""judge=heuristic: labels by rules, from what the agent itself saw and said."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields, replace

import pytest
from conftest import TOY, read_json, read_rows
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import judge_agreement
from core.learning.judges import heuristic_verdict
from core.types import CUT_OFF, Step, Trajectory, Usage

YES, NO = "success", "failure"


def step(action="look", observation="A room.", **more):
    return Step(**{"text": f"> {action}", "thought": "", "action": action, "observation": observation} | more)


def attempt(*steps, answer=None, ended_by="end", **more):
    hidden = {"reward": 0.0, "success": False, "gold": ""}
    said = {"opening": (), "steps": steps, "answer": answer, "ended_by": ended_by}
    return Trajectory(**{"id": "t", "sample": 0} | said | hidden | more)


def reply(text, answer="42"):
    return attempt(Step(text=text, thought="", action=text, observation=""), answer=answer)


def judged(trajectory, **more):
    verdict = heuristic_verdict(trajectory, **more)
    return verdict.label, verdict.reason


def test_the_last_observation_speaks(subtests):
    cases = [
        ("===== 3 failed, 12 passed in 0.4s =====", NO, "output '3 failed'"),
        ("===== 12 passed in 0.4s =====", YES, "the last action was taken"),
        ('Traceback (most recent call last):\n  File "x.py"\nValueError: no', NO, "output 'Traceback"),
        ("src/main.c:3:5: error: expected ;", NO, "error:"),
        ("error[E0382]: use of moved value", NO, "output 'error[E0382]:'"),
        ("(tool) error: no such branch", NO, "output 'error:'"),
        ("(user) Nothing happens.", NO, "the last action was refused"),
        ("the mean squared error: 0.03", YES, "the last action was taken"),
        ("bash: foo: command not found", NO, "output 'command not found'"),
        ("Nothing happens.", NO, "the last action was refused"),
        ("<returncode>1</returncode>", NO, "exit status 1 in the output"),
        ("<returncode>0</returncode>", YES, "exit status 0 in the output"),
        ("Process finished with exit code 2", NO, "exit status 2 in the output"),
        ('{"exit_code": 0}', YES, "exit status 0 in the output"),
        ("Take exit 12 and then exit 7.", YES, "the last action was taken"),
    ]
    for observation, label, words in cases:
        with subtests.test(observation=observation):
            found, reason = judged(attempt(step(), step("try", observation)))
            assert (found, words in reason) == (label, True), reason


def test_an_error_that_was_mended_is_none():
    failing, passing = step("test", "2 failed"), step("test", "2 passed")
    assert judged(attempt(failing, step("edit"), passing))[0] == YES
    assert judged(attempt(passing, step("edit"), failing))[0] == NO


@pytest.mark.parametrize("ended_by", ["step_limit", "stuck", *CUT_OFF])
def test_what_the_attempt_ran_into_is_a_failure(ended_by):
    assert judged(attempt(step(), step("go on", "A door."), ended_by=ended_by)) == (
        NO,
        f"ended by {ended_by}; the last action was taken",
    )


def test_steps_that_were_refused_or_repeated():
    walk = [step(f"go {n}", f"Room {n}.") for n in range(4)]
    assert judged(attempt(*walk)) == (YES, "the last action was taken")
    assert "2 of 4 actions refused" in judged(attempt(*walk[:2], *[step("dig", "x", valid=False)] * 2))[1]
    circles = judged(attempt(*[step("go left"), step("go right")] * 5))
    assert circles == (NO, "the last action was taken; 8 of 10 steps repeated")
    assert judged(attempt(*walk, step("", "", text="I think.", valid=False)))[1] == "no action at the end"


def test_an_answer_is_there_or_missing():
    assert judged(reply("It is 42.")) == (YES, "no sign of failure")
    assert judged(reply("Hm.", answer=None)) == (NO, "no answer")
    assert judged(reply("Hm.", answer="  ")) == (NO, "no answer")
    assert judged(reply(" ")) == (NO, "nothing was said")
    assert judged(attempt()) == (NO, "nothing was said")
    assert judged(attempt(replace(reply("It is").steps[0], finish_reason="length"), answer="4"))[0] == NO
    assert judged(reply("Of 20 pupils 5 passed and 3 failed, so the answer is 42."))[1] == "no sign of failure"


def test_a_commands_exit_status_and_its_output():
    done = reply("Changed 2 files.")
    assert judged(done, exit_status=0) == (YES, "exit status 0")
    assert judged(done, exit_status=1) == (NO, "exit status 1")
    assert judged(reply("pytest says:\n1 failed"), exit_status=0) == (NO, "exit status 0; output '1 failed'")
    assert judged(reply("12 passed"), exit_status=-9)[0] == NO  # killed, whatever it said before


HIDDEN = {"reward", "success", "gold", "info"}


class Open(Trajectory):
    """A trajectory that cannot be asked for what the env knows and the agent does not."""

    def __getattribute__(self, name):
        assert name not in HIDDEN, f"{name} was read"
        return super().__getattribute__(name)


texts = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["1 failed", "3 passed", "Nothing happens.", "exit code 1", "Error: x"]),
)
steps = st.builds(
    Step,
    text=texts,
    thought=texts,
    action=texts,
    observation=texts,
    valid=st.booleans(),
    finish_reason=st.sampled_from(["stop", "length"]),
)


@given(
    steps=st.lists(steps, max_size=6),
    answer=st.none() | texts,
    ended_by=st.sampled_from(["goal", "end", "step_limit", "stuck", *CUT_OFF]),
    exit_status=st.sampled_from([None, 0, 1]),
)
def test_it_does_not_look_at_what_the_env_knows(steps, answer, ended_by, exit_status):
    said = {"id": "t", "sample": 0, "opening": (), "steps": tuple(steps), "answer": answer}
    lost = Open(**said, ended_by=ended_by, reward=0.0, success=False, gold="7", info={"won": False, "score": -100})
    verdict = heuristic_verdict(lost, exit_status=exit_status)
    won = attempt(
        *steps,
        answer=answer,
        ended_by={"goal": "end", "end": "goal"}.get(ended_by, ended_by),  # which of the two is the env's knowledge
        id="other",
        reward=1.0,
        success=True,
        gold=answer or "",
        info={"won": True, "score": 100},
    )
    assert heuristic_verdict(won, exit_status=exit_status) == verdict
    assert 0.5 <= verdict.confidence <= 1
    assert verdict.label in (YES, NO)
    assert "\n" not in verdict.reason
    assert (verdict.source, verdict.usage) == ("heuristic", Usage())


def test_the_guard_of_that_test_bites():
    assert {field.name for field in fields(Trajectory)} > HIDDEN
    for name in HIDDEN:
        with pytest.raises(AssertionError, match="was read"):
            getattr(Open(**vars(reply("x"))), name)


def test_in_the_loop_it_costs_nothing(here):
    run_dir, _ = here(*TOY, "judge=heuristic", "limit=8")
    rows, summary = read_rows(run_dir), read_json(run_dir / "summary.json")
    assert summary["label_source"] == "heuristic"
    assert {row["usage"]["judge"]["calls"] for row in rows} == {0}
    assert all(row["verdict"]["reason"] and 0.5 <= row["verdict"]["confidence"] <= 1 for row in rows)
    assert {record["label_source"] for row in rows for record in row["records"]} == {"heuristic"}
    assert summary["judge_agreement"] is not None


@pytest.mark.parametrize("words", [("arm=labels_heuristic", "select=judge"), ("workflow=matts_sequential",)])
def test_in_workflows_of_several_attempts(here, words):
    run_dir, _ = here(*TOY, *words, "judge=heuristic", "limit=3")
    for row in read_rows(run_dir):
        assert len(row["verdicts"]) > 1
        assert {verdict["source"] for verdict in row["verdicts"]} == {"heuristic"}


def test_agreement_on_recordings_counted_by_hand(tmp_path, capsys):
    """Two games: one won and seen so; one lost in a thought without an action. A gold path, a right and a wrong sum."""
    games, sums = tmp_path / "trajectories", tmp_path / "grader_pairs"
    games.mkdir()
    sums.mkdir()
    start = "You are in a room.\nYour task is to: look.\n"
    rows = [
        {"name": f"{half}-won", "result": True, "traj": start + "> go to desk 1\nOn the desk 1, you see a pen 1.\n"}
        for half in ("a", "b", "c", "d")
    ] + [{"name": f"{half}-lost", "result": 0, "traj": start + "> Think: I go on.\n"} for half in ("a", "b", "c", "d")]
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (games / "knowagent_alfworld_d0_510.jsonl.gz").write_bytes(packed)
    made = [attempt for row in rows for attempt in judge_agreement.alfworld(row)]
    assert [len(each.trajectory.steps) for each in made] == [1] * 8
    assert [each.trajectory.success for each in made] == [True] * 4 + [False] * 4
    assert len({each.half for each in made}) == 2
    assert sum(len(list(judge_agreement.alfworld_acting(row))) for row in rows) == 4
    problems = [
        {"problem": f"{n} + 1?", "gold": f"{n + 1}", "response": f"It is so.\nA: {n + more}", "expected": more == 1}
        for n in range(8)
        for more in (1, 2)
    ]
    (sums / "gsm8k_solutions_1000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    assert judge_agreement.main(["--data", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "SwiftSage_scienceworld_oracle_30tasks.jsonl is not there" in told.err
    assert (
        told.out.count("ok   ALFWorld, ") == 4
        and len(re.findall(r"ALFWorld, (?:rules|unseen).* 100.000 %", told.out)) == 2
    )
    assert len(re.findall(r"GSM8K, (?:rules|unseen).*  50.000 % .* won (\d)/\1, lost 0/\1, kappa 0.00", told.out)) == 2


def test_gold_paths_are_cut_short_as_failures():
    row = {"task": "boil", "steps": [{"action": f"go {n}", "observation": f"Room {n}."} for n in range(10)]}
    whole, cut = judge_agreement.scienceworld(row)
    assert (len(whole.trajectory.steps), whole.trajectory.success, cut.trajectory.success) == (10, True, False)
    assert 1 <= len(cut.trajectory.steps) <= 9
    assert whole.half == cut.half


def test_absent_recordings_are_one_line(tmp_path, capsys):
    assert judge_agreement.main(["--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
