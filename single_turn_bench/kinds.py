r"""What kind of answer a row has, and so how a reply to it is read and graded.

    42 · 1,234.5 · 3/4 · 12 km             number   by its value
    \frac{1}{2} · x^2 + 1 · (0, 3]         math     by mathematical equivalence
    a row with options                     letter   by the letter of the option
    Paris · 2024-05-01 · H2O               text     by the text; case, outer quotes and a last full stop do not count

A kind that is given wins over the answer's looks: `kind` in the row's own column, or for all rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from core.errors import UserError, meant
from single_turn_bench.answers import gold_answer
from single_turn_bench.choice import n_lettered
from single_turn_bench.notation import normalize
from single_turn_bench.options import BARE_LETTER
from single_turn_bench.plain_numbers import read, with_point
from single_turn_bench.rows import Row
from single_turn_bench.verbatim import plain

KINDS = ("number", "math", "letter", "text")
WORD = re.compile(r"(?<!\\)\b(?!(?:sin|cos|tan|log|ln|exp|sqrt|pi|inf|mod)\b)[^\W\d_]{2,}")
DATE = re.compile(r"\d+([-/.:])\d+\1\d+")
FORMULA = re.compile(
    r"\\[A-Za-z]+|\$[^$]+\$"  # LaTeX
    r"|[\w)]\s*[+*^=<>]\s*[-\w(]|\d\s*/|/\s*\d|\b(?:sqrt|sin|cos|tan|log|ln|exp)\("  # operators and functions
    r"|[(\[{]\s*-?\d.*,.*[)\]}]|^-?\d[\d.]*(?:\s*,\s*-?\d[\d.]*)+$"  # intervals, sets and lists of numbers
)


def kinds_of(rows: Sequence[Row], kind: str | None = None) -> dict[str, str]:
    """{id of a row: its kind}. Raises UserError for an unknown kind, and for an answer that is not of its kind.

    kind   of all rows; None: of each what its column `kind` says, or else what its answer looks like
    """
    # a column of that name may be of the dataset's own: then none of its values is a kind
    own = kind is None and any(row.kind in KINDS for row in rows)
    return {row.id: checked(row, kind or (row.kind if own else "") or looks_like(row), own) for row in rows}


def checked(row: Row, kind: str, own: bool) -> str:
    if kind not in KINDS:
        what = f"{row.id}: its kind {kind!r}" if own else f"env.kind={kind!r}"
        raise UserError(f"{what} is not one of {', '.join(KINDS)}{meant(kind, KINDS)}")
    if row.options and kind != "letter":
        raise UserError(f"{row.id} has options, which are answered by a letter: its kind cannot be {kind}.")
    if kind == "letter" and not row.options and not shows_letter(row, 1):
        what = "Give its options as a column, or as 'A) ...' lines in its question."
        raise UserError(f"{row.id}: a letter of what? {what}")
    wrong = [each for each in golds(row) if kind == "number" and not is_number(each, with_point)]
    if wrong:
        raise UserError(f"{row.id}: its answer {wrong[0]!r} is not a number: its kind may be math or text.")
    return kind


def looks_like(row: Row) -> str:
    if row.options or shows_letter(row, 2):
        return "letter"
    if not all(map(is_number, golds(row))) and all(is_number(each) or is_formula(each) for each in golds(row)):
        return "math"
    return "number" if all(is_number(each, with_point) for each in golds(row)) else "text"


def golds(row: Row) -> tuple[str, ...]:
    return (row.answer, *row.accepted)


def is_number(text: str, write: Callable[[str], str] = str) -> bool:
    """Whether it is a number; with `with_point`, as other languages write it: 1.234,50 · 1'234.50 · 1 234,5 km."""
    return read(write(normalize(gold_answer(text)))) is not None


def is_formula(text: str) -> bool:
    text = plain(text)
    return bool(FORMULA.search(text)) and ("\\" in text or not (WORD.search(text) or DATE.search(text)))


def shows_letter(row: Row, least: int) -> bool:
    """Whether the answer is a letter, and the question's text has at least so many lettered options."""
    return BARE_LETTER.fullmatch(row.answer.strip()) is not None and n_lettered(row.question) >= least
