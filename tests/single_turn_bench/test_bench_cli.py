"""`python -m single_turn_bench` and the fetching script, by their front doors."""

import gzip
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from core.errors import UserError
from scripts import fetch_data
from single_turn_bench import datasets
from single_turn_bench.__main__ import main
from single_turn_bench.specs import GPQA_ZIP_MEMBER, SPECS, HubSource

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"


def write(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_validate_counts_and_names_what_fails(tmp_path, capsys):
    rows = [
        {"id": 1, "question": "q", "answer": r"\frac{1}{2}", "solution": r"so \boxed{0.5}"},
        {"id": 2, "question": "q", "answer": "3", "solution": r"so \boxed{4}"},
        {"id": 3, "question": "q", "answer": "C", "options": ["x", "y", "both A and B"]},
    ]
    path = write(tmp_path / "own.jsonl", *rows)
    assert main(["validate", "warmup", "--path", str(path)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "warmup: the first question as a model reads it, and its answer"
    assert out[-3:] == [
        "warmup: rows that keep the order of their options, as one names others: 1 of 3",
        "warmup/2: the gold answer fails its own grader",
        "warmup 2/3",
    ]


def test_validate_without_names_takes_what_is_there(tmp_path, capsys):
    write(tmp_path / "warmup.jsonl", {"id": 1, "question": "q", "answer": "5"})
    assert main(["validate", "--path", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "warmup 1/1"
    assert "math500 is not here" in out
    assert main(["validate", "math500", "--path", str(tmp_path)]) == 2
    assert "holds no file of math500" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_grade_prints_disagreements_and_last_the_agreement(tmp_path, capsys, suffix):
    rows = [
        {"gold": "2", "pred": "4/2", "expected": True},
        {"gold": "2", "response": "I get 3", "expected": True},
        {"gold": "B", "response": "The answer is (B)", "n_options": 4, "rule_pred": "B", "expected": True},
        {"gold": "B", "response": "...", "n_options": 4, "rule_pred": None},
        {"gold": "C", "response": "The answer is (B)", "n_options": 4, "expected": False},
    ]
    path = tmp_path / f"rows{suffix}"
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    assert main(["grade", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"rows{suffix} line 2: expected True, got False")
    assert out[1:] == ["agree 3/4"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{torn\n", "rows.jsonl line 1: not JSON"),
        ('["x"]\n', "rows.jsonl row 1: a row is a JSON object"),
        ('{"pred": "1", "expected": true}\n', "rows.jsonl line 1: no text in a field 'gold'"),
        ('{"gold": "1", "expected": true}\n', "rows.jsonl line 1: no text in a field 'pred' or 'response'"),
        ('{"gold": "1", "pred": "1"}\n', "rows.jsonl line 1: no true or false in a field 'expected'"),
        ('{"gold": "A", "pred": "A", "n_options": 99, "expected": true}\n', "rows.jsonl line 1: 'n_options'"),
        ("", "rows.jsonl holds no labelled row"),
    ],
)
def test_grade_refuses_bad_rows_in_one_line(tmp_path, capsys, line, message):
    assert main(["grade", str(write(tmp_path / "rows.jsonl", line))]) == 2
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_grade_of_an_absent_file_is_one_line(tmp_path, capsys):
    assert main(["grade", str(tmp_path / "none.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_fetched_data_is_checked_recorded_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "HERE", tmp_path / "none")
    monkeypatch.setattr(datasets, "FETCHED", tmp_path)
    raw = [{"id": number, "problem": f"p{number}", "answer": str(number), "url": "u"} for number in range(30)]
    path = fetch_data.fetch_from_hub(SPECS["aime24"], tmp_path, lambda source: raw)
    record = json.loads((tmp_path / "aime24.source.json").read_text())
    assert record["revision"] == SPECS["aime24"].hub.revision
    assert record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert datasets.load_rows("aime24").rows[7].id == "aime24/7"
    with pytest.raises(UserError, match="gave 29 rows"):
        fetch_data.fetch_from_hub(SPECS["aime24"], tmp_path, lambda source: raw[:29])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["aime24.jsonl", "aime24.source.json"]


def test_rows_survive_being_written_and_read():
    raw = {
        "question_id": 7,
        "question": "W?",
        "options": ["x", "y"],
        "answer": "B",
        "answer_index": 1,
        "category": "law",
    }
    gsm = {"question": "How many?", "answer": "2*9=18\n#### 18"}
    for row in (fetch_data.parse_row(raw, "mmlu_pro", "here"), fetch_data.parse_row(gsm, "gsm8k", "here")):
        assert fetch_data.parse_row(json.loads(fetch_data.as_line(row)), row.id.partition("/")[0], "here") == row


def test_hub_rows_come_through_the_datasets_library(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "repo").mkdir()
    write(tmp_path / "repo" / "test.jsonl", {"q": 1, "category": "law"}, {"q": 2, "category": "math"})
    source = HubSource(repo=str(tmp_path / "repo"), revision="main", categories=("law",))
    assert fetch_data.hub_rows(source) == [{"q": 1, "category": "law"}]
    with pytest.raises(UserError, match="cannot be fetched"):
        fetch_data.hub_rows(HubSource(repo=str(tmp_path / "nothing"), revision="main"))


def test_the_gpqa_archive_is_kept_as_it_is(tmp_path, monkeypatch):
    header = "Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(GPQA_ZIP_MEMBER, header + "".join(f"rec{n},Made up {n}?,a,b,c,d\n" for n in range(198)))
    data = buffer.getvalue()
    spec = SPECS["gpqa_diamond"]
    with pytest.raises(UserError, match="sha256"):
        fetch_data.keep_gpqa(data, spec, tmp_path)
    path = fetch_data.keep_gpqa(data, spec, tmp_path, hashlib.sha256(data).hexdigest())
    assert path.read_bytes() == data
    monkeypatch.setattr(datasets, "HERE", tmp_path / "none")
    monkeypatch.setattr(datasets, "FETCHED", tmp_path)
    assert len(datasets.load_rows("gpqa_diamond").rows) == 198


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is absent")
def test_every_official_gold_answer_passes_its_own_grader(capsys):
    names = ["math500", "aime24", "aime25", "gsm8k", "mmlu_pro"]
    assert main(["validate", *names, "--path", str(SHARED)]) == 0
    assert "gsm8k 1319/1319" in capsys.readouterr().out


def test_validate_takes_a_column_by_the_words_that_the_error_names(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("Frage,Lösung\nWas ist 1 + 2?,3\n", encoding="utf-8")
    assert main(["validate", str(path)]) == 2
    assert "say it with env.columns.question=NAME" in capsys.readouterr().err
    assert main(["validate", str(path), "env.columns.question=Frage", "env.columns.answer=Lösung"]) == 0
    assert "mine.csv 1/1" in capsys.readouterr().out
    assert main(["validate", "env.columns={question: Frage, answer: Lösung}", str(path)]) == 0
    refused = {"columns.quest=Frage": "env.columns.quest: did you mean question?"}
    refused |= {"colums.question=Frage": "env.colums is not taken", "kind=text": "only env.columns is"}
    for words, why in refused.items():
        assert main(["validate", str(path), *f"env.{words}".split()]) == 2
        assert why in capsys.readouterr().err


def test_rows_of_one_question_are_refused_with_what_to_do(tmp_path, capsys):
    path = tmp_path / "twice.jsonl"
    path.write_text('{"question": "q", "answer": "1"}\n{"question": "q", "answer": "2"}\n')
    assert main(["validate", str(path)]) == 2
    assert "leave out the copies, or say with env.columns.id=NAME" in capsys.readouterr().err
