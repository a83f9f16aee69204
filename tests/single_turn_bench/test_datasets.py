"""Where datasets are found, what is checked when they are read, and what a subset is."""

import gzip
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from core.errors import UserError
from single_turn_bench import datasets
from single_turn_bench.datasets import load_rows, select
from single_turn_bench.specs import GPQA_ZIP_MEMBER

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

MATH = {
    "problem": "1+1?",
    "solution": r"\boxed{2}",
    "answer": "2",
    "subject": "Algebra",
    "level": 3,
    "unique_id": "t/1.json",
}
AIME = {"id": "2024-I-1", "problem": "Find n.", "answer": 204}
GSM = {"question": "How many?", "answer": "2*9=18\n#### 18"}
MMLU = {
    "question_id": 7,
    "question": "Which?",
    "options": ["x", "y", "z"],
    "answer": "C",
    "answer_index": 2,
    "category": "law",
}
DROPPED = {
    "id": "q1",
    "question": "Which?",
    "solution": "Because.",
    "answer": "y",
    "options": ["x", "y"],
    "metadata": {"domain": "Physics", "source": "s", "answer_letter": "B", "answer_index": 1},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stands in for single_turn_bench/, where users drop files."""
    monkeypatch.setattr(datasets, "HERE", tmp_path)
    monkeypatch.setattr(datasets, "FETCHED", tmp_path / "data")
    return tmp_path


def write(path, *rows):
    path.parent.mkdir(exist_ok=True)
    text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("raw", "task_id", "answer"),
    [
        (MATH, "own/t/1.json", "2"),
        (AIME, "own/2024-I-1", "204"),
        (GSM, f"own/{hashlib.sha256(b'How many?').hexdigest()[:12]}", "18"),
        (MMLU, "own/law/7", "C"),
        (DROPPED, "own/q1", "B"),
    ],
    ids=["math500", "aime", "gsm8k", "mmlu_pro", "dropped"],
)
def test_every_row_format_is_read(tmp_path, raw, task_id, answer):
    row = load_rows(write(tmp_path / "own.jsonl", raw)).rows[0]
    assert (row.id, row.answer) == (task_id, answer)


def test_fields_of_rows(tmp_path):
    math, gsm, mmlu, dropped = load_rows(write(tmp_path / "own.jsonl", MATH, GSM, MMLU, DROPPED)).rows
    assert (math.subject, math.level, math.solution, math.options) == ("Algebra", 3, r"\boxed{2}", None)
    assert gsm.solution == GSM["answer"]
    assert (mmlu.subject, mmlu.answer_index, mmlu.answer_letter, mmlu.options) == ("law", 2, "C", ("x", "y", "z"))
    assert (dropped.subject, dropped.answer_letter, dropped.solution) == ("Physics", "B", "Because.")


def test_gzip_blank_lines_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "own.jsonl.gz"
    path.write_bytes(gzip.compress(("\ufeff" + json.dumps(AIME) + "\n\n").encode()))
    dataset = load_rows(path)
    assert (dataset.name, len(dataset.rows), dataset.source_path) == ("own", 1, str(path))
    assert dataset.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_lookup_order_is_path_then_dropped_then_fetched(folder, tmp_path_factory):
    def thirty(tag):
        return [{"id": f"{tag}{number}", "problem": "p", "answer": number} for number in range(30)]

    fetched = write(folder / "data" / "aime24.jsonl", *thirty("fetched"))
    record = {"sha256": hashlib.sha256(fetched.read_bytes()).hexdigest()}
    write(folder / "data" / "aime24.source.json", json.dumps(record))
    assert load_rows("aime24").rows[0].id == "aime24/fetched0"
    write(folder / "AIME24-30.jsonl", *thirty("dropped"))
    assert load_rows("aime24").rows[0].id == "aime24/dropped0"
    given = write(tmp_path_factory.mktemp("given") / "mine.jsonl", AIME)
    assert load_rows("aime24", given).rows[0].id == "aime24/2024-I-1"
    assert load_rows("aime24", folder).rows[0].id == "aime24/dropped0"


def test_a_fetched_file_that_changed_is_refused(folder):
    write(folder / "data" / "aime25.jsonl", *[{"id": n, "problem": "p", "answer": n} for n in range(30)])
    with pytest.raises(UserError, match=r"aime25.source.json"):
        load_rows("aime25")
    write(folder / "data" / "aime25.source.json", json.dumps({"sha256": "0" * 64}))
    with pytest.raises(UserError, match="sha256"):
        load_rows("aime25")


def test_parts_of_mmlu_pro_are_joined(folder):
    for name, count in (("economics", 844), ("philosophy", 499)):
        rows = ({**MMLU, "question_id": number, "category": name} for number in range(count))
        write(folder / f"MMLU-Pro-{name}-{count}.jsonl", *rows)
    dataset = load_rows("mmlu_pro")
    assert len(dataset.rows) == 844 + 499
    assert dataset.source_path == str(folder)
    assert {row.subject for row in select(dataset.rows, subject="Philosophy")} == {"philosophy"}


def test_gpqa_is_read_from_its_archive_in_memory(folder):
    header = (
        "Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3,High-level domain\n"
    )
    lines = "".join(f'rec{number},"Made up, {number}?",right,w1,w2,"w\n3",Physics\n' for number in range(198))
    with zipfile.ZipFile(folder / "gpqa.zip", "w") as archive:
        archive.writestr(GPQA_ZIP_MEMBER, header + lines)
    dataset = load_rows("gpqa_diamond")
    assert len(dataset.rows) == 198
    row = dataset.rows[0]
    assert (row.id, row.options[row.answer_index], len(row.options)) == ("gpqa_diamond/rec0", "right", 4)
    assert [path.name for path in folder.iterdir()] == ["gpqa.zip"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{torn\n"], "own.jsonl line 1: not JSON"),
        ([AIME, "\n", "[1]\n"], "own.jsonl line 3: a row is a JSON object"),
        ([{"id": 1, "answer": "2"}], "own.jsonl line 1: no column is known to be the question"),
        ([{"id": 1, "question": "q", "answer": ""}], "own.jsonl line 1: 'answer', the answer, is empty"),
        ([{**MMLU, "answer": "A"}], "own.jsonl line 1: 'answer' is 'A', and 'answer_index' tells another option"),
        ([{**MMLU, "answer_index": 5, "answer": "F"}], "own.jsonl line 1: 'answer' is 'F', which tells no single one"),
        ([{"question": "q", "options": ["x", "y"]}], "own.jsonl line 1: no column is known to be the right option"),
        ([{"question": "q", "options": ["x"], "answer": "A"}], "own.jsonl line 1: 'options' holds no 2 to 26 options"),
        ([], "own.jsonl is empty"),
        ([AIME, AIME], "own.jsonl: 1 unique ids of 2; colliding: own/2024-I-1"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, rows, message):
    with pytest.raises(UserError) as error:
        load_rows(write(tmp_path / "own.jsonl", *rows))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_file_that_claims_to_be_official_must_be_complete(folder):
    write(folder / "MATH-500.jsonl", *[{**MATH, "unique_id": f"{number % 450}"} for number in range(500)])
    with pytest.raises(
        UserError,
        match=r"MATH-500.jsonl: 450 unique ids of 500; colliding: math500/0 .lines 1, 451., .* and 45 more;",
    ):
        load_rows("math500")
    write(folder / "MATH-500.jsonl", MATH)
    with pytest.raises(UserError, match=r"MATH-500.jsonl has 1 rows, the official file 500"):
        load_rows("math500")
    (folder / "MATH-500.jsonl").unlink()
    write(folder / "math500_test.jsonl", *[{**MATH, "unique_id": f"{number}"} for number in range(500)])
    with pytest.raises(UserError, match=r"math500_test.jsonl has sha256 .* the official file 35dc41080a36"):
        load_rows("math500")


def test_an_absent_dataset_says_how_to_get_it(folder):
    with pytest.raises(UserError, match=r"run `reasoningbank fetch gsm8k`, or put GSM8K-1319.jsonl into single_turn"):
        load_rows("gsm8k")
    with pytest.raises(UserError, match="no dataset or file 'nope'; the datasets are math500"):
        load_rows("nope")


@pytest.mark.parametrize("name", ["mine", "aime24"])
def test_a_file_of_ones_own_is_held_to_what_its_yaml_says(tmp_path, name):
    path = write(tmp_path / "own.jsonl", AIME, MATH)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    dataset = load_rows(name, path, count=2, sha256=digest)
    assert (dataset.name, [row.id for row in dataset.rows]) == (name, [f"{name}/2024-I-1", f"{name}/t/1.json"])
    with pytest.raises(UserError, match="own.jsonl has 2 rows, not the 3"):
        load_rows(name, path, count=3)
    with pytest.raises(UserError, match=f"own.jsonl has sha256 {digest}, not the expected 0000"):
        load_rows(name, path, sha256="0" * 64)
    with pytest.raises(UserError, match="There is no file .*gone.jsonl"):
        load_rows(name, tmp_path / "gone.jsonl")


@pytest.fixture
def ten(tmp_path):
    rows = [{**MATH, "unique_id": str(n), "level": n % 5 + 1, "subject": "AB"[n % 2]} for n in range(10)]
    return load_rows(write(tmp_path / "own.jsonl", *rows)).rows


def test_subsets_keep_the_order_unless_shuffled(ten):
    assert [row.id for row in select(ten, ids=["own/7", "own/2"])] == ["own/2", "own/7"]
    assert {row.subject for row in select(ten, subject="a")} == {"A"}
    assert {row.level for row in select(ten, level=[1, 2])} == {1, 2}
    shuffled = select(ten, shuffle=True, seed=0)
    assert shuffled == select(ten[::-1], shuffle=True, seed=0)
    assert sorted(shuffled, key=lambda row: row.id) == list(ten)
    assert shuffled != select(ten, shuffle=True, seed=1)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [({"ids": ["own/99"]}, "own/99"), ({"subject": "C"}, "there are a, b"), ({"level": 9}, "No problem is left")],
)
def test_a_subset_that_does_not_exist_is_an_error(ten, wanted, message):
    with pytest.raises(UserError, match=message):
        select(ten, **wanted)


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize(
    ("name", "count"), [("math500", 500), ("aime24", 30), ("aime25", 30), ("gsm8k", 1319), ("mmlu_pro", 2312)]
)
def test_the_official_files_load(name, count):
    rows = load_rows(name, SHARED).rows
    assert len(rows) == len({row.id for row in rows}) == count
