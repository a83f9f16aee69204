"""Test-time scaling: attempts side by side or one after another, what is made of them, and what breaks alone."""

from __future__ import annotations

import re
import threading
from collections import Counter
from contextlib import nullcontext

import pytest
from conftest import TOY, read_json, read_rows

from core.errors import InfraError, StopRun, UserError
from core.learning.attempts import Attempts
from core.learning.selectors import BestOfN, Judged, Majority
from core.learning.transcript import fit
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.base import Role
from core.models.embedding import HashingEmbedder
from core.models.offline import ScriptedModel
from core.tokens import cut_tokens, estimate_tokens
from core.types import Step, Task, Trajectory, Verdict
from envs import toy_script

PARALLEL = (*TOY, "workflow=matts_parallel")
SEQUENTIAL = (*TOY, "workflow=matts_sequential")


@pytest.fixture
def played(here, monkeypatch, tmp_path):
    """Run with a player of one's own: play(messages, role, sample) -> text, or None for the toy's own.

    ends   what the StopRun that the run ends with says
    """

    def run(player, *words, name="run", ends=None):
        original = toy_script.play
        seen = []

        def play(messages, role, sample):
            seen.append((role, sample, "\n".join(m["content"] for m in messages)))
            said = player(messages, role, sample)
            return original(messages, role, sample) if said is None else said

        with monkeypatch.context() as patch:
            patch.setattr("envs.toy_script.play", play)
            with pytest.raises(StopRun, match=ends) if ends else nullcontext():
                here(*words, run_dir=tmp_path / name)
        return read_rows(tmp_path / name), read_json(tmp_path / name / "summary.json"), seen

    return run


def lucky(*samples):
    """A student of whom only these samples know the words."""

    def play(messages, role, sample):
        if role != "agent":
            return None
        return None if sample in samples else "Thought: A guess.\nAction: say sesame"

    return play


def test_one_attempt_is_the_base_loop_byte_for_byte(here, tmp_path):
    base = here(*TOY, "limit=12", run_dir=tmp_path / "base")[0] / "episodes.jsonl"
    for words in ((*PARALLEL, "k=1"), (*SEQUENTIAL, "r=0"), (*PARALLEL, "k=1", "contrast=null")):
        run_dir, _ = here(*words, "limit=12", run_dir=tmp_path / words[-2] / words[-1])
        assert (run_dir / "episodes.jsonl").read_bytes() == base.read_bytes()
        assert read_json(run_dir / "summary.json")["scaling"] == {}


def test_parallel_learns_once_from_all_attempts(played):
    """12 boxes in 4 families, whose first ones stay locked."""
    rows, summary, seen = played(lambda *_: None, *PARALLEL, "limit=12")
    assert (summary["n_success"], summary["n"]) == (8, 12)
    rates = dict.fromkeys(("pass_at_1", "best_of_n", "pass_at_k_oracle"), pytest.approx(8 / 12, abs=1e-4))
    counts = {"n_infra_error_attempts": 0, "n_selections_unparsed": 0}
    assert summary["scaling"] == {"kind": "parallel", "k": 3, "select": "bon", **rates, **counts}
    assert Counter(role for role, _, _ in seen) == {"agent": 36, "judge": 36, "selector": 12, "extractor": 12}
    contrast = next(prompt for role, _, prompt in seen if role == "extractor")
    assert [f"Attempt {n}:" in contrast for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert "judged" not in contrast
    assert "At most 5 memory items" in contrast
    for row in rows:
        assert [t["sample"] for t in row["trajectories"]] == [0, 1, 2]
        assert row["verdicts"][row["chosen"]] == row["verdict"]
        assert len({str(t["opening"]) for t in row["trajectories"]}) == 1  # the same memories for each


def test_pass_at_1_best_of_n_and_pass_at_k_are_three_numbers(played):
    # Sample 2 alone can use a lesson; the selector sees that it opened the box: 4 of 8, of which 4 are the first ones.
    _, summary, _ = played(lucky(2), *PARALLEL, "limit=8")
    rates = [summary["scaling"][key] for key in ("pass_at_1", "best_of_n", "pass_at_k_oracle")]
    assert rates == [pytest.approx(4 / 24, abs=1e-4), 0.5, 0.5]
    assert summary["success_rate"] == 0.5
    assert summary["judge_agreement"] == 1.0


@pytest.mark.parametrize(("select", "won"), [("first", 0), ("judge", 4), ("bon", 4), ("majority", 0)])
def test_what_selects_is_an_option(played, select, won):
    rows, summary, seen = played(lucky(1, 2), *PARALLEL, f"select={select}", "limit=8")
    assert summary["n_success"] == won
    assert {row["selection"]["by"] for row in rows} == {select}
    assert any(role == "selector" for role, _, _ in seen) == (select == "bon")


def test_select_judge_judges_even_where_nothing_is_learned(played):
    _, summary, seen = played(lucky(1), *PARALLEL, "memory=none", "select=judge", "limit=4")
    assert {role for role, _, _ in seen} == {"agent", "judge"}
    assert summary["n_lessons"] == 0


def test_scaling_without_memory_neither_judges_nor_distils(played):
    _, summary, seen = played(lambda *_: None, *PARALLEL, "memory=none", "limit=4")
    assert {role for role, _, _ in seen} == {"agent", "selector"}
    assert summary["n_success"] == 0


def test_labels_stand_in_the_contrast_only_when_asked_for(played):
    _, _, seen = played(lucky(1), *PARALLEL, "contrast.labels=judge", "limit=8")
    last = [prompt for role, _, prompt in seen if role == "extractor"][-1]
    assert re.findall(r"Attempt \d \(judged a (\w+)\)", last) == ["failure", "success", "failure"]


def test_without_aggregation_each_attempt_teaches_alone_under_its_own_verdict(played):
    rows, summary, seen = played(lucky(1), *PARALLEL, "contrast=null", "limit=8")
    assert sum(role == "extractor" for role, _, _ in seen) == 24
    assert not any("Compare them with each other" in prompt for _, _, prompt in seen)
    last = rows[-1]
    assert last["records"][0]["outcome"] == "success"  # the answer's, which the selector took
    assert [record["outcome"] for record in last["records"][1:]] == ["failure", "failure"]
    made = last["records"]
    assert {r["source_trajectory_id"] for r in made} == {t["id"] for t in last["trajectories"]}
    assert len({record["id"] for record in made}) == 3
    assert summary["n_lessons"] == 24


@pytest.mark.parametrize(("learn_from", "won"), [("success", 0), ("failure", 4)])
def test_lessons_from_one_outcome_only(played, learn_from, won):
    _, summary, _ = played(lambda *_: None, *PARALLEL, f"workflow.learn_from={learn_from}", "limit=8")
    assert summary["n_success"] == won


def test_attempts_are_in_flight_at_once_and_judges_selector_and_contrast_are(played):
    attempts, learners = threading.Barrier(4, timeout=20), threading.Barrier(6, timeout=20)

    def meet(messages, role, sample):  # passes only when four attempts; four judges, selector and contrast are there
        (attempts if role == "agent" else learners).wait()

    rows, _, _ = played(meet, *PARALLEL, "k=4", "limit=2")
    assert all(len(row["trajectories"]) == 4 and row["records"] for row in rows)


@pytest.mark.parametrize("broken", [0, 2])
def test_a_judge_that_breaks_costs_the_lessons_only_where_it_was_the_answers(played, broken):
    def breaks(messages, role, sample):
        if role == "judge" and sample == broken:
            raise InfraError("no answer", "timeout")
        return '{"index": 1}' if role == "selector" else None

    rows, _, seen = played(breaks, *PARALLEL, "limit=2")
    assert [row["learning_errors"] for row in rows] == [["judge: timeout: no answer"]] * 2
    assert [row["records"] == [] for row in rows] == [broken == 0] * 2
    assert sum(role == "extractor" for role, _, _ in seen) == 2


def test_one_that_breaks_loses_no_other(played):
    def breaks(messages, role, sample):
        if role == "agent" and sample == 0:
            raise InfraError("no answer", "timeout")
        return

    rows, summary, seen = played(breaks, *PARALLEL, "limit=8")
    assert [t["ended_by"] for t in rows[-1]["trajectories"]] == ["infra_error", "goal", "goal"]
    assert summary["complete"] and sum((role, sample) == ("agent", 0) for role, sample, _ in seen) == 8  # none again
    assert {row["status"] for row in rows} == {"success", "failure"}
    assert all(row["chosen"] == 1 and row["verdicts"][0]["label"] is None for row in rows)
    assert summary["scaling"]["n_infra_error_attempts"] == 8
    assert summary["scaling"]["pass_at_1"] == summary["scaling"]["best_of_n"] == 0.5
    assert "Attempt 3:" not in [prompt for role, _, prompt in seen if role == "extractor"][-1]


def test_a_selector_that_breaks_costs_the_selection_only(played):
    def breaks(messages, role, sample):
        if role == "selector":
            raise InfraError("no answer", "timeout")

    rows, summary, _ = played(breaks, *PARALLEL, "limit=8")
    assert summary["n_success"] == 4
    assert rows[0]["learning_errors"] == ["selector: timeout: no answer"]
    assert len(rows[0]["records"]) == 1
    assert summary["scaling"]["n_selections_unparsed"] == 8


def test_sequential_scores_the_last_round_and_records_every_one(played):
    rows, summary, seen = played(lambda *_: None, *SEQUENTIAL, "limit=8")
    assert (summary["n_success"], summary["n"]) == (8, 8)
    counts = {"success_by_round": [0.5, 1.0], "n_corrected": 4, "n_spoiled": 0}
    assert summary["scaling"] == {"kind": "sequential", "r": 1, **counts}
    first, second = rows[0]["trajectories"]
    assert second["opening"][: len(first["opening"])] == first["opening"]  # appended to, never rewritten
    assert second["opening"][2]["content"] == first["steps"][0]["text"]
    assert "What stands above is your own work" in second["opening"][-1]["content"]
    assert "act anew:\nOpen the amber box" in second["opening"][-1]["content"]
    notes = next(prompt for role, _, prompt in seen if role == "extractor")
    assert "First attempt:" in notes
    assert "After check 1:" in notes
    assert rows[0]["records"][0]["outcome"] == "success"


def test_later_checks_are_asked_for_otherwise(played):
    rows, summary, _ = played(lambda *_: None, *SEQUENTIAL, "r=2", "limit=4")
    assert summary["scaling"]["success_by_round"] == [0.0, 1.0, 1.0]
    last = [t["opening"][-1]["content"] for t in rows[0]["trajectories"][1:]]
    assert ["once more" in text for text in last] == [False, True]


@pytest.mark.parametrize(
    ("words", "broken", "ends"),
    [(PARALLEL, (0, 1, 2), ["infra_error"] * 3), (SEQUENTIAL, (1,), ["end", "infra_error"])],
    ids=["all attempts", "a round"],
)
def test_a_task_of_which_all_attempts_or_a_round_broke_is_an_infra_error_and_teaches_nothing(
    played, words, broken, ends
):
    def breaks(messages, role, sample):
        if role == "agent" and sample in broken:
            raise InfraError("no answer", "timeout")

    rows, summary, seen = played(breaks, *words, "limit=3", "retry_broken=0", ends="3 tasks in a row")
    assert (summary["n"], summary["n_infra_error"], summary["scaling"]) == (0, 3, {})
    assert "extractor" not in {role for role, _, _ in seen}
    assert all(row["records"] == [] and row["lessons"] == [] for row in rows)
    assert [t["ended_by"] for t in rows[0]["trajectories"]] == ends


# What is learned and judged of rounds that go on: test_matts_rounds.py.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("workflow=matts_parallel", "r=2"), "needs workflow=matts_sequential"),
        (("workflow=matts_sequential", "k=2"), "needs matts_parallel"),
        (("workflow=matts_sequential", "refine=later"), "choose restart or continue"),
        (("refine=restart",), "choose workflow=matts_sequential"),
        (("workflow=matts_parallel", "contrast.labels=gold"), "choose none or judge"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(here, words, message):
    with pytest.raises(UserError, match=message):
        here(*TOY, *words)


def attempt(text="x", answer=None, sample=0):
    step = Step(text=text, thought="", action=text, observation="")
    facts = {"ended_by": "end", "reward": 0.0, "success": False, "gold": "secret"}
    return Trajectory(id=text, sample=sample, opening=(), steps=(step,), answer=answer, **facts)


def gathered(*trajectories, labels=()):
    verdicts = [Verdict(label=label, source="llm") for label in labels]
    return Attempts(task=Task(id="t", query="Q"), trajectories=list(trajectories), evaluate=lambda _: verdicts)


@pytest.mark.parametrize(
    ("reply", "index", "parsed"),
    [
        ('{"analysis": "b", "index": 2}', 1, True),
        ('{"index": [3], "analysis": "c"}', 2, True),
        ('Well.\n```json\n{"index": "2"}\n```', 1, True),
        ('{"index": 2.0}', 1, True),
        ('{"index": 2.5}', 0, False),
        ('{"index": 4}', 0, False),
        ('{"index": 0}', 0, False),
        ('{"index": true}', 0, False),
        ("the second one", 0, False),
    ],
)
def test_the_selectors_reply(reply, index, parsed):
    prompts = []

    def say(messages, role, sample):
        prompts.append(messages[0]["content"])
        return reply

    role = Role(name="selector", llm=ScriptedModel(script=say), temperature=0.0, max_tokens=None)
    attempts = gathered(*(attempt(text) for text in ("one", "two", "three")))
    found = BestOfN(role=role, seed=0).pick(attempts)
    assert (found.index, found.parsed, found.usage.calls) == (index, parsed, 1)
    assert "secret" not in prompts[0]


def test_majority_and_judge():
    attempts = gathered(
        *(attempt(answer=a) for a in ("7", "42", " 42 ", None)), labels=("failure", None, "success", None)
    )
    assert Majority().pick(attempts).index == 1
    assert Majority().pick(attempts.only([0, 1])).index == 0
    assert Majority().pick(attempts.only([3])).index == 0
    assert Judged().pick(attempts.only([0, 1, 2])).index == 2
    assert Judged().pick(attempts.only([0])).index == 0


def test_long_attempts_are_cut_in_the_middle_and_short_ones_kept():
    long, short = "start " + "word " * 5000 + "end", "a short one"
    cut, kept = fit([long, short], 1000)
    assert kept == short
    assert cut.startswith("start word")
    assert cut.endswith("word end")
    assert re.search(r"about \d{4} tokens left out", cut)
    assert estimate_tokens(cut) < 1020
    assert fit(["a", "b"], 1000) == ["a", "b"]
    assert cut_tokens("é" * 50, 10).count("é") == 10
    assert len(fit([long] * 5, 1000)) == 5


def test_a_bank_that_consolidates_takes_in_every_record_of_a_task(played, tmp_path):
    words = (*PARALLEL, "contrast=null", "memory=confidence", "limit=6")
    rows, _, _ = played(lucky(1), *words)
    added = {record["id"] for row in rows for record in row["records"]}
    assert len(added) == 18

    def kept():
        bank = MemoryBank(path=str(tmp_path / "run/bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine())
        found = {record.id: (record.confidence, record.n_used, record.n_used_success) for record in bank.records()}
        bank.close()
        return found

    before = kept()
    assert before.keys() == added
    assert all(confidence is not None for confidence, _, _ in before.values())
    assert sum(used for _, used, _ in before.values()) == 5  # one record for each task after the first
    for path in (tmp_path / "run").glob("bank.sqlite*"):
        path.unlink()
    played(lucky(1), *words)  # builds the bank anew from the episodes
    assert kept() == before
