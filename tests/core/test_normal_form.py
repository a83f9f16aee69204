"""Texts that differ by typography alone are one, for graders and for retrieval."""

from __future__ import annotations

import numpy as np
import pytest

from core.memory.filter import normal_tag
from core.memory.lexical import words_of
from core.models.embedding import HashingEmbedder
from core.normal_form import folded, normal_form
from single_turn_bench.verbatim import same_text

ALIKE = [
    ("D'Arcy", "D\u2019Arcy"),
    ("O'ahu", "O\u02bbahu"),
    ("5'", "5\u2032"),
    ("well-known", "well\u2011known"),
    ("1914-1918", "1914\u20131918"),
    ("T-shirt", "T\u2212shirt"),
    ('the "Blue Jay"', "the \u201cBlue Jay\u201d"),
    ('the "Blue Jay"', "the \u00abBlue Jay\u00bb"),
    ("Oslo", "Os\u200blo"),
    ("Oslo", "\ufeffOslo"),
    ("Oslo", "\u200eOslo\u200f"),
    ("cooperate", "co\u00adoperate"),
    ("to be continued...", "to be continued\u2026"),
    ("San Jose", "San\u202fJose"),
    ("Z\u00fcrich", "Zu\u0308rich"),
    ("file", "\ufb01le"),
    ("1/2", "\u00bd"),
    ("\u2764", "\u2764\ufe0f"),
]
APART = [("re-sign", "resign"), ("cant", "can\u2019t"), ("1914-1918", "1914\u20131919"), ("Zurich", "Z\u00fcrich")]


def test_a_raised_digit_is_no_further_digit_of_an_answer():
    assert same_text("10²", "10^2") and same_text("H₂O", "H2O")
    assert not same_text("10²", "102") and not same_text("5½", "51/2")


def test_a_full_stop_of_another_script_is_no_part_of_an_answer():
    assert same_text("巴黎。", "巴黎") and same_text("पेरिस।", "पेरिस")


@pytest.mark.parametrize("one, other", ALIKE)
def test_what_only_looks_different_is_the_same(one, other):
    assert folded(one) == folded(other)
    assert same_text(other, one) and same_text(f"\u201c{other}\u201d", f'"{one}"')
    assert words_of(one) == words_of(other)
    assert normal_tag(one) == normal_tag(other)
    assert np.array_equal(*HashingEmbedder().embed([one, other]))


@pytest.mark.parametrize("one, other", APART)
def test_what_is_different_stays_so(one, other):
    assert folded(one) != folded(other) and not same_text(other, one)


def test_plain_text_stays_as_it_is():
    text = "A `b` -- \"c\" 'd' (e) {f} \\frac{1}{2} x^2\n"
    assert normal_form(text) is text
