"""Damaged JSON: the structure is mended, and what the strings say stays exactly as it was."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.learning.structured import parse_json, parse_lessons, parse_status
from core.reply_marks import plain_reply
from core.types import Lesson

A = Lesson(title="A", description="B", content=r"use \frac{1}{2} \theta \neq \underline{x}")
ITEM = r'{"title": "A", "description": "B", "content": "use \frac{1}{2} \theta \neq \underline{x}"}'
OPEN = ITEM.removesuffix("}")


def test_a_lesson_is_read_through_damage(subtests):
    cases = [
        ("trailing commas", '{"items": [' + OPEN + ",},],}"),
        ("no commas", '{"items" : [' + ITEM.replace(",", "") + "]}"),
        ("semicolons", '{"items": [' + ITEM.replace(",", ";") + "]}"),
        ("no closing brackets", '{"items": [' + OPEN),
        ("no closing bracket", '{"items": [' + ITEM + "}"),
        ("no closing brace", '{"items": [' + OPEN + "]}"),
        ("no outer braces", '"items": [' + ITEM + "]"),
        ("single quotes", "{'items': [" + ITEM.replace('"', "'") + "]}"),
        ("typographic quotes", "{“items”: [" + re.sub('"(.*?)"', "“\\1”", ITEM) + "]}"),
        ("bare keys", "{items: [" + re.sub(r'"(\w+)":', r"\1:", ITEM) + "]}"),
        ("Python literals", '{"ok": True, "no": None, "off": False, "items": [' + ITEM + "],}"),
        ("comments", '{ // "items": don\'t\n"items": [ /* " */ ' + ITEM + " # it's }\n], }"),
        ("in prose", "Consider {x: 1} and \\boxed{items}. {'items': [" + ITEM + ']} I\'m "done" {}.'),
        ("fenced", '```json\n{"items": [' + ITEM + ",]}\n```\nThat's all: {a: b}"),
        ("the last of two", '{"items": [{"title": "old"}]} Better: {"items": [' + ITEM + ",]}"),
        ("no list", '{"items": ' + ITEM + "}"),
        ("a bare list", "[" + ITEM + "]"),
        ("a list of another name", '{"lessons": [' + ITEM + "]}"),
        ("a bare item", "1. " + ITEM),
        ("tool call", '<tool_call>{"name": "f", "arguments": {"items": [' + ITEM + "]}}</tool_call>"),
        ("broken tool call", '<tool_call>{"name": "f", "arguments": {"items": [' + ITEM + ",]}"),
        ("tool calls", '{"tool_calls": [{"function": {"arguments": {"items": [' + ITEM + ",]}}}]}"),
        ("in a string", '{"function": {"arguments": ' + json.dumps('{"items": [' + ITEM + "]}") + "}}"),
        ("an end of thoughts alone", 'first "items": draft</think>{"items": [' + ITEM + "]}"),
        ("thoughts", '<think>{"items": [' + ITEM[:30] + '</think>\n{"items": [' + ITEM + ",]}"),
    ]
    for name, text in cases:
        with subtests.test(name):
            assert parse_lessons(text, 3) == ([A], 0)


def test_what_a_string_holds_is_not_structure(subtests):
    cases = [
        ('say "yes", then "no" and "go"', 'say "yes", then "no" and "go"'),
        (r'use \text{"x"} or \text{"y"}, ok', r'use \text{"x"} or \text{"y"}, ok'),
        ("one\n\n  two \\\\ three", "one\n\n  two \\ three"),
        (r"it\'s 1\/2 \u00e9 \"q\"", 'it\'s 1/2 é "q"'),
        ("http://a.b/#c // no comment /* here */", "http://a.b/#c // no comment /* here */"),
        ("one\\ne.g. two\\ni.e. three, \\nu", "one\ne.g. two\ni.e. three, \\nu"),
        ("[1, 2}, {'a': 1}", "[1, 2}, {'a': 1}"),
        (r"Z_0 \tan \betal is a \b and a \f", r"Z_0 \tan \betal is a \b and a \f"),
        ('it is "5"} long', 'it is "5"} long'),
        ("True, None and undefined", "True, None and undefined"),
        ("write <think>a</think> first", "write <think>a</think> first"),
    ]
    for content, said in cases:
        with subtests.test(content=content):
            text = '{"items": [{"title": "T", "description": "D", "content": "' + content + '",}]}'
            lessons, dropped = parse_lessons(text, 3)
            assert ([lesson.content for lesson in lessons], dropped) == ([said], 0)


def test_fields_that_are_no_strings_and_lost_fields_are_dropped_and_counted():
    bad = '{"title": 5, "description": ["B"], "content": None}, {"title": "T",}, 7, '
    assert parse_lessons('{"items": [' + bad + ITEM + ",]}", 9) == ([A], 3)


TWO = '{"items": [' + ITEM.replace('"A"', '"Z"') + ", " + ITEM + ",]}"


@pytest.mark.parametrize(
    ("lost", "instead"),
    [
        pytest.param('{x}"}, {', "{x}}, {", id="the quote that ends the last string"),
        pytest.param('"content": "', '"content": ', id="the quote that begins a string"),
        pytest.param('"Z", "', '"Z, "', id="the quote that ends a string"),
        pytest.param('"content": "', '"content: "', id="the quote that ends a key"),
        pytest.param(': "B"', ": undefined", id="a whole string"),
        pytest.param(': "B"', r': "\frac{\text{"x"}}{2}"', id="no quote, but one where it may well end a string"),
    ],
)
def test_a_lost_quote_may_lose_a_lesson_and_changes_none(lost, instead):
    assert lost in TWO
    lessons, _ = parse_lessons(TWO.replace(lost, instead, 1), 3)
    first = (
        replace(A, title="Z") if "frac" not in instead else replace(A, title="Z", description=r'\frac{\text{"x"}}{2}')
    )
    assert lessons and all(lesson in (A, first) for lesson in lessons)


def test_a_string_without_quotes_and_one_that_may_end_too_early_are_dropped():
    for odd in ("undefined", r'"\text{5"} and \left\{ x"', "plain words"):
        text = '{"items": [{"title": "T", "description": "D", "content": ' + odd + ",}]}"
        assert parse_lessons(text, 3)[0] == []


@pytest.mark.parametrize("prose", ['They "hold"}', 'They hold, "too"}]}', "They hold."])
def test_what_is_said_behind_the_fence_is_in_no_lesson_whose_quote_is_lost(prose):
    text = '```json\n{"items": [' + ITEM + ", " + ITEM.replace('"A"', '"Z"').removesuffix('"}') + "\n```\n" + prose
    lessons, _ = parse_lessons(text, 3)
    assert all(lesson == A for lesson in lessons)


def test_a_reply_that_stops_anywhere_gives_no_half_sentence(subtests):
    for stop in range(len(ITEM) + 1):
        with subtests.test(stop=stop):
            text = '{"items": [' + ITEM + ", " + ITEM.replace('"A"', '"Z"')[:stop]
            lessons, _ = parse_lessons(text, 3)
            assert lessons[0] == A
            assert all(lesson.content == A.content for lesson in lessons)
            kept, dropped = parse_lessons(text, 3, truncated=True)
            assert (kept, dropped) in (([A], 1), ([], 1))


def test_a_truncated_reply_loses_its_last_item_in_every_form():
    markdown = "# Memory Item {0}\n## Title T{0}\n## Description D\n## Content C\n"
    whole = "".join(markdown.format(n) for n in (1, 2))
    assert len(parse_lessons(whole, 3)[0]) == 2
    lessons, dropped = parse_lessons(whole, 3, truncated=True)
    assert ([lesson.title for lesson in lessons], dropped) == (["T1"], 1)
    assert parse_lessons('{"items": [' + ITEM + "]}", 3, truncated=True) == ([], 1)
    assert parse_lessons("<think>never done", 3, truncated=True) == ([], 1)


def test_a_verdict_is_read_through_damage_or_not_at_all(subtests):
    cases = [
        ("{'thoughts': 'ok', 'status': 'success',}", "success"),
        ("{status: failure}", "failure"),
        (r'{"thoughts": "it is \text{"A"} here", "status": "success"}', "success"),
        ('{"thoughts": "it printed {\'status\': \'success\'}", "status": "failure",}', "failure"),
        ('Thoughts: it printed {"status": "success"}\nStatus: failure', "failure"),
        ('{"name": "verdict", "arguments": {"status": "failure"}}', "failure"),
        ("Status: failure, I thought.</think>\nStatus: success", "success"),
        ("<think>Status: success", None),
        ("{'status': 'unsuccessful'}", None),
        ('{"status": "success', None),
        ('{"status": "success", "thoughts": "cut of', "success"),
        ("I'm sorry, but I can't help with that.", None),
        (None, None),
    ]
    for text, label in cases:
        with subtests.test(text=text):
            assert parse_status(text) == label


def test_a_brace_that_a_string_opened_does_not_end_the_object():
    text = r'{"thoughts": "it is \text{"A"} here", "status": "success"} and so on'
    assert parse_json(text, "thoughts") == {"thoughts": r'it is \text{"A"} here', "status": "success"}


def test_nothing_said_is_nothing_read(subtests):
    for text in [None, "", " \n", 7, "\ud800", "\x00", "<think>", "</think>", "<think></think>"]:
        with subtests.test(text=text):
            assert parse_json(text, "a") is None
            assert parse_status(text) is None
            assert parse_lessons(text, 3)[0] == []


def test_thoughts_are_told_from_speech():
    assert plain_reply("a<think>b</think>c<thinking>d</thinking>e") == "ace"
    assert plain_reply('b "quoted" </think>c') == "c"
    assert plain_reply("c<think>b") == "c"
    assert plain_reply('the "<think>" tag') == 'the "<think>" tag'
    assert plain_reply("the `<think>` tag") == "the `<think>` tag"


def test_a_quotation_mark_that_nothing_closes_hides_no_thoughts(subtests):
    cases = [
        ('a 5" pipe <think>b</think>c', 'a 5" pipe c'),
        ('a 5" pipe <think>it is "b"</think>c', 'a 5" pipe c'),
        ('he said "a <think>b</think>c', 'he said "a c'),
        ('he said "a <think>b</think> and "c" too', 'he said "a  and "c" too'),
        ('a " <think>b', 'a " '),
        ("a ` <think>b</think>c", "a ` c"),
        ('{"x": "a <think>b</think>", "y": 5}', '{"x": "a <think>b</think>", "y": 5}'),
        (r'{"x": "a \"b\" <think> c", "y": "d"}', r'{"x": "a \"b\" <think> c", "y": "d"}'),
    ]
    for text, said in cases:
        with subtests.test(text=text):
            assert plain_reply(text) == said


UNITS = ["{", '{"a":', '{"items":', '{"items":[', "{items: ", '{"items": "', "\\", '"', "'a' ", '" ', '", ', "[1,", ":"]
UNITS += ["<think>", "</think>", '"}', '" "x":', "1 ", "a, b: ", ' "/*', '" //', "# ", "status:\n", "\ud800", "a{"]
UNITS += ["(", "foo ", "5", ", ", "null ", '"a:\\n', "{'a':{'b':'c'},", 'a:"b" ', '{"a":"\\frac{', '\\"', "“", "}]"]


@pytest.mark.parametrize(("n", "start"), enumerate(["{'items': ", '{"items": "', '{items: {"x" ', '{x: 1, "items:\\n']))
def test_garbage_longer_than_what_is_read_takes_no_time(n, start):
    for unit in UNITS[n::4]:
        text = start + unit * (150_000 // len(unit))  # of which the last 100 000 characters are read
        began = time.process_time()
        parse_lessons(text, 3)
        parse_status(text)
        assert time.process_time() - began < 3, unit


LATEX = st.sampled_from(
    r"\frac{a}{b} \theta \neq \underline{x} \beta \rho \nu \to \text{if} \\ \{1\} \( \) \' \"o \/ \u \nabla \, \right) "
    r"\times \bar{x} \ne \ni \tan{ } \begin{cases} \end{cases} $x$ \%".split()
)
CHARACTERS = st.characters(exclude_characters="\t\r\b\f\"'“”{}[]", exclude_categories=["Cs", "Co"])
MARKS = st.sampled_from([",", "\n", "\ni ", "\ne-", "\nu", " ", "//"])
WORDS = st.one_of(LATEX, st.text(CHARACTERS, max_size=6), MARKS)
# With at least one command in it: then the writer's newline before "i" is told from LaTeX's "\ni".
TEXT = st.lists(WORDS, max_size=8).map("".join).map(lambda text: text.strip() + r"\alpha")
LESSON = st.builds(Lesson, title=TEXT, description=TEXT, content=TEXT)
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]+')


def no_commas(text: str) -> str:
    return text.replace(",", " ")


def trailing_commas(text: str) -> str:
    return re.sub(r"([}\]])", r",\1", text)


def comments(text: str) -> str:
    return text.replace("[", "[ // one\n").replace(",", ", /* two */ ").replace("}", " # three\n}")


def open_end(text: str) -> str:
    return re.sub(r"\s*[}\]]\s*\Z", "", re.sub(r"\s*[}\]]\s*\Z", "", text))


DAMAGES = st.sets(st.sampled_from([no_commas, trailing_commas, comments]), max_size=2)
AROUND = st.sampled_from(
    [("", ""), ("I see: ", ""), ("Sure:\n```json\n", "\n```\nDone."), ('<think>"items": [</think>', "")]
)


def damaged(text: str, damages, bare_keys: bool) -> str:
    """A JSON text with every token that is no string damaged."""
    tokens = TOKEN.findall(text)
    for place, token in enumerate(tokens):
        if token.startswith('"'):
            key = place + 1 < len(tokens) and tokens[place + 1].lstrip().startswith(":")
            tokens[place] = token.strip('"') if bare_keys and key else token
            continue
        for damage in damages:
            token = damage(token)
        tokens[place] = token
    return "".join(tokens)


@given(
    lessons=st.lists(LESSON, min_size=1, max_size=3, unique=True),
    damages=DAMAGES,
    bare_keys=st.booleans(),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 2]),
    around=AROUND,
    whole=st.booleans(),
)
@example([A], {no_commas}, True, True, None, ("", ""), False)
def test_no_damage_outside_its_strings_changes_a_lesson(lessons, damages, bare_keys, ascii_only, indent, around, whole):
    items = [{"title": x.title, "description": x.description, "content": x.content} for x in lessons]
    text = json.dumps({"items": items}, ensure_ascii=ascii_only, indent=indent)
    text = damaged(text, damages, bare_keys)
    text = around[0] + (text + around[1] if whole else open_end(text))
    found, _ = parse_lessons(text, 9)
    assert all(lesson in lessons for lesson in found)


@given(st.lists(st.one_of(WORDS, st.sampled_from('{ } [ ] : "items" "title": items: "status": True #'.split()))))
def test_no_mixture_of_pieces_breaks_the_readers(pieces):
    text = '{"items": ' + "".join(pieces)
    parse_lessons(text, 3)
    parse_status(text.replace("items", "status"))
    parse_json(text, "items")
