"""Hostile text: no reader of answers and no grader raises, runs it, or outlives its limit."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from single_turn_bench.answers import extract_answer
from single_turn_bench.choice import find_choice
from single_turn_bench.equivalence import MathGrader, grade_response

TOKENS = (
    r"\frac \sqrt \boxed { } ( ) [ ] \left \right ^ _ \{ \} 1 2 3 99 0.5 , ; : . + - * / = < > \le \in \cup \pm \pi "
    r"\infty x y i e f(x) \text{cm} \begin{pmatrix} \end{pmatrix} & \\ \% $ \( \) ! \binom \log \sin \sum_{i=1}^{9} "
    r"\int and or the answer is final (A) (B) I A **"
).split()
ADVERSARIAL = [
    "__import__('os').system('touch owned')",
    "exec(\"open('owned','w')\")",
    "().__class__.__bases__[0].__subclasses__()",
    "9**9**9",
    r"\boxed{9^{9^{9}}}",
    r"\sum_{n=1}^{10^{10}} \frac{1}{n}",
    "99999999!",
    "(" * 5000,
    r"\boxed{" * 3000,
    r"\frac{" * 2000 + "1" + "}{2}" * 2000,
    "{" * 500 + "1" + "}" * 500,
    "$" * 3001,
    "1" * 100_000,
    "1," * 50_000,
    "a" * 1_000_000,
    r"\boxed{" + "x" * 1_000_000 + "}",
    "answer is " * 20_000,
    "\x00",
    "1\x00",
    "\ud800",
    "\x1b[31m5",
    "-" * 10_000,
    "1e999999999",
    "0." + "0" * 2000 + "1",
    r"\pm" * 300,
    "1 \\pm " * 12 + "1",
    "x" + "^x" * 200,
    "\u202e5\u0301\u0301",
    "{}",
    "%s%n{0}{{x}}",
    "",
]
GOLDS = ["5", r"\frac{1}{2}", "x^2+1", "(1,2)", "[0,1)", r"\{1,2\}", "x=5", "Evelyn", "10\\%", "2\\sqrt{3}"]
LIMIT_S = 1.0


@pytest.fixture(scope="module")
def grader():
    with MathGrader(timeout_s=LIMIT_S) as made:
        yield made


def read(grader, text, gold, n_options):
    began = time.monotonic()
    extract_answer(text)
    find_choice(text, n_options)
    right = grade_response(text, gold, grader)
    assert time.monotonic() - began < 30  # not for ever: a busy machine takes seconds to end and start a process
    return right


def test_text_written_to_break_them_is_a_wrong_answer_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with MathGrader(timeout_s=LIMIT_S) as grader:
        for number, text in enumerate(ADVERSARIAL):
            boxed = number % 2 and len(text) < 1000
            assert not read(grader, rf"\boxed{{{text}}}" if boxed else text, r"\frac{7}{3}", 2 + number % 9)
            assert list(tmp_path.iterdir()) == []


SOUPS = st.tuples(st.sampled_from(["", " "]), st.lists(st.sampled_from(TOKENS), max_size=25)).map(
    lambda soup: soup[0].join(soup[1])
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=60) | SOUPS, st.sampled_from(GOLDS), st.integers(2, 10))
@example("1 \\pm 1 \\pm 1", "5", 4)
def test_any_text(grader, text, gold, n_options):
    read(grader, text, gold, n_options)
