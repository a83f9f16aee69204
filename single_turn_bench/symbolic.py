"""Equality of two values by sympy, for the worker process alone: it may take long, and it may not come back.

latex2sympy parses LaTeX by a grammar; no text is evaluated. Expressions are compared numerically at fixed points to
many digits, which settles nearly everything, faster than simplification; what is no expression (sets, matrices,
relations) goes to math-verify.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache

from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from math_verify import verify
from sympy import Basic, Equality, Expr, Float, I, Integral, Limit, Product, Rational, Sum, Symbol, nan, oo, zoo
from sympy.core.function import AppliedUndef
from sympy.logic.boolalg import Boolean
from sympy.sets import Contains, Set

from single_turn_bench import plain_numbers

DIGITS = 40
MAX_DIGITS = 1_000  # to tell e^{1000} from e^{1000} + 1
MIN_POINTS = 3
EQUAL = Rational(1, 10**25)  # of the larger of two values
ZERO = Rational(1, 10**80)  # an imaginary part below this is noise
NOISY = Rational(1, 10**6)  # when a decimal is part of an expression
POINTS = tuple(Rational(n, d) for n, d in ((137, 101), (-89, 67), (211, 73), (53, 97), (-31, 29), (17, 11), (7, 103)))
BASED = re.compile(r"(?<![\w.}\\])(\d{1,60})(?:\.(\d{1,60}))?\s*_\s*\{?\s*(\d{1,2})\s*\}?")  # 11_2 in an expression
PLAIN_LOG = re.compile(r"\\log(?!\s*_|[a-z])")
BUILT = re.compile(  # {x in R : x > 3} tells what x > 3 does
    r"^\\\{\s*[a-z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\||:)(.+)\\\}$"
)
CONFIG = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
)


def equal(pred: str, gold: str) -> bool:
    """Whether two normalised values are the same. Raises what the parser or sympy raise when one cannot be read."""
    if r"\ln" in gold and r"\ln" not in pred:  # sympy and many books write log for ln
        pred = PLAIN_LOG.sub(r"\\ln", pred)
    if BASED.search(pred) and BASED.search(gold):
        pred, gold = BASED.sub(in_decimals, pred), BASED.sub(in_decimals, gold)
    p, g = parse(pred), parse(gold)
    if isinstance(p, Boolean) and not isinstance(p, Equality) and not (p.free_symbols or p.has(AppliedUndef)):
        return False  # 1 < 2 and 2 < 3 are both true, and not the same
    if isinstance(p, Expr) and isinstance(g, Expr):
        for decided in (rounds(pred, g, by_pred=True), rounds(gold, p, by_pred=False), equal_at_points(p, g)):
            if decided is not None:
                return decided
    if isinstance(p, Boolean) or isinstance(g, Boolean):
        numbers = told(p), told(g)
        if None not in numbers:
            return numbers[0] == numbers[1] and len(p.free_symbols | g.free_symbols) < 2
    return bool(verify(g, p, allow_set_relation_comp=True, timeout_seconds=None))


def told(parsed: Basic) -> Set | None:
    """The real numbers that a set, or an inequality or a chain of them with one unknown, tells; else None."""
    if isinstance(parsed, Contains):
        return parsed.args[1]
    if isinstance(parsed, Boolean) and len(parsed.free_symbols) == 1 and not parsed.has(AppliedUndef):
        with suppress(NotImplementedError, AttributeError, TypeError):
            return parsed.as_set()
    return parsed if isinstance(parsed, Set) and not parsed.free_symbols else None


def in_decimals(number: re.Match) -> str:
    """The value of a number in a base; as it is, where a digit is none of that base."""
    whole, part, base = number[1], number[2] or "", int(number[3])
    if base < 2 or any(int(digit) >= base for digit in whole + part):
        return number[0]
    return rf"\frac{{{int(whole + part, base)}}}{{{base ** len(part)}}}"


@lru_cache(maxsize=256)
def parse(text: str) -> Basic:
    """Symbols are real (a mixture of assumptions would make two x of one x), and i is the imaginary unit."""
    latex = normalize_latex(BUILT.sub(r"\1", text), config=CONFIG)
    parsed = latex2sympy(latex, is_real=True, convert_degrees=False, normalization_config=None)
    units = [symbol for symbol in parsed.free_symbols if symbol.name == "i"]
    return parsed.subs(units[0], I) if units else parsed


def rounds(text: str, exact: Expr, by_pred: bool) -> bool | None:
    """Whether a decimal, the answer or the gold one, is the exact value or rounds it; None when it is no such pair."""
    decimal = plain_numbers.read(text)
    if decimal is None or decimal.decimals is None or exact.free_symbols or exact.has(Float):
        return None
    number = number_at(exact, {})
    if number is None or not number.is_real:
        return None
    value = plain_numbers.PlainNumber(value=Fraction(str(number)))
    return plain_numbers.close(*((decimal, value) if by_pred else (value, decimal)))


def equal_at_points(p: Expr, g: Expr) -> bool | None:
    """By value at fixed points; None when too few points give finite numbers.

    A point at which only one of the two is real lies outside the domain that an answer speaks of: log(x^2), 2 log x.
    """
    if p.has(AppliedUndef) or g.has(AppliedUndef):
        return None
    symbols = sorted(p.free_symbols | g.free_symbols, key=str)
    bound = NOISY if p.has(Float) or g.has(Float) else EQUAL
    seen = 0
    for shift in range(len(POINTS) if symbols else 1):
        point = {symbol: POINTS[(shift + i) % len(POINTS)] for i, symbol in enumerate(symbols)}
        a, b = number_at(p, point), number_at(g, point)
        if a is None or b is None or (symbols and a.is_real != b.is_real):
            continue
        if abs(a - b) > bound * max(abs(a), abs(b)) or (bound == EQUAL and apart(p - g, point)):
            return False
        seen += 1
    return True if seen >= (MIN_POINTS if symbols else 1) else None


def number_at(expression: Expr, point: dict[Symbol, Rational]) -> Expr | None:
    """A rational number as it is, another one to DIGITS digits; None where the expression has no finite value.

    sympy marks by a precision of one bit what it could not tell from zero.
    """
    exact = expression.subs(point).doit()
    number = exact if exact.is_Rational else exact.evalf(DIGITS)
    if not number.is_number or number.has(nan, oo, -oo, zoo):
        return None
    real, imaginary = (Rational(0) if unproved_zero(part) else part for part in number.as_real_imag())
    if not (real.is_Number and imaginary.is_Number):
        return None
    return real if abs(imaginary) <= ZERO else real + I * imaginary


def apart(difference: Expr, point: dict[Symbol, Rational]) -> bool:
    """Whether values that agree to many digits are shown to differ by more digits: e^{100} and e^{100} + 1."""
    if difference.has(Integral, Limit, Product, Sum):  # of which sympy's digits are not all right
        return False
    number = difference.subs(point).evalf(5, maxn=MAX_DIGITS)
    return number.is_number and any(part != 0 and not unproved_zero(part) for part in number.as_real_imag())


def unproved_zero(number: Expr) -> bool:
    return number.is_Float and number._prec == 1
