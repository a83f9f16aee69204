"""Replies that should be structured: verdicts, lessons, JSON with LaTeX."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.learning.structured import parse_json, parse_lessons, parse_status


def test_a_verdict_is_read_or_it_is_not(subtests):
    cases = [
        ('Thoughts: fine\nStatus: "success"', "success"),
        ("Status: failure", "failure"),
        ("**Status:** `Success`", "success"),
        ("Status:\nsuccess", "success"),
        ('{"thoughts": "ok", "status": "failure"}', "failure"),
        ('```json\n{"thoughts": "a {b} c", "status": "success"}\n```', "success"),
        ("Status: success\nOn reflection.\nStatus: failure", "failure"),
        ("Status: unsuccessful", None),
        ('Status: "success" or "failure"', None),
        ("Status: success/failure", None),
        ('Status: "success" or "failure"\nStatus: failure', "failure"),
        ("Status: success, or so it seems", "success"),
        ("The run was a success", None),
        ('{"status": "maybe"}', None),
        ("Status: successful", None),
        ("", None),
    ]
    for text, label in cases:
        with subtests.test(text=text):
            assert parse_status(text) == label


ITEM = "# Memory Item {n}\n## Title T{n}\n## Description D{n}.\n## Content C{n}: use \\frac{{a}}{{b}}.\n"


def test_the_papers_markdown():
    text = "I think first.\n```\n" + ITEM.format(n=1) + "\n" + ITEM.format(n=2) + "```"
    lessons, dropped = parse_lessons(text, 3)
    assert [(x.title, x.description, x.content) for x in lessons] == [
        ("T1", "D1.", "C1: use \\frac{a}{b}."),
        ("T2", "D2.", "C2: use \\frac{a}{b}."),
    ]
    assert dropped == 0


PROSE = 'These lessons hold for "all" tasks.'


@pytest.mark.parametrize(
    "text",
    [
        "```\n{0}\n{1}```\n" + PROSE,
        "```markdown\n{0}\n{1}\n```\n\n" + PROSE,
        "```\n{0}```\nAnd the second:\n```\n{1}```\n" + PROSE,
        "{0}\n{1}```\n" + PROSE,
        "I think:\n```python\nx = 1\n```\n```\n{0}\n{1}```\n" + PROSE + "\n```\nlook\n```\n",
        "```{0}\n{1}```\n" + PROSE,
    ],
)
def test_what_is_said_behind_the_fence_is_no_part_of_a_lesson(text):
    lessons, dropped = parse_lessons(text.format(ITEM.format(n=1), ITEM.format(n=2)), 3)
    assert ([x.content for x in lessons], dropped) == ([f"C{n}: use \\frac{{a}}{{b}}." for n in (1, 2)], 0)


@pytest.mark.parametrize("form", ["{}", "```\n{}\n```\n" + PROSE])
def test_code_in_a_lesson_stays(form):
    item = "# Memory Item 1\n## Title T\n## Description D\n## Content Write\n```python\nx = 1\n```\nfirst."
    [lesson], _ = parse_lessons(form.format(item), 3)
    assert "x = 1" in lesson.content and lesson.content.endswith("first.")
    assert PROSE not in lesson.content


@pytest.mark.parametrize("label", ["", "markdown"])
def test_code_without_a_language_does_not_end_an_item_that_another_follows(label):
    item = "# Memory Item 1\n## Title T\n## Description D\n## Content Use\n```\nx = 1\n```\nand on\n"
    lessons, dropped = parse_lessons(f"```{label}\n{item}{ITEM.format(n=2)}```\n{PROSE}", 3)
    assert [x.content for x in lessons] == ["Use\n\nx = 1\n\nand on", "C2: use \\frac{a}{b}."]
    assert dropped == 0


def test_fields_may_stand_on_the_next_line_and_have_colons():
    text = "# Memory Item 1: Checking\n## Title: Check\n## Description:\nOne line.\n## Content\nFirst.\nSecond.\n"
    [lesson], dropped = parse_lessons(text, 3)
    assert (lesson.title, lesson.description, lesson.content, dropped) == ("Check", "One line.", "First.\nSecond.", 0)


def test_too_many_incomplete_and_repeated_items_are_dropped_and_counted():
    many = "".join(ITEM.format(n=n) for n in (1, 1, 2, 3, 4))
    lessons, dropped = parse_lessons(many + "# Memory Item 9\n## Title only a title\n", 3)
    assert ([x.title for x in lessons], dropped) == (["T1", "T2", "T3"], 3)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [("no items at all", 1), ("", 0), ('{"items": []}', 1), ('{"items": [{"title": ""}, 7]}', 2), ('{"items": 3}', 1)],
)
def test_garbage_gives_no_lesson_and_is_counted(text, dropped):
    assert parse_lessons(text, 3) == ([], dropped)


def test_the_form_said_again_is_no_lesson():
    blank = "# Memory Item 1\n## Title <short name>\n## Description <one sentence>\n## Content <1 to 3 sentences>\n"
    assert parse_lessons(blank, 3) == ([], 1)
    assert len(parse_lessons(blank + ITEM.format(n=2), 3)[0]) == 1
    assert len(parse_lessons(blank.replace("<short name>", "<b> tags"), 3)[0]) == 1


LATEX = r"\frac{1}{2} \theta \neq \underline{x} \times \beta \rho \nu \to \text{if} \bar{x} \alpha \sqrt{2} \{1\}"


def test_latex_survives_json_written_by_a_model():
    [lesson], _ = parse_lessons(
        '{"items": [{"title": "T", "description": "line\\nNext line\\tTab", "content": "@"}]}'.replace("@", LATEX), 3
    )
    assert lesson.content == LATEX
    assert lesson.description == "line\nNext line\tTab"


def test_latex_survives_json_written_correctly():
    assert parse_json("Sure: " + json.dumps({"a": LATEX, "b": "tab\t new\nline é \u2028"}), "a")["a"] == LATEX


# A newline before "i" is also written "\\ni", the LaTeX command: the one case that JSON cannot tell apart is left out.
PLAIN = st.text(st.characters(exclude_characters="\\", exclude_categories=["Cc", "Cs"]))


@given(st.dictionaries(st.text("abc", max_size=3), PLAIN))
def test_valid_json_means_what_it_says(value):
    value = {"a": "", **value}
    assert parse_json("```json\n" + json.dumps(value, ensure_ascii=False) + "\n```", "a") == value


@given(st.text())
def test_no_text_breaks_the_readers(text):
    parse_json(text, "a")
    parse_status(text)
    parse_lessons(text, 3)


def test_deep_nesting_is_no_answer():
    assert parse_json("{" * 20000, "a") is None
    assert parse_json('{"a":' * 5000, "a") is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('<think>Draft: {"status": "success"}</think>{"status": "failure"}', "failure"),
        ("<think>Status: success</think>\nStatus: failure", "failure"),
        ('{"status": "success"} no: {"status": "failure"}', "failure"),
        ('\\boxed{} {"a": {"status": "failure"}} {"status": "success"}', "success"),
    ],
)
def test_thinking_aloud_and_drafts_do_not_count(text, label):
    assert parse_status(text) == label


def test_an_object_before_the_items_is_not_the_items():
    item = {"title": "T", "description": "D", "content": "C \\ud83d"}
    lessons, dropped = parse_lessons("It wrote \\boxed{} and {}. " + json.dumps({"items": [item]}), 3)
    assert ([x.title for x in lessons], dropped) == (["T"], 0)
    lessons[0].content.encode("utf-8")


def test_thoughts_before_the_items_are_no_item():
    """Both forms of a reply: as it was asked for before, and with what was worked out first."""
    plain = "Thoughts: Memory Item 1 was no use; the form of an answer was.\n```\n" + ITEM.format(n=1) + "```"
    item = {"title": "T1", "description": "D1.", "content": "C1: use \\frac{a}{b}."}
    asked_now = json.dumps({"thoughts": 'It went wrong at {"items": []}.', "items": [item]})
    for text in (plain, plain.partition("\n")[2], asked_now, json.dumps({"items": [item]})):
        [lesson], dropped = parse_lessons(text, 3)
        assert (lesson.title, lesson.content, dropped) == ("T1", "C1: use \\frac{a}{b}.", 0)
    assert parse_lessons(asked_now[:20], 3, truncated=True) == ([], 1)  # cut off while it was thinking
