"""Plain numbers in exact arithmetic: 1,234.50 · 3/4 · -2\\frac{1}{3} · 1.5 \\times 10^{3} · 28\\% · 5 cm, 5 million.

`read` takes normalised text (notation.py) and returns None unless the whole of it is one number. Text is never
evaluated: digits are matched and converted, with a cap on their count and on the exponent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from single_turn_bench.units import MEASURE, UNIT, incompatible, same_unit

MAX_DIGITS = 400
# A decimal that is rightly rounded stands for 8/3 when it has this many significant digits, and this many decimals
# where 8/3 is the gold answer: 2.6667 does, and neither 2.667 nor 266.667 (of 800/3).
MIN_ROUNDED_DIGITS = 5
MIN_ROUNDED_DECIMALS = 4
ALWAYS_DECIMALS = 6  # with these the value may begin with zeros: 0.001990 for 2/1005
TOLERANCE = Fraction(1, 10**6)  # between two non-integers, absolute and relative
INTEGER_TOLERANCE = Fraction(1, 10**9)

DIGITS = r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?: \d{3})+|\d+"
UNSIGNED = rf"(?P<whole>{DIGITS})?(?:\.(?P<decimals>\d*))?"
POWER = r"(?:\s*(?:\\times|\\cdot|x)\s*10\s*\^\s*(?:\{\s*(?P<p1>[+-]?\d+)\s*\}|(?P<p2>\d))|[eE](?P<p3>[+-]?\d+))?"
FRACTION = (
    r"(?P<mixed>\d+)?\s*\\frac\s*\{\s*(?P<n1>-?\d+)\s*\}\s*\{\s*(?P<d1>-?\d+)\s*\}"
    r"|\(?\s*(?P<n2>-?\d+)\s*\)?\s*/\s*\(?\s*(?P<d2>-?\d+)\s*\)?"
)
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
SCALE = rf"(?:\s+(?P<scale>{'|'.join(SCALES)})(?![A-Za-z]))?"
NUMBER = re.compile(
    rf"^\(?\s*(?P<sign>[+-]?)\s*\(?(?:{FRACTION}|{UNSIGNED}{POWER})\)?{SCALE}"
    rf"\s*(?P<percent>\\%)?(?P<unit>{UNIT})?\)?\s*$"
)
# `2,0` by itself is a list
COMMA_DECIMAL = re.compile(rf"^([+-]?(?:\d{{1,3}}(?:[. ]\d{{3}})+|\d+)),(?!0$)(\d+)(\s*\\%|{MEASURE}|)$")


# 12,34,567 in India, 1'234'567 in Switzerland, 1.234.567 where the comma is decimal
GROUPED = re.compile(
    r"^([+-]?\s*)(\d{1,2}(?:,\d{2})+,\d{3}|\d{1,3}(?:'\d{3})+|\d{1,3}(?:\.\d{3}){2,})(?![\d,'])(.*)$", re.S
)


@dataclass(frozen=True, kw_only=True)
class PlainNumber:
    """value: 28.5 of 28.5%. decimals: how many digits stand after the point, None where there is no point."""

    value: Fraction
    decimals: int | None = None
    significant: int = 0
    percent: bool = False
    unit: str = ""


def read(text: str) -> PlainNumber | None:
    """The number that the whole text is, or None."""
    if len(text) > MAX_DIGITS or not any(char.isdigit() for char in text):
        return None
    match = NUMBER.match(text.strip())
    if match is None or text.count("(") != text.count(")") or ("(" in text and "," in text):  # (1,234) is a pair
        return None
    whole, decimals = re.sub("[, ]", "", match["whole"] or ""), match["decimals"] or ""
    power = int(match["p1"] or match["p2"] or match["p3"] or 0) + SCALES.get(match["scale"], 0)
    top = match["n1"] or match["n2"] or whole + decimals
    bottom = int(match["d1"] or match["d2"] or 10 ** len(decimals))
    if not top or bottom == 0 or abs(power) > MAX_DIGITS:
        return None
    value = (Fraction(int(top), bottom) + int(match["mixed"] or 0)) * Fraction(10) ** power
    return PlainNumber(
        value=-value if match["sign"] == "-" else value,
        decimals=len(decimals) - power if decimals else None,
        significant=len((whole + decimals).lstrip("0")),
        percent=match["percent"] is not None,
        unit=(match["unit"] or "").strip(),
    )


def compare(pred: str, gold: str) -> bool | None:
    """Whether two texts are the same number; None when one of them is not a number."""
    p, g = read(pred), read(gold)
    if p is None and g is not None:
        p = read(with_point(pred))
    if g is None and p is not None:
        g = read(with_point(gold))
    if p is None or g is None:
        return None
    if incompatible(p.unit, g.unit):
        return False
    if p.unit and g.unit and 1 in (len(p.unit), len(g.unit)) and not same_unit(p.unit, g.unit):
        return None  # 5m and 5s may be products with a variable
    if p.percent == g.percent:
        return close(p, g)
    share = p if p.percent else g  # 28% is written 28 by some and 0.28 by others
    other = g if p.percent else p
    as_part = PlainNumber(value=share.value / 100, decimals=share.decimals and share.decimals + 2)
    # a number below 1 is a share, and no percentage whose sign was left out: 0.5 is 50%, and not 0.5%
    parts = (share, as_part) if abs(other.value) >= 1 else (as_part,)
    return any(close(part, other) if p.percent else close(other, part) for part in parts)


def with_point(text: str) -> str:
    """Beside a plain number 2,74 is 2.74, 1.234,5 is 1234.5 and 12,34,567 is 1234567, as half the world writes them."""
    if grouped := GROUPED.match(text.strip()):
        return grouped[1] + re.sub("[,.']", "", grouped[2]) + grouped[3]
    found = COMMA_DECIMAL.match(text.strip())
    return f"{re.sub('[. ]', '', found[1])}.{found[2]}{found[3]}" if found else text


def close(p: PlainNumber, g: PlainNumber) -> bool:
    """Whether the answer p and the gold one g are equal, up to noise, or the one is the other rightly rounded."""
    if p.value == g.value:
        return True
    if p.decimals is None and g.decimals is None:
        return False
    whole = p.value.denominator == 1 or g.value.denominator == 1
    bound = INTEGER_TOLERANCE if whole else TOLERANCE
    difference = abs(p.value - g.value)
    if difference <= bound * min(1, max(abs(p.value), abs(g.value))):
        return True
    return not whole and (rounds_to(g, p, MIN_ROUNDED_DECIMALS) or rounds_to(p, g, 0))


def rounds_to(exact: PlainNumber, decimal: PlainNumber, decimals: int) -> bool:
    """Whether the decimal is the exact value rightly rounded, to enough digits and to `decimals` decimals."""
    if exact.decimals is not None or decimal.decimals is None or decimal.decimals < decimals:
        return False
    if decimal.significant < MIN_ROUNDED_DIGITS - (decimal.decimals >= ALWAYS_DECIMALS):
        return False
    return abs(exact.value - decimal.value) <= Fraction(1, 2) * Fraction(10) ** -decimal.decimals
