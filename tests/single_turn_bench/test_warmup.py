"""The bundled problems: enough, distinct, graded, and every answer what sympy computes."""

from __future__ import annotations

import json

import sympy
from conftest import REPO

from single_turn_bench import grade_math

ROWS = [json.loads(line) for line in (REPO / "single_turn_bench/warmup.jsonl").read_text().splitlines()]


def computed(check: str) -> sympy.Expr:
    """The value of `check`: an expression, or an equation in x with one solution."""
    if "=" not in check:
        return sympy.nsimplify(sympy.sympify(check))
    left, right = map(sympy.sympify, check.split("="))
    [solution] = sympy.solve(sympy.Eq(left, right), sympy.Symbol("x"))
    return solution


def test_there_are_enough_and_no_two_are_the_same():
    assert len(ROWS) >= 60
    assert len({row["id"] for row in ROWS}) == len({row["question"] for row in ROWS}) == len(ROWS)
    assert {row["level"] for row in ROWS} == {1, 2, 3, 4, 5}


def test_a_first_part_holds_every_level():
    assert {row["level"] for row in ROWS[:10]} == {1, 2, 3, 4, 5}


def test_the_answer_is_what_sympy_computes(subtests):
    for row in ROWS:
        with subtests.test(row["id"]):
            assert sympy.simplify(sympy.sympify(row["answer"]) - computed(row["check"])) == 0


def test_every_answer_passes_its_own_grader_and_its_neighbours_do_not():
    for row in ROWS:
        wrong = str(sympy.sympify(row["answer"]) + 1)
        assert grade_math(f"So the final answer is \\boxed{{{row['answer']}}}.", row["answer"])
        assert not grade_math(f"\\boxed{{{wrong}}}", row["answer"])
