"""How far the graders agree with labelled answers: rows {gold, pred or response, expected} for mathematics, and with
n_options for choices, where the label is the letter `rule_pred` (rows without a letter do not count) or `expected`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.errors import UserError
from single_turn_bench.answers import extract_answer
from single_turn_bench.choice import LETTERS, find_choice
from single_turn_bench.equivalence import MathGrader, grade_response
from single_turn_bench.files import read_objects

WIDTH = 80
Graded = tuple[Any, Any, str]  # the label, our grade, and what was read out of the response by which rule


def agreement(path: Path, grader: MathGrader) -> int:
    """Prints each disagreement with its line, and last `agree X/N`."""
    n = agreed = 0
    for where, raw in read_objects(path):
        graded = grade_row(raw, where, grader)
        if graded is None:
            continue
        wanted, got, read = graded
        n += 1
        agreed += got == wanted
        if got != wanted:
            print(f"{where}: expected {wanted}, got {got} | gold {short(raw['gold'])} | {read}")
    if n == 0:
        raise UserError(f"{path.name} holds no labelled row.")
    print(f"agree {agreed}/{n}")
    return 0


def grade_row(raw: Any, where: str, grader: MathGrader) -> Graded | None:
    """None for a choice row in whose response the reference rules found no letter."""
    if not isinstance(raw, dict):
        raise UserError(f"{where}: a row is a JSON object, this is a {type(raw).__name__}.")
    response = raw.get("response", raw.get("pred"))
    for name, value in (("gold", raw.get("gold")), ("pred' or 'response", response)):
        if not isinstance(value, str):
            raise UserError(f"{where}: no text in a field '{name}'.")
    if "n_options" in raw:
        return grade_choice(raw, response, where)
    if not isinstance(raw.get("expected"), bool):
        raise UserError(f"{where}: no true or false in a field 'expected'.")
    found = extract_answer(response)
    return raw["expected"], grade_response(response, raw["gold"], grader), f"{found.rule} {short(found.answer)}"


def grade_choice(raw: dict, response: str, where: str) -> Graded | None:
    n_options = raw["n_options"]
    if not isinstance(n_options, int) or not 1 <= n_options <= len(LETTERS):
        raise UserError(f"{where}: 'n_options' is a number from 1 to {len(LETTERS)}.")
    found = find_choice(response, n_options)
    read = f"{found.rule} {found.letter} in ...{short(response[-WIDTH:])}"
    if "rule_pred" in raw:
        wanted, got = raw["rule_pred"], found.letter
    elif isinstance(raw.get("expected"), bool):
        wanted, got = raw["expected"], found.letter == raw["gold"].strip().upper()
    else:
        raise UserError(f"{where}: no field 'rule_pred' or 'expected'.")
    return None if wanted is None else (wanted, got, read)


def short(text: str | None) -> str:
    """On one line, without control characters, at most WIDTH characters."""
    shown = repr(text)
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 4] + "...'"
