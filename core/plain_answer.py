"""Answers made comparable, for a vote: in one notation, and nothing calculated."""

from __future__ import annotations

import re

_ONE_SIGN = str.maketrans("−–（），＝", "--(),=")
_LATEX_ONLY = re.compile(r"\\(?:left|right)(?![a-zA-Z])\.?|(?<!\\)\\[()\[\],;:! ]|\\?\$|\\displaystyle(?![a-zA-Z])|~")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
_STYLED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boldsymbol|mbox)\s*\{([^{}]*)\}")
_THOUSANDS_COMMA = re.compile(r",\s*\\!\s*|\s*\{\s*,\s*\}\s*")
_BESIDE_A_SIGN = re.compile(r"\s*([,;:()\[\]{}=<>|/*^&])\s*")
_PLUS_OR_MINUS = re.compile(r"(?:^|(?<=[^\s\w]))([+-])\s|\s([+-])\s")
_THOUSANDS = re.compile(r"[+-]?\s?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def plain_answer(answer: str) -> str:
    r"""The answer in lower case, without spaces around signs, LaTeX delimiters and spacing, thousands commas, last dot.

    `$\left(1,\, 2\right)$` becomes `(1,2)`, `1,000.` becomes `1000`. Nothing is calculated: `1/2` and `0.5` differ.
    """
    text = _THOUSANDS_COMMA.sub(",", answer.translate(_ONE_SIGN))
    text = " ".join(_LATEX_ONLY.sub(" ", text).split()).lower()
    text = _FRACTION.sub(r"\\frac", _STYLED.sub(r"\1", text)).strip()
    text = text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text
    if _THOUSANDS.fullmatch(text):  # before spaces are removed: `1, 000` is a list
        return text.replace(",", "").replace(" ", "")
    return _PLUS_OR_MINUS.sub(lambda sign: sign[1] or sign[2], _BESIDE_A_SIGN.sub(r"\1", text)).strip()
