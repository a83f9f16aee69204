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
