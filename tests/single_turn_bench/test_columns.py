"""Data files as people have them: which columns and forms are read, and what is refused in a sentence."""

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import shlex
import subprocess
import sys
import zipfile
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from core import textfile
from core.errors import UserError
from envs.single_turn import ChoiceEnv
from single_turn_bench import files
from single_turn_bench.__main__ import main
from single_turn_bench.columns import Columns
from single_turn_bench.datasets import load_rows
from single_turn_bench.rows import parse_row
from single_turn_bench.specs import GPQA_ZIP_MEMBER

ROOT = Path(__file__).resolve().parents[2]

COLOURS = ["red", "green", "blue", "black"]
# For each row the right option's place in COLOURS.
RIGHT = (1, 0, 3)


def rows_of(make, right=RIGHT):
    """A row for each right place. make: (place) -> the columns beside the question and the id."""
    return [{"id": f"q{n}", "question": f"Colour {n}?", **make(place)} for n, place in enumerate(right)]


def letter(place):
    return "ABCDEFGH"[place]


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def loaded(tmp_path, rows):
    return load_rows(write(tmp_path / "own.jsonl", *rows)).rows


def option_columns(*names):
    return dict(zip(names, COLOURS, strict=False))


def wrong_of(place):
    return [colour for colour in COLOURS if colour != COLOURS[place]]


CHOICES = {
    "options, letter": lambda p: {"options": COLOURS, "answer": letter(p)},
    "small letter": lambda p: {"choices": COLOURS, "answer": letter(p).lower()},
    "letter in brackets": lambda p: {"choices": COLOURS, "answer": f"({letter(p)})"},
    "letter and dot": lambda p: {"choices": COLOURS, "target": f" {letter(p)}. "},
    "letter and text": lambda p: {"choices": COLOURS, "answer": f"{letter(p)}) {COLOURS[p]}"},
    "option and letter": lambda p: {"choices": COLOURS, "answer": f"Option {letter(p)}"},
    "the answer is": lambda p: {"choices": COLOURS, "answer": f"The correct answer is: ({letter(p)})"},
    "text": lambda p: {"choices": COLOURS, "answer": COLOURS[p]},
    "text in another case": lambda p: {"choices": COLOURS, "gold": f" {COLOURS[p].upper()}. "},
    "MMLU-Pro": lambda p: {"options": COLOURS, "answer": letter(p), "answer_index": p, "category": "art"},
    "ARC": lambda p: {"choices": {"text": COLOURS, "label": list("ABCD")}, "answerKey": letter(p)},
    "ARC with numbers": lambda p: {"choices": {"text": COLOURS, "label": list("1234")}, "answerKey": str(p + 1)},
    "letters to texts": lambda p: {"options": dict(zip("ABCD", COLOURS, strict=True)), "answer": letter(p)},
    "MedQA": lambda p: {
        "options": dict(zip("ABCD", COLOURS, strict=True)), "answer": COLOURS[p], "answer_idx": letter(p),
        "metamap_phrases": ["one", "two"],
    },
    "an object with an empty end": lambda p: {
        "options": {**dict(zip("ABCD", COLOURS, strict=True)), "E": None}, "answer": letter(p)
    },
    "lettered A)": lambda p: {
        "options": [f"{letter(n)}){c}" for n, c in enumerate(COLOURS)], "correct": letter(p)
    },
    "lettered (A)": lambda p: {"options": [f"({letter(n)}) {c}" for n, c in enumerate(COLOURS)], "label": letter(p)},
    "lettered A.": lambda p: {"options": [f"{letter(n)}. {c}" for n, c in enumerate(COLOURS)], "answer": letter(p)},
    "numbered 1.": lambda p: {"options": [f"{n + 1}. {c}" for n, c in enumerate(COLOURS)], "answer": p + 1},
    "a list as JSON": lambda p: {"options": json.dumps(COLOURS), "answer": letter(p)},
    "an object as Python": lambda p: {
        "choices": repr({"text": COLOURS, "label": list("ABCD")}), "answerKey": letter(p)
    },
    "A, B, C, D": lambda p: {**option_columns(*"ABCD"), "answer": letter(p)},
    "a, b, c, d and the text": lambda p: {**option_columns(*"abcd"), "Answer": COLOURS[p]},
    "option_a": lambda p: {**option_columns("option_a", "option_b", "option_c", "option_d"), "answer": letter(p)},
    "a column that is empty at the end": lambda p: {
        **option_columns("A", "B", "C", "D"), "E": "", "answer": letter(p)
    },
    "letters of other scripts": lambda p: {
        "options": [f"{letter(n)}、{c}" for n, c in enumerate(COLOURS)], "answer": f"（{letter(p)}）"
    },
    "a box around the letter": lambda p: {"options": COLOURS, "answer": rf"\\boxed{{{letter(p)}}}"},
    "a solution to the letter": lambda p: {"options": COLOURS, "answer": f"It is so.\n#### {letter(p)}"},
    "a list of one": lambda p: {"options": COLOURS, "answer": [letter(p)]},
    "a list of one, as a table writes it": lambda p: {"options": COLOURS, "answer": str([COLOURS[p]])},
    "SciQ": lambda p: {
        "correct_answer": COLOURS[p], **{f"distractor{n}": c for n, c in enumerate(wrong_of(p), 1)},
    },
    "GPQA": lambda p: {
        "Correct Answer": COLOURS[p], **{f"Incorrect Answer {n}": c for n, c in enumerate(wrong_of(p), 1)},
    },
    "a list of wrong ones": lambda p: {"correct_answer": COLOURS[p], "incorrect_answers": wrong_of(p)},
    "metadata that is no object": lambda p: {"options": COLOURS, "answer": letter(p), "metadata": "from a book"},
    "an explanation beside it": lambda p: {"options": COLOURS, "answer": letter(p), "solution": "Because it is so."},
    "names in other signs": lambda p: {"Ｃｈｏｉｃｅｓ": COLOURS, "answer\u00a0key": letter(p)},
    "a mark before a name": lambda p: {"\ufeffoptions": COLOURS, " Answer ": letter(p)},
}  # fmt: skip


def test_several_right_options_are_told_as_such():
    row = {"question": "Which are even?", "options": ["1", "2", "4"], "answer": "B, C"}
    for answer in ("B, C", ["B", "C"], "B/C", "B and C", [1, 2]):
        with pytest.raises(UserError, match="no single one .*where several are right, leave the row out"):
            parse_row(row | {"answer": answer}, "mine", "mine.jsonl line 1")


def test_options_that_differ_by_case_or_a_sign_are_told_by_their_exact_text():
    for options, answer in ((["Co", "CO", "C"], "CO"), (["m", "M"], "M"), (["5", "5."], "5."), (["[5]", "[6]"], "[6]")):
        row = parse_row({"question": "W?", "options": options, "answer": answer}, "mine", "mine.jsonl line 1")
        assert row.options[row.answer_index] == answer


def test_options_are_read_however_they_are_written(subtests, tmp_path):
    for name, make in CHOICES.items():
        with subtests.test(name):
            rows = loaded(tmp_path, rows_of(make))
            for row, place in zip(rows, RIGHT, strict=True):
                assert sorted(row.options) == sorted(COLOURS)
                assert row.options[row.answer_index] == COLOURS[place]
                assert row.answer == letter(row.answer_index)


COUNTED = {
    "MMLU": (lambda p: {"subject": "art", "choices": COLOURS, "answer": p}, "from_0"),
    "HellaSwag": (lambda p: {"ctx_a": "It", "ctx_b": "is", "endings": COLOURS, "label": str(p)}, "from_0"),
    "MedMCQA": (lambda p: {**option_columns("opa", "opb", "opc", "opd"), "cop": p, "choice_type": "single"}, "from_0"),
    "SocialIQA": (
        lambda p: {**option_columns("answerA", "answerB", "answerC", "answerD"), "label": str(p + 1)}, "from_1"
    ),
    "ending0": (lambda p: {**option_columns("ending0", "ending1", "ending2", "ending3"), "label": p}, "from_0"),
    "numbers as a table writes them": (lambda p: {"choices": COLOURS, "label": f"{p}.0"}, "from_0"),
    "a list as Python": (lambda p: {"options": repr(COLOURS), "answer": p + 1}, "from_1"),
}  # fmt: skip


def test_a_number_counts_the_options_from_where_it_is_said(subtests, tmp_path):
    for name, (make, way) in COUNTED.items():
        with subtests.test(name):
            path = write(tmp_path / "own.jsonl", *rows_of(make))
            rows = load_rows(path, columns=Columns(answer_as=way)).rows
            assert [row.options[row.answer_index] for row in rows] == [COLOURS[place] for place in RIGHT]
            with pytest.raises(UserError, match=rf"say it with env.columns.answer_as={way} if it is 'green'\.$"):
                load_rows(path)  # another row's 0, or the number of options, rules the other way out


def test_an_answer_index_counts_from_0(tmp_path):
    rows = loaded(tmp_path, rows_of(lambda p: {"options": COLOURS, "metadata": {"answer_index": p}}))
    assert [row.answer_index for row in rows] == list(RIGHT)


def test_what_is_right_in_the_file_is_right_as_it_is_shown(tmp_path):
    """Nothing is lost on the way to the model: four options, each once, and the letter of the right one."""
    for number, make in enumerate(CHOICES.values()):
        path = write(tmp_path / f"own{number}.jsonl", *rows_of(make))
        env = ChoiceEnv(instructions="Choose.", max_steps=1, dataset="own", path=str(path))
        for task, place in zip(env.tasks(), RIGHT, strict=True):
            env.reset(task)
            lines = task.query.splitlines()[-4:]
            assert sorted(line[4:] for line in lines) == sorted(COLOURS)
            assert f"({env.get_ground_truth()}) {COLOURS[place]}" in lines


def test_a_right_answer_beside_wrong_ones_is_not_always_the_first(tmp_path):
    rows = loaded(tmp_path, rows_of(CHOICES["SciQ"], right=[1] * 40))
    assert {row.answer for row in rows} == set("ABCD")


FREE = {
    "question, answer": ({"question": "W?", "answer": "42"}, "42"),
    "a number": ({"question": "W?", "answer": 42}, "42"),
    "prompt, target": ({"prompt": "W?", "target": "42"}, "42"),
    "problem, final answer": ({"Problem": "W?", "Final Answer": "42", "answer": "It is so. Long story."}, "42"),
    "query, gold": ({"query": "W?", "gold": "42"}, "42"),
    "a name in capitals": ({"QUESTION": "W?", "ANSWER": "42"}, "42"),
    "GSM8K": ({"question": "W?", "answer": "6 * 7 = 42\n#### 42"}, "42"),
    "GSM8K as a solution": ({"question": "W?", "solution": "6 * 7 = 42\n#### 42"}, "42"),
    "MATH": ({"problem": "W?", "solution": r"So $\boxed{42}$.", "level": "Level 5", "type": "Algebra"}, "42"),
    "a box in an answer": ({"question": "W?", "answer": r"First 6, then 7, so \boxed{\frac{1}{2}}."}, r"\frac{1}{2}"),
    "SVAMP": ({"Body": "W?", "Question": "How many?", "Answer": 42}, "42"),
    "a letter alone is no option": ({"question": "W?", "answer": "Z"}, "Z"),
    "several": ({"question": "W?", "answer": ["42", "forty-two"]}, "42|forty-two"),
    "several as JSON": ({"question": "W?", "answers": '["42", "forty-two"]'}, "42|forty-two"),
    "TriviaQA": ({"question": "W?", "answer": {"value": "42", "aliases": ["forty-two"]}}, "42|forty-two"),
    "SQuAD": ({"question": "W?", "answers": {"text": ["42", "42"], "answer_start": [1, 7]}}, "42"),
    "no aliases": ({"question": "W?", "answer": {"value": "42", "aliases": None}}, "42"),
    "an empty alias": (
        {"question": "W?", "answer": {"value": "42", "aliases": ["", None, "forty-two"]}},
        "42|forty-two",
    ),
    "numbers are one answer": ({"question": "W?", "answer": [6, 7.5]}, "6, 7.5"),
    "an interval is one text": ({"question": "W?", "answer": "[1, 2]"}, "[1, 2]"),
    "a tuple is one text": ({"question": "W?", "answer": "(1, 2)"}, "(1, 2)"),
    "a set is one text": ({"question": "W?", "answer": "{1, 2}"}, "{1, 2}"),
    "truth": ({"question": "W?", "answer": True}, "True|Yes"),
    "truth as a text": ({"question": "W?", "answer": "no"}, "no|False"),
    "tags are no options": ({"question": "W?", "answer": "42", "tags": ["algebra", "easy"]}, "42"),
    "hints are no options": ({"question": "W?", "answer": "42", "hint_1": "Think.", "hint_2": "More."}, "42"),
    "numbers of a template": ({"question": "W?", "answer": "42", "a": 6, "b": 7}, "42"),
    "a name as an answer": ({"question": "W?", "answer": "Anna", "source": "book; chapter 2"}, "Anna"),
    "options that are null": ({"question": "W?", "answer": "B", "options": None}, "B"),
    "options in the question": ({"question": "W?\nA. red\nB. blue", "answer": "B"}, "B"),
    "a metadata text": ({"question": "W?", "answer": "42", "metadata": '{"domain": "sums", "level": 3}'}, "42"),
}


def test_free_answers_are_read_by_any_usual_name(subtests, tmp_path):
    for name, (raw, wanted) in FREE.items():
        with subtests.test(name):
            (row,) = loaded(tmp_path, [raw])
            assert row.question.splitlines()[0] == "W?" and row.options is None
            assert "|".join([row.answer, *row.accepted]) == wanted


@pytest.mark.parametrize("name", ["passage", "Context", "support", "article"])
def test_a_text_that_is_asked_about_stands_above_the_question(tmp_path, name):
    (row,) = loaded(tmp_path, [{"question": "Is it red?", name: "The house is red.", "answer": "yes"}])
    assert row.question == "The house is red.\n\nIs it red?"


@pytest.mark.parametrize(
    "more",
    [
        {"text": "The answer is red."},
        {"content": "It is red."},
        {"rationale": "It is red."},
        {"explanation": "It is red."},
        {"solution": "It is red."},
        {"input": "Answer in a word: Colour?"},
        {"prompt": "Colour? A: red"},
        {"hint": "Look."},
    ],
)
def test_what_may_give_the_answer_away_is_not_shown(tmp_path, more):
    (row,) = loaded(tmp_path, [{"question": "Colour?", "answer": "red", **more}])
    assert (row.question, row.answer) == ("Colour?", "red")


FOUR = {"id": "q", "question": "W?", "choices": COLOURS}
REFUSED = {
    "no option has this text": ([{**FOUR, "answer": "purple"}], ["line 1", "'answer'", "'purple'", "4 options"]),
    "a letter beyond": ([{**FOUR, "answer": "F"}], ["line 1", "'answer'", "'F'"]),
    "from 0 and from 1": ([{**FOUR, "id": 1, "answer": 0}, {**FOUR, "answer": 4}], ["line 1", "'0'", "answer_as="]),
    "no label": ([{**FOUR, "label": -1}], ["line 1", "'label'", "'-1'"]),
    "one row of many": ([{**FOUR, "id": n, "answer": "F" if n == 3 else "A"} for n in range(7)], ["line 4", "'F'"]),
    "from 0 or from 1": (
        [{**FOUR, "label": 2}], ["'label'", "answer_as=from_0 if it is 'blue', or env.columns.answer_as=from_1 if it"]
    ),
    "a letter that is also a text": (
        [{"question": "W?", "options": ["B", "A"], "answer": "A"}], ["'answer'", "env.columns.answer_as="]
    ),
    "letters in another order": ([{"question": "W?", "options": ["B) x", "A) y"], "answer": "A"}], ["answer_as="]),
    "the same option twice": ([{"question": "W?", "options": ["x", "x", "y"], "answer": "x"}], ["no single one"]),
    "a list that pandas wrote": ([{"question": "W?", "options": "['red' 'green']", "answer": "B"}], ["'options'"]),
    "several letters": ([{**FOUR, "answer": "A, C"}], ["line 1", "'answer'", "where several are right"]),
    "a list of letters": ([{**FOUR, "answer": ["A", "C"]}], ["line 1", "'answer'", "where several are right"]),
    "several marks": ([{**FOUR, "labels": [1, 0, 1, 0]}], ["line 1", "'labels'"]),
    "no answer": ([FOUR], ["line 1", "the right option", "env.columns.answer=NAME", "id, question, choices"]),
    "an empty answer": ([{**FOUR, "id": 1, "answer": "A"}, {**FOUR, "answer": ""}], ["line 2", "'answer'", "empty"]),
    "one option": ([{"question": "W?", "options": ["x"], "answer": "A"}], ["line 1", "'options'"]),
    "options in no form": (
        [{"question": "W?", "options": "red, green", "answer": "A"}], ["'options'", "env.columns.options=[NAME"]
    ),
    "objects in no form": ([{"question": "W?", "options": [{"x": 1, "y": 2}], "answer": "A"}], ["line 1", "'options'"]),
    "options in some rows": (
        [{**FOUR, "id": 1, "answer": "A"}, {**FOUR, "choices": [], "answer": "A"}],
        ["line 2", "'choices' is empty", "a file of their own"]
    ),
    "an unknown list, letter": ([{"question": "W?", "picks": COLOURS, "answer": "B"}], ["picks", "options=NAME"]),
    "an unknown list, text": ([{"question": "W?", "auswahl": COLOURS, "answer": "blue"}], ["'auswahl'", "options"]),
    "an unknown list, number": ([{"question": "W?", "picks": COLOURS, "answer": 1}], ["'picks'", "options"]),
    "an unknown text": ([{"question": "W?", "picks": "red, blue", "answer": "blue"}], ["'picks'", "options"]),
    "unknown columns": (
        [{"question": "W?", "pick_a": "red", "pick_b": "blue", "answer": "b"}], ["pick_a, pick_b", "options"]
    ),
    "letters and no options": ([{"question": "W?", "answer": "B", "picks": "?"}], ["'B' is a letter", "picks"]),
    "numbers of classes": ([{"question": "A good film.", "label": 1}], ["'label' tells one of several options"]),
    "no question": ([{"frage": "W?", "answer": "1"}], ["line 1", "the question", "frage", "env.columns.question=NAME"]),
    "an empty question": ([{"question": " ", "answer": "1"}], ["line 1", "'question'", "empty"]),
    "no free answer": ([{"question": "W?", "antwort": "1"}], ["line 1", "the answer", "antwort", "env.columns.answer"]),
    "an empty free answer": (
        [{"id": n, "question": "W?", "answer": "" if n else "1"} for n in range(3)], ["line 2", "'answer'", "empty"]
    ),
    "an answer in no form": ([{"question": "W?", "answer": {"day": 1}}], ["line 1", "'answer'"]),
    "a solution that ends in no mark": ([{"question": "W?", "solution": "42"}], ["line 1", "the answer"]),
    "lines": ([{"question": "W?", "options": "red\nblue", "answer": "A"}], ["line 1", "'options'"]),
    "a mark for each": ([{**FOUR, "labels": [1, 0, 0, 0]}], ["line 1", "'labels'"]),
    "a proof": ([{"question": "W?", "solution": "Let it be so.\nThen it is."}], ["line 1", "the answer"]),
    "a question that is no text": ([{"question": [1, 2], "answer": "1"}], ["line 1", "'question'"]),
    "two columns of one name": ([{"question": "W?", "Answer": "1", "answer": "2"}], ["two columns are named 'answer'"]),
    "the same id": ([{"id": 7, "question": f"{n}?", "answer": "1"} for n in range(2)], ["own/7", "lines 1, 2"]),
    "the same question": ([{"question": "W?", "answer": "1"}] * 2, ["own/", "lines 1, 2"]),
    "a wrong answer that is right": (
        [{"question": "W?", "correct_answer": "x", "distractor1": "x", "distractor2": "y"}], ["line 1", "twice"]
    ),
    "wrong answers in no form": (
        [{"question": "W?", "answer": "x", "distractors": "y, z, t"}], ["line 1", "'distractors'"]
    ),
}  # fmt: skip


def test_what_is_not_certain_is_refused_in_a_sentence_that_names_it(subtests, tmp_path):
    for name, (rows, words) in REFUSED.items():
        with subtests.test(name):
            with pytest.raises(UserError) as error:
                loaded(tmp_path, rows)
            said = str(error.value)
            assert all(word in said for word in words), said
            assert "\n" not in said and said.startswith("own.jsonl")


ROW = {"nr": 3, "q": "Which?", "text": "Read this.", "a": "red", "b": "blue", "c": "3", "gold": "b"}
SAID = {
    "a column for each option": ({"question": "q", "answer": "gold", "options": ["a", "b", "c"]}, "Which?", "blue"),
    "texts above, an id": (
        {"question": "q", "context": "text", "answer": "gold", "options": ["c", "b"], "id": "nr"},
        "Read this.\n\nWhich?", "blue",
    ),
    "several that make the question": (
        {"question": ["text", "q"], "answer": "b", "options": []}, "Read this.\n\nWhich?", None
    ),
}  # fmt: skip


def test_columns_are_said(subtests, tmp_path):
    path = write(tmp_path / "own.jsonl", ROW)
    for name, (said, question, right) in SAID.items():
        with subtests.test(name):
            (row,) = load_rows(path, columns=Columns(**said)).rows
            assert row.question == question
            assert (row.answer if right is None else row.options[row.answer_index]) == (right or "blue")
            assert row.id == "own/3" or "id" not in said


@pytest.mark.parametrize(("way", "right"), [("from_0", "blue"), ("from_1", "green"), ("letter", None)])
def test_how_the_answer_tells_the_option_is_said_too(tmp_path, way, right):
    path = write(tmp_path / "own.jsonl", {**FOUR, "label": 2})
    if right is None:
        with pytest.raises(UserError, match="'label' is '2', which tells no single one of 4 options"):
            load_rows(path, columns=Columns(answer_as=way))
    else:
        (row,) = load_rows(path, columns=Columns(answer_as=way)).rows
        assert row.options[row.answer_index] == right


def test_a_column_that_is_not_there_and_a_way_that_is_none_are_refused(tmp_path):
    path = write(tmp_path / "own.jsonl", ROW)
    with pytest.raises(UserError, match=r"there is no column 'frage'; the columns are nr, q, text, a, b, c, gold"):
        load_rows(path, columns=Columns(question="frage"))
    with pytest.raises(UserError, match=r"env.columns.answer_as=roman is not one of letter"):
        Columns(answer_as="roman")


def test_rows_that_ask_the_same_of_other_options_are_two(tmp_path):
    """As in MMLU, which has no ids: "Which of these is true?"."""
    rows = [{"question": "Which is true?", "choices": COLOURS, "answer": "A"}]
    rows.append({"question": "Which is true?", "choices": ["x", "y", "z"], "answer": "C"})
    assert len({row.id for row in loaded(tmp_path, rows)}) == 2


# files

TABLE = [
    {"question": "Which, \"a\" or b?\nSay.", "A": "red", "B": "x; y", "C": "z", "answer": "B"},
    {"question": "Größe?", "A": "1", "B": "2", "C": "3", "answer": "C"},
]  # fmt: skip


def table(delimiter, rows=TABLE):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def parquet():
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    out = io.BytesIO()
    write_table(pa.Table.from_pylist(TABLE), out)
    return out.getvalue()


LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in TABLE)
FILES = {
    "own.jsonl": lambda: LINES.encode(),
    "own.ndjson": lambda: LINES.replace("\n", "\r\n").encode("utf-8-sig"),
    "own16.jsonl": lambda: LINES.encode("utf-16"),
    "own32.jsonl": lambda: LINES.encode("utf-32"),
    "own.jsonl.gz": lambda: gzip.compress(LINES.encode()),
    "packed.jsonl": lambda: gzip.compress(LINES.encode()),
    "list.jsonl": lambda: json.dumps(TABLE, indent=1).encode(),
    "list.json": lambda: json.dumps(TABLE).encode(),
    "lines.json": lambda: LINES.encode(),
    "data.json": lambda: json.dumps({"version": "1", "data": TABLE}).encode(),
    "own.csv": lambda: table(",").encode(),
    "excel.csv": lambda: table(";").encode("utf-8-sig"),
    "sep.csv": lambda: ("sep=;\r\n" + table(";")).encode("utf-8-sig"),
    "unicode.csv": lambda: table("\t").encode("utf-16"),
    "own.tsv": lambda: table("\t").encode(),
    "index.csv": lambda: table(",", [{"": n, **row} for n, row in enumerate(TABLE)]).encode(),
    "own.csv.gz": lambda: gzip.compress(table(",").encode()),
    "own.parquet": parquet,
}


def test_files_are_read_in_every_usual_form(subtests, tmp_path):
    for name, made in FILES.items():
        with subtests.test(name):
            path = tmp_path / name
            path.write_bytes(made())
            first, second = load_rows("own", path).rows
            assert (first.question, first.options, first.answer) == (TABLE[0]["question"], ("red", "x; y", "z"), "B")
            assert (second.question, second.answer) == ("Größe?", "C")


def archive(text):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(GPQA_ZIP_MEMBER, text)
    return made.getvalue()


NO_TEXT = "is no text, or UTF-16 without a byte order mark: unpack what is packed"
UNREADABLE = {
    "latin.csv": (table(",").encode("latin-1"), "latin.csv is not UTF-8 text"),
    "latin.jsonl": (LINES.encode("cp1252"), "latin.jsonl is not UTF-8 text"),
    "marked.jsonl": (LINES.encode("utf-16-le"), NO_TEXT),
    "book.xlsx": (archive("x"), NO_TEXT),
    "own.jsonl.bz2": (bz2.compress(LINES.encode()), NO_TEXT),
    "own.jsonl.xz": (lzma.compress(LINES.encode()), NO_TEXT),
    "own.jsonl.zst": (b"\x28\xb5\x2f\xfd\x04\x58", NO_TEXT),
    "own.tgz": (gzip.compress(b"q".ljust(257, b"\0") + b"ustar".ljust(243, b"\0")), NO_TEXT),
    "data.arrow": (b"\xff\xff\xff\xff\x10\x00\x00\x00", NO_TEXT),
    "own.pkl": (pickle.dumps(TABLE), NO_TEXT),
    "own.sqlite": (b"SQLite format 3\x00", NO_TEXT),
    "old.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", NO_TEXT),
    "pointer.jsonl": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "'version https://git-lfs"),
    "page.jsonl": (b"\n<!doctype html><html>", "'<!doctype html>"),
    "torn.csv": (b'question,answer\n"W?,1\n', "torn.csv line 2: not CSV"),
    "wide.csv": (b"question,answer\n\nW?,1,2\n", "wide.csv row 3: it has 3 cells, and the first line names 2"),
    "twice.csv": (b"question,answer,answer\nW?,1,2\n", "names the column 'answer' twice"),
    "headless.csv": (b"What is it?,red,blue,B\nAnd this?,x,y,A\n", "no column is known to be the question"),
    "one.csv": (b"question\nW?\n", "does not name several columns"),
    "empty.csv": (b"", "empty.csv is empty"),
    "two.json": (json.dumps({"train": TABLE, "test": TABLE}).encode(), "several lists of rows (train, test)"),
    "text.json": (b'"text"', "rows are a list of JSON objects"),
    "ids.json": (
        json.dumps({"q0": TABLE[0], "q1": TABLE[1]}).encode(),
        "ids.json row 1: no column is known to be the question",
    ),
    "columns.json": (json.dumps({"question": ["W?"], "answer": ["1"]}).encode(), "columns.json row 1: 'question', or"),
    "torn.json": (b'[{"question": ', "torn.json: not JSON"),
    "numbers.json": (b"[1, 2]", "numbers.json row 1: a row is a JSON object"),
    "torn.parquet": (b"PAR1 and no more", "torn.parquet cannot be read as parquet"),
    "torn.jsonl.gz": (gzip.compress(LINES.encode())[:-9], "torn.jsonl.gz cannot be read"),
}


def test_a_file_that_cannot_be_read_is_one_sentence(subtests, tmp_path):
    for name, (data, message) in UNREADABLE.items():
        with subtests.test(name):
            path = tmp_path / name
            path.write_bytes(data)
            with pytest.raises(UserError) as error:
                load_rows("own", path)
            said = str(error.value)
            assert message in said and "\n" not in said, said


def test_numbers_dates_and_decimals_of_parquet_are_answers(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    for value, wanted in ((Decimal("1.50"), "1.50"), (date(2024, 5, 1), "2024-05-01"), (7, "7")):
        write_table(pa.table({"question": ["W?"], "answer": [value]}), tmp_path / "own.parquet")
        assert load_rows("own", tmp_path / "own.parquet").rows[0].answer == wanted


def parquet_of(texts):
    import pyarrow
    from pyarrow.parquet import write_table

    file = pyarrow.BufferOutputStream()
    write_table(pyarrow.table({"question": texts, "answer": ["1"] * len(texts)}), file)
    return file.getvalue().to_pybytes()


PACKED = {
    "large.jsonl.gz": lambda: gzip.compress(bytes(3 << 20)),
    "large.csv": lambda: gzip.compress(bytes(1 << 20)) * 3,
    "large.parquet": lambda: parquet_of(["W?" * (1 << 20), "V?" * (1 << 20)]),
    "large.zip": lambda: archive("x" * (3 << 20)),
}


def test_a_packed_file_is_read_up_to_a_limit(subtests, tmp_path, monkeypatch):
    for module in (textfile, files):
        monkeypatch.setattr(module, "MOST_UNPACKED", 2 << 20)
    for name, made in PACKED.items():
        with subtests.test(name):
            path = tmp_path / name
            path.write_bytes(made())
            with pytest.raises(UserError, match="large.* unpacks to more than 2 MB") as error:
                load_rows("own", path)
            assert "\n" not in str(error.value)
    (tmp_path / "just.jsonl.gz").write_bytes(gzip.compress(LINES.encode().ljust(2 << 20)))
    assert load_rows("own", tmp_path / "just.jsonl.gz").rows


@pytest.mark.slow
def test_four_megabytes_that_unpack_to_four_gigabytes_take_neither_memory_nor_time(tmp_path):
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)) * 64)
    assert path.stat().st_size < 5 << 20
    words = [sys.executable, "-m", "single_turn_bench", "validate", str(path)]
    script = f"ulimit -v {3 << 20}; exec {shlex.join(words)}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "bomb.jsonl.gz unpacks to more than 512 MB" in done.stderr


SEEN = {
    "bytes of parquet": {"image": {"bytes": "iVBOR", "path": None}},
    "a file": {"image": "images/cat.png"},
    "several, one missing": {"image_1": None, "image_2": "b.jpg"},
    "a list in a cell": {"images": "['a.png', 'b.png']"},
    "in the row": {"figure": "data:image/png;base64,iVBOR"},
    "under another name": {"attachment": "https://host/x.webp?size=1"},
    "sound": {"audio": {"array": [0.1], "sampling_rate": 16000}},
    "an address": {"url": "https://host/x.jpg"},
    "a folder of pictures": {"file_name": "0001.png"},
    "a name without an ending": {"image": "COCO_000000487025"},
    "a place in the text": {"question": "What is in <image 1>?"},
    "a picture in Markdown": {"question": "What is this? ![it](a.png)"},
    "a picture in HTML": {"question": 'Which? <img src="https://host/a.png">'},
    "a place in an option": {"options": ["<image 1>", "<image 2>"], "answer": "A"},
}
NOT_SEEN = {
    "none": {"image": None, "images": [], "figure": "None", "image_url": ""},
    "the struct of none": {"image": {"bytes": None, "path": None}},
    "about one": {"has_image": True, "image_id": 3, "image_count": 0},
    "names of files": {"options": ["a.png", "b.jpg"], "answer": "A", "explanation": "See a.png"},
    "HTML": {"question": "What does <img src='cat.jpg' alt='cat'> show?"},
    "comparison": {"question": "Is 1 <image> in LaTeX: $x ![y]$?".replace("<image>", "<imagine>")},
}


def test_a_row_that_needs_eyes_is_refused_and_others_are_not(subtests, tmp_path):
    plain = {"question": "How many legs?", "answer": "3"}
    for name, more in SEEN.items():
        with subtests.test(name):
            path = write(tmp_path / "own.jsonl", plain | more)
            with pytest.raises(
                UserError, match=r"line 1: .* only text is asked: .*; say it with env.columns.image=\[\]"
            ):
                load_rows("own", path)
            assert len(load_rows("own", path, columns=Columns(image=[])).rows) == 1
    for name, more in NOT_SEEN.items():
        with subtests.test(name):
            assert len(load_rows("own", write(tmp_path / "own.jsonl", plain | more)).rows) == 1
    with pytest.raises(UserError, match="pictures are not sent"):
        Columns(image=["image"])


def test_a_cell_may_be_longer_than_131_072_characters(tmp_path):
    for name, sign in (("a.csv", ","), ("b.tsv", "\t"), ("c.csv", ";")):
        text = f'question{sign}answer\n"{"herring " * 20_000}How many?"{sign}3\n'
        (tmp_path / name).write_text(text)
        assert len(load_rows("own", tmp_path / name).rows[0].question) > 160_000


# validate, and whole runs


def test_validate_shows_the_first_question_as_the_model_sees_it(tmp_path, capsys):
    path = write(tmp_path / "own.jsonl", *rows_of(CHOICES["SciQ"]))
    assert main(["validate", "--path", str(path)]) == main(["validate", str(path)]) == 0
    out = capsys.readouterr().out
    env = ChoiceEnv(instructions="Choose.", max_steps=1, dataset=str(path))
    env.reset(env.tasks()[0])
    assert all(f"    {line}".rstrip() in out.splitlines() for line in env.tasks()[0].query.splitlines())
    assert f"gold: ({env.get_ground_truth()}) green" in out and "3/3" in out


def test_validate_tells_what_is_refused_and_takes_what_is_said(tmp_path, capsys):
    path = write(tmp_path / "own.jsonl", ROW)
    assert main(["validate", str(path)]) == 2
    assert "env.columns.question=NAME" in capsys.readouterr().err
    assert main(["validate", str(path), "--columns", "{question: q, answer: gold, options: [a, b, c]}"]) == 0
    assert "gold: (" in capsys.readouterr().out
    assert main(["validate", str(path), "--columns", "{frage: q}"]) == 2
    assert "there is no key env.columns.frage" in capsys.readouterr().err


def test_a_file_whose_columns_are_said_is_played(here, tmp_path):
    path = write(tmp_path / "own.jsonl", ROW, {**ROW, "nr": 4, "gold": "c"})
    words = ("workflow=vanilla", "agent=gold", "llm=scripted", "embedder=hashing", f"env.path={path}")
    said = "env.columns={question: q, answer: gold, options: [a, b, c], id: nr}"
    assert here("env=questions", said, *words, run_dir=tmp_path / "run")[1] == 1.0
    assert here("env=mmlu_pro", said, *words, run_dir=tmp_path / "choice")[1] == 1.0


def test_a_table_of_ones_own_is_played(here, tmp_path):
    path = tmp_path / "own.csv"
    path.write_bytes(table(";").encode("utf-8-sig"))
    words = ("env=mmlu_pro", f"env.path={path}", "workflow=vanilla", "agent=gold", "llm=scripted", "embedder=hashing")
    assert here(*words, run_dir=tmp_path / "run")[1] == 1.0


def test_each_of_several_answers_counts(tmp_path):
    from envs.single_turn import MathEnv

    path = write(tmp_path / "own.jsonl", {"question": "Where?", "answer": ["New York", "NYC"]})
    with MathEnv(instructions="Answer.", max_steps=1, dataset="own", path=str(path)) as env:
        for said, wanted in (("NYC", 1.0), ("New York", 1.0), ("Boston", 0.0)):
            env.reset(env.tasks()[0])
            _, reward, _, info = env.step(rf"\boxed{{\text{{{said}}}}}")
            assert reward == wanted
            with MathEnv.regrader({}) as grade:
                assert grade({"answer": info["answer"], "gold": env.get_ground_truth(), "info": info}) is bool(wanted)
