"""How sure a judge is: asked for, read, recorded, used by the bank, and held against the truth."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from conftest import TOY, read_json, read_rows

from analysis.load import load_runs
from analysis.plots import plots_of
from analysis.stats import calibration
from analysis.studies import compared, studies
from analysis.tables import build_tables, load_episodes
from core.learning.judges import CONFIDENCE_SCHEMA, JUDGE_SCHEMA, LLMJudge
from core.learning.structured import parse_confidence, parse_status
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.base import Reply
from core.models.embedding import HashingEmbedder
from core.types import Step, Task, Trajectory, Usage
from prompts import registry

VALUES = {"query": "Q?", "trajectory": "Step 1", "final_state": "state", "answer": "42"}


@pytest.mark.parametrize(
    ("structured", "sha256"),
    [
        (True, "bb3d4c6861fe4be764ca4a134e9e7ef0775e7a11c46731e429f077b868757c6e"),
        (False, "67df8d5ea71fda4307f8dce14b555d06d4540c439147a7aff489857de78e1cf7"),
    ],
)
def test_the_papers_prompt_stays_and_the_other_adds_to_it(structured, sha256):
    paper = registry.PROJECT.render(registry.JUDGE_PROMPT, **VALUES, structured=structured)
    assert hashlib.sha256(paper.encode()).hexdigest() == sha256
    asked = registry.PROJECT.render(registry.JUDGE_CONFIDENCE_PROMPT, **VALUES, structured=structured)
    assert asked.startswith(paper)
    assert "confidence" in asked.removeprefix(paper).lower()
    assert "confidence" not in paper.lower()


def test_the_schema_asks_for_it_last():
    assert list(JUDGE_SCHEMA["properties"]) == ["thoughts", "status"]
    assert list(CONFIDENCE_SCHEMA["properties"]) == ["thoughts", "status", "confidence"]
    assert CONFIDENCE_SCHEMA["required"] == ["thoughts", "status", "confidence"]


def test_a_confidence_is_read_or_it_is_not(subtests):
    cases = [
        ('{"thoughts": "ok", "status": "success", "confidence": 0.8}', 0.8),
        ('{"thoughts": "ok", "status": "success", "confidence": 1}', 1.0),
        ('{"thoughts": "ok", "status": "success", "confidence": "80 %"}', 0.8),
        ('{"thoughts": "{\\"confidence\\": 0.1}", "status": "success", "confidence": 0.7}', 0.7),
        ('{"status": "failure"}\nConfidence: 0.6', 0.6),
        ('{"status": "failure", "confidence": 0.5}\nConfidence: 0.6', 0.6),
        ("Thoughts: hm\nStatus: success\nConfidence: 0.8", 0.8),
        ("Status: success\n**Confidence:** `.75`.", 0.75),
        ("Status: success\nconfidence: 80 %", 0.8),
        ("Status: success\nconfidence: 80% (fairly sure)", 0.8),
        ("Status: success\nConfidence: 0.2\nOn reflection.\nConfidence: 0.9", 0.9),
        ("Status: success\nConfidence: 0", 0.0),
        ("Status: success\nConfidence: 7", None),
        ("Status: success\nConfidence: 1.5", None),
        ("Status: success\nConfidence: 150 %", None),
        ("Status: success\nConfidence: -0.5", None),
        ("Status: success\nConfidence: 1/10", None),
        ("Status: success\nConfidence: 1 out of 10", None),
        ("Status: success\nConfidence: 0 to 1", None),
        ("Status: success\nConfidence: <number>", None),
        ("Status: success\nConfidence: high", None),
        ('{"status": "success", "confidence": true}', None),
        ('{"status": "success", "confidence": null}', None),
        ('{"status": "success", "confidence": NaN}', None),
        ('{"status": "success", "confidence": -0.1}', None),
        ('{"status": "success", "confidence": [0.9]}', None),
        ("Status: success", None),
        ("", None),
        (None, None),
    ]
    for text, confidence in cases:
        with subtests.test(text=text):
            assert parse_confidence(text) == confidence


@pytest.mark.parametrize("text", ["Confidence: " + "1" * 150_000 + "x", "Confidence: 1" + " " * 150_000 + "x"])
def test_garbage_is_read_to_its_end(text):
    assert parse_confidence(text) is None  # a pattern that went back over it would not return


class Says:
    """A role whose model replies as told."""

    def __init__(self, text, finish_reason="stop", structured=True):
        self.reply = Reply(text=text, usage=Usage(calls=1), finish_reason=finish_reason, model="m")
        self.llm, self.prompts, self.asked = self, registry.PROJECT, []
        self.supports_schema = structured

    def chat(self, messages, *, schema, **_):
        self.asked.append((messages[0]["content"], schema))
        return self.reply


def judged(text, *, confidence=True, finish_reason="stop"):
    role = Says(text, finish_reason)
    step = Step(text="x", thought="", action="x", observation="")
    hidden = {"reward": 0.0, "success": False, "gold": ""}
    attempt = Trajectory(id="t", sample=0, opening=(), steps=(step,), answer="1", ended_by="end", **hidden)
    verdict = LLMJudge(role=role, seed=0, confidence=confidence).judge(Task(id="t", query="Q"), attempt)
    return verdict, role.asked[0]


SURE = '{"thoughts": "ok", "status": "success", "confidence": 0.8}'


def test_the_judge_asks_only_where_it_is_told_to():
    verdict, (prompt, schema) = judged(SURE)
    assert (verdict.label, verdict.confidence, verdict.confidence_parsed) == ("success", 0.8, True)
    assert verdict.reason == "ok"
    assert schema is CONFIDENCE_SCHEMA
    assert "confidence" in prompt
    verdict, (prompt, schema) = judged(SURE, confidence=False)
    assert (verdict.label, verdict.confidence, verdict.confidence_parsed) == ("success", None, True)
    assert schema is JUDGE_SCHEMA
    assert "confidence" not in prompt


@pytest.mark.parametrize(
    ("text", "finish_reason"),
    [
        (SURE.replace("0.8", "8"), "stop"),
        (SURE, "length"),  # 0.8 may be the beginning of 0.08 no less than of 0.85
        ("Confidence: 0.8", "stop"),  # in what?
    ],
)
def test_nonsense_is_none_and_is_told(text, finish_reason):
    verdict, _ = judged(text, finish_reason=finish_reason)
    assert verdict.confidence is None
    assert not verdict.confidence_parsed
    assert verdict.label == (parse_status(text) or "failure")


@pytest.fixture
def play(here, monkeypatch):
    """A toy run whose judge says how sure it is: as told, by turns."""
    from envs.toy_script import play as toy

    def run(*words, says=("0.8",), **more):
        turns = iter(says * 100)

        def told(messages, role, sample):
            text = toy(messages, role, sample)
            return f"{text}\nConfidence: {next(turns)}" if role == "judge" else text

        monkeypatch.setattr("envs.toy_script.play", told)
        run_dir, _ = here(*TOY, "limit=8", *words, **more)
        return run_dir

    return run


def test_it_is_recorded_and_nonsense_is_counted(play):
    run_dir = play("judge.confidence=true", says=("0.8", "90 %", "7"))
    rows = read_rows(run_dir)
    assert [row["verdict"]["confidence"] for row in rows[:3]] == [0.8, 0.9, None]
    assert [row["verdict"].get("confidence_parsed") for row in rows[:3]] == [None, None, False]
    assert read_json(run_dir / "summary.json")["n_confidences_unparsed"] == 2


def test_off_the_records_are_as_they_were(play):
    rows = read_rows(play())
    keys = {"label", "source", "confidence", "reason", "parsed", "truncated"}
    assert all(set(verdict) == keys for row in rows for verdict in (row["verdict"], *row["verdicts"]))
    assert {row["verdict"]["confidence"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("word", "sure"), [("judge.confidence=true", 0.8), ("judge=llm", 1.0), ("judge=heuristic", None)]
)
def test_the_banks_priors_use_it(play, word, sure):
    run_dir = play(
        "memory=confidence", "retrieval.top_k=0", word
    )  # nothing is retrieved: each keeps what it began with
    rows = read_rows(run_dir)
    bank = MemoryBank(path=str(run_dir / "bank.sqlite"), embedder=HashingEmbedder(), policy=Cosine(), read_only=True)
    kept = {record.id: record.confidence for record in bank.records()}
    bank.close()
    made = [(record, row["verdict"]) for row in rows for record in row["records"]]
    assert len(made) == 8
    for record, verdict in made:
        prior = {"success": 0.7, "failure": 0.6}[record["outcome"]]
        assert kept[record["id"]] == pytest.approx(prior * (sure or verdict["confidence"]))


# By hand: squares 0, 0.01, 0.9025, 0.16, 0.4225, together 1.495; in [0.6, 0.7) mean 0.625, right 1 of 2, off by 0.125;
# in [0.9, 1] mean 0.95, right 2 of 3, off by 0.2833.
SURES, RIGHT = [1.0, 0.9, 0.95, 0.6, 0.65], [True, True, False, True, False]


def test_calibration_by_hand():
    found = calibration(SURES, RIGHT)
    assert found["n"] == 5
    assert found["brier"] == pytest.approx(1.495 / 5)
    assert found["ece"] == pytest.approx((2 * 0.125 + 3 * (0.95 - 2 / 3)) / 5)
    low, high = found["bins"]
    assert low == pytest.approx({"low": 0.6, "high": 0.7, "n": 2, "confidence": 0.625, "correct": 0.5})
    assert high == pytest.approx({"low": 0.9, "high": 1.0, "n": 3, "confidence": 0.95, "correct": 2 / 3})


def test_bins_begin_at_their_low_end():
    found = calibration([0.1 * n for n in range(11)], [False] * 11)
    assert [each["n"] for each in found["bins"]] == [1] * 9 + [2]  # 0.3 and 0.7 are not missed by their last bit
    assert found["ece"] == pytest.approx(0.5)  # nothing was right, and the mean confidence is 0.5
    one = calibration(SURES, RIGHT, bins=1)
    assert one["ece"] == pytest.approx(abs(4.1 / 5 - 3 / 5))


def test_what_calibration_says_of_nothing_and_of_the_best():
    assert calibration([], []) == {"n": 0, "brier": None, "ece": None, "bins": []}
    best = calibration([1.0] * 3 + [0.0] * 2, [True] * 3 + [False] * 2)
    assert (best["brier"], best["ece"]) == (0, 0)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        calibration([0.5, 0.5], [True])


def test_a_judge_as_sure_as_it_is_right_is_calibrated():
    rng = np.random.default_rng(0)
    sure = rng.uniform(size=20_000)
    found = calibration(sure.tolist(), (rng.uniform(size=20_000) < sure).tolist())
    assert found["ece"] < 0.02
    assert found["brier"] == pytest.approx(1 / 6, abs=0.005)  # the mean of p (1 - p)


def test_the_probability_of_a_success_scores_alike_once_it_is_one_of_the_label():
    p, won = [0.9, 0.2, 0.4, 0.7], [True, False, True, False]
    sure, right = [max(q, 1 - q) for q in p], [(q >= 0.5) == w for q, w in zip(p, won, strict=True)]
    assert calibration(sure, right)["brier"] == pytest.approx(calibration(p, won)["brier"])


def test_tables_and_report_show_it_where_there_is_any(play, tmp_path):
    sure, unsure = tmp_path / "sure", tmp_path / "unsure"
    play("judge.confidence=true", run_dir=sure, says=("0.8", "0.6"))
    play(run_dir=unsure)
    cells, texts = build_tables(load_episodes([str(sure)]), "learning")
    row = cells.table.iloc[0]
    outcomes = [(v["confidence"], v["label"] == r["status"]) for r in read_rows(sure) for v in r["verdicts"]]
    expected = calibration(*map(list, zip(*outcomes, strict=True)))
    assert [row[f"judge_{name}"] for name in ("n_rated", "brier", "ece", "bins")] == list(expected.values())
    assert {"with confidence", "Brier", "ECE"} <= set(texts[0].head)
    assert any(note.startswith("Brier, ECE") for note in texts[0].notes)
    cells, texts = build_tables(load_episodes([str(unsure)]), "learning")
    assert (cells.table.iloc[0]["judge_n_rated"], cells.table.iloc[0]["judge_ece"]) == (0, None)
    assert not {"with confidence", "Brier", "ECE"} & set(texts[0].head)
    assert not any("Brier" in note for note in texts[0].notes)
    drawn = {}
    for folder in (sure, unsure):
        [study] = studies(compared(load_runs([folder])))
        drawn[folder] = {plot.name: plot for plot in plots_of(study)}
    assert "reliability" not in drawn[unsure]
    assert f"Brier {expected['brier']:.3f}, ECE {expected['ece']:.3f}" in drawn[sure]["reliability"].caption


@pytest.mark.parametrize("words", [("setting=true_labels",), ("judge=heuristic",)])
def test_other_judges_are_held_against_the_truth_as_well(play, words):
    table = build_tables(load_episodes([str(play(*words))]), "all")[0].table.iloc[0]
    assert table["judge_n_rated"] == table["judge_n"] == 8
    if words[0].startswith("setting"):
        assert (table["judge_brier"], table["judge_ece"]) == (0, 0)
