r"""Column vectors: `\begin{pmatrix} 1 \\ 2 \end{pmatrix}` and its kin have the entries of the tuple (1, 2).

A row vector, a matrix with more columns and a determinant are no tuples.
"""

from __future__ import annotations

import re

from single_turn_bench.scan import enclosing, split_top

# vmatrix is a determinant
MATRIX = re.compile(
    r"\\begin\s*\{(?P<name>(?:[pbB]|small|[pb]small)?matrix\*?|array)\}(?:\s*[\[{][lcr|@\s]*[\]}])?"
    r"(?P<rows>(?:(?!\\begin).)*?)\\end\s*\{(?P=name)\}",
    re.S,
)
ROW_END = re.compile(r"\\\\(?:\s*\[[^\[\]]*\])?|\\cr(?![a-z])")
TRANSPOSED = re.compile(r"\s*\^\s*(?:\{\s*(?:T|\\top|t)\s*\}|T|\\top|t)$")


def column(text: str) -> tuple[str, ...] | None:
    """The entries of a column vector of at least two, written as a matrix or as a transposed row; else None."""
    text = text.strip()
    transposed = TRANSPOSED.search(text)
    rows = rows_of(text[: transposed.start()], tuples=True) if transposed else rows_of(text)
    if transposed:
        rows = [[cell] for cell in rows[0]] if len(rows) == 1 else []
    entries = tuple(row[0] for row in rows if len(row) == 1 and row[0])
    return entries if len(entries) == len(rows) > 1 else None


def rows_of(text: str, tuples: bool = False) -> list[list[str]]:
    """The cells of a matrix, row by row; nothing where the text is none. With `tuples`, (1, 2) is a row as well."""
    if "\\begin" not in text:
        _, inside, closer = enclosing(text) or ("", "", "")
        return [split_top(inside, ",")] if tuples and closer in (")", "]") else []
    while (held := enclosing(text)) and held[0] != "{":  # \left( \begin{array} ... \right)
        text = held[1].strip()
    match = MATRIX.fullmatch(text)
    lines = ROW_END.split(match["rows"]) if match else []
    return [[cell.strip() for cell in line.split("&")] for line in lines if line.strip()]


def as_column(entries: tuple[str, ...]) -> str:
    return r"\begin{pmatrix} " + r" \\ ".join(entries) + r" \end{pmatrix}"
