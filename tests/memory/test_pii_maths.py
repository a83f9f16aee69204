"""Formulas in texts that are scrubbed: found as one pattern would find them, in time that the text's length sets."""

from __future__ import annotations

import random
import re
import time

import pytest

from core.memory.hygiene.pii import _maths
from core.memory.hygiene.scrub import scrub

# Says what a formula is, but its time grows with the square of a text in which one is begun again and again.
FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+?\$|\\\(.+?\\\)|\\\[.+?\\\]|\\begin\{(\w+\*?)\}.*?\\end\{\1\}", re.S)
PARTS = [*"$ $$ \\( \\) \\[ \\] \\begin{a} \\end{a} \\begin{b*} \\end{b*} \\ x".split(), "\n", " "]


def test_formulas_are_what_the_pattern_says():
    chance = random.Random(0)
    for _ in range(5_000):
        text = "".join(chance.choices(PARTS, k=chance.randint(0, 14)))
        assert _maths(text) == [match.span() for match in FORMULA.finditer(text)], text


@pytest.mark.parametrize(
    "text",
    [
        "\\(" * 200_000,
        "\\[ " * 140_000,
        "\\begin{a}" * 40_000,
        "".join(f"\\begin{{a{n}}}" for n in range(30_000)) + "\\end{b}",
        "$1$ a@b.org " * 12_000,
    ],
    ids=["parentheses", "brackets", "one name", "many names", "formulas and addresses"],
)
def test_no_text_takes_long(text):
    began = time.process_time()
    scrub(text)
    assert time.process_time() - began < 20
