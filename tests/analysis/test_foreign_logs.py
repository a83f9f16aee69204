"""Logs of other harnesses: paired by the ids of their samples, by hand."""

from __future__ import annotations

import json
import zipfile

import pytest

from analysis.foreign_logs import compare, read
from core.errors import UserError
from scripts.compare import main


def inspect_log(path, scores, epochs=1):
    with zipfile.ZipFile(path, "w") as log:
        log.writestr("header.json", "{}")
        for id, value in scores.items():
            for epoch in range(1, epochs + 1):
                sample = {"id": id, "epoch": epoch, "scores": {"match": {"value": value}}}
                log.writestr(f"samples/{id}_epoch_{epoch}.json", json.dumps(sample))
    return path


def test_two_logs_of_inspect(tmp_path, capsys):
    """Eight shared samples: six gained, one lost, one equal: +62.5 points; p of 6 against 1 is 16 / 128."""
    a = inspect_log(tmp_path / "a.eval", {f"s{n}": "I" if n < 6 else "C" for n in range(8)} | {"only": "C"})
    b = inspect_log(tmp_path / "b.eval", {f"s{n}": "I" if n == 6 else "C" for n in range(8)})
    found = compare(read(a), read(b))
    assert (found["n_pairs"], found["won"], found["lost"], found["n_only_a"]) == (8, 6, 1, 1)
    assert found["difference"] == 5 / 8 and found["p_tasks"] == pytest.approx(2 * 8 / 128)
    assert main([str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert "B - A: +62.5 points (25.0 and 87.5) over 8 samples" in said and "not compared: 1 only in A" in said


def test_samples_of_the_evaluation_harness(tmp_path):
    rows = [{"doc_id": n, "doc": {}, "target": "x", "acc": float(n % 2), "acc_norm": 1.0} for n in range(4)]
    a, b = tmp_path / "samples_a.jsonl", tmp_path / "samples_b.jsonl"
    a.write_text("".join(json.dumps(row) + "\n" for row in rows))
    b.write_text("".join(json.dumps(row | {"acc": 1.0}) + "\n" for row in rows))
    with pytest.raises(UserError, match="acc, acc_norm: say which one, --metric"):
        read(a)
    assert compare(read(a, "acc"), read(b, "acc"))["difference"] == 0.5
    with pytest.raises(UserError, match="no score f1"):
        read(a, "f1")


def test_epochs_are_attempts_at_one_task_and_no_seeds(tmp_path):
    a = inspect_log(tmp_path / "a.eval", dict.fromkeys("xy", "I"), epochs=5)
    b = inspect_log(tmp_path / "b.eval", dict.fromkeys("xy", "C"), epochs=5)
    assert compare(read(a), read(b))["n_pairs"] == 2


def test_what_is_no_log_is_one_sentence(tmp_path):
    (tmp_path / "a.eval").write_text("x")
    with pytest.raises(UserError, match="cannot be read as a log"):
        read(tmp_path / "a.eval")


def samples(path, scores, **more):
    """A file of the evaluation harness: sample n asks `Question n` and has the n-th score."""
    rows = [{"doc_id": n, "doc": {"q": f"Question {n}"}, "acc": score} | more for n, score in enumerate(scores)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_samples_of_one_number_that_ask_otherwise_are_no_pair(tmp_path, capsys):
    """Two benchmarks number their samples from 0 alike. The third file has two of the first one's questions."""
    a, b = samples(tmp_path / "a.jsonl", [0, 0, 1]), samples(tmp_path / "b.jsonl", [1, 1, 1], doc={"q": "Another"})
    with pytest.raises(UserError, match="no sample in common, by id and question"):
        compare(read(a), read(b))
    c = samples(tmp_path / "c.jsonl", [1, 0, 1])
    lines = c.read_text().splitlines()
    c.write_text("\n".join([lines[0], b.read_text().splitlines()[1], lines[2]]))
    assert main([str(a), str(c)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 only in A, 1 only in B" in said and "B - A: +50.0 points (50.0 and 100.0) over 2 samples" in said
    a.write_text(a.read_text() + b.read_text())
    assert len(read(a).scores) == 6


def test_an_epoch_without_a_score_is_in_no_pair(tmp_path):
    """x solved once and not scored once, against failed and solved: the one pair is -100 points, and not -50."""
    for name, values in {"a": ("C", None), "b": ("I", "C")}.items():
        with zipfile.ZipFile(tmp_path / f"{name}.eval", "w") as log:
            for epoch, value in enumerate(values, 1):
                scores = {"match": {"value": value}} if value else {}
                log.writestr(f"samples/x_epoch_{epoch}.json", json.dumps({"id": "x", "epoch": epoch, "scores": scores}))
    found = compare(read(tmp_path / "a.eval"), read(tmp_path / "b.eval"))
    assert (found["difference"], found["n_pairs"], found["n_unscored"]) == (-1.0, 1, 1)


def test_an_interval_and_a_p_that_disagree_show_nothing(tmp_path, capsys):
    """5 of 100 gained, none lost: p is 2 / 2^5, and Student's interval 5 -+ 1.984 * sqrt(0.05 * 0.95 / 99) points."""
    a, b = samples(tmp_path / "a.jsonl", [0] * 100), samples(tmp_path / "b.jsonl", [1] * 5 + [0] * 95)
    assert main([str(a), str(b)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "95 % +0.7 to +9.3, 5 higher and 0 lower" in said and "p = 0.0625" in said
    assert "where only one of them leaves out no difference, none is shown" in said


def test_inspects_messages_are_one_question_whatever_their_ids(tmp_path):
    for name, value in {"a": "C", "b": "I"}.items():
        sample = {"id": 1, "scores": {"match": {"value": value}}}
        sample["input"] = [{"id": f"of {name}", "role": "user", "content": "What is 2 + 2?"}]
        with zipfile.ZipFile(tmp_path / f"{name}.eval", "w") as log:
            log.writestr("samples/1_epoch_1.json", json.dumps(sample))
    assert compare(read(tmp_path / "a.eval"), read(tmp_path / "b.eval"))["difference"] == -1.0
