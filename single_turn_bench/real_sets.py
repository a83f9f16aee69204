r"""Sets of real numbers, however they are written, for the worker process alone: sympy solves what describes them.

    |x| < 1 · -1 < x < 1 · (-1, 1) · x \in (-1, 1) · \{x : |x| < 1\} · x > -1, x < 1
    x \ne 0 · \mathbb{R} \setminus \{0\} · (-\infty, 0) \cup (0, \infty) · all real numbers except 0

A text is read as a whole or not at all. It has at most one unknown, and no other letter in its bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sympy import And, EmptySet, Expr, FiniteSet, Intersection, Interval, Range, S, Set, Union, oo, solveset
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from single_turn_bench.relations import OPERATOR
from single_turn_bench.scan import depths, enclosing, split_top
from single_turn_bench.structure import TELLS_SET
from single_turn_bench.symbolic import equal_at_points, number_at, parse

MAX_INTEGERS = 100
NAME = r"(?:[A-Za-z]|\\(?:alpha|beta|theta|lambda|var?phi|phi)(?![a-z]))"
MEMBER = re.compile(
    rf"^({NAME})(?:\s*(\\in|\\notin|\\not\s*\\in)(?![a-z])|\s+(?:is|can\s+be|may\s+be)\s+(?=.*\breal\b))(.+)$", re.S
)
BUILT = re.compile(
    rf"^(?P<name>{NAME})\s*(?:\\in(?![a-z])\s*(?P<domain>[^|:]+?)\s*)?(?:\||:|\bsuch that\b)(?P<condition>.+)$", re.S
)
NUMBERS = re.compile(
    r"^\\mathbb\{(?P<which>[RZN])\}\s*(?:[\^_]\s*(?:\{\s*(?P<wide>[^{}]+)\s*\}|(?P<mark>[+\-*]|\\ast|\\times)))?$"
)
MINUS = re.compile(r"^(\\mathbb\{[RZN]\})\s*[-/](?=\s*\\\{)")
WORDS = re.compile(
    r"^(?:the\s+)?(?:set\s+of\s+)?(?:(?:all|any|every|an?)\s+)?real(?:s|\s+numbers?|\s+values)?(?:\s+[a-z])?"
    r"(?:\s*,?\s*(?:except|excluding|other\s+than|besides|but|without)(?:\s+(?:for|when|not|at))*\s+(?P<rest>.+))?$",
    re.I | re.S,
)
SIGNED = {
    "+": Interval.open(0, oo),
    "-": Interval.open(-oo, 0),
    "*": Union(Interval.open(-oo, 0), Interval.open(0, oo)),
}

Piece = tuple[Expr, Expr, bool, bool]  # from, to, and whether each of the two ends is left out


@dataclass(frozen=True)
class Told:
    """A set, and the unknown that the text bounds, if it names one: x of `x > 3`, none of `(3, \\infty)`."""

    numbers: Set
    name: str | None = None


def same_set(pred: str, gold: str) -> bool | None:
    """Whether two texts tell the same set; None where one of them tells none, or both are but lists or intervals."""
    if not (TELLS_SET.search(pred) or TELLS_SET.search(gold)):
        return None
    p, g = read(pred), read(gold)
    if p is None or g is None:
        return None
    if p.name and g.name and p.name != g.name:
        return False
    if p.numbers == g.numbers:
        return True
    pieces_p, pieces_g = pieces(p.numbers), pieces(g.numbers)
    if pieces_p is None or pieces_g is None:
        return None
    return len(pieces_p) == len(pieces_g) and all(map(same_piece, pieces_p, pieces_g))


def read(text: str) -> Told | None:
    """The set that the whole text tells, or None."""
    text = text.strip()
    if len(parts := split_at(text, r"\lor")) > 1:
        return combined(map(read, parts), union)
    items = list(continued(split_top(text.replace(r"\land", ","), ",;")))
    if len(items) > 1 and not OPERATOR.search(text):
        return Told(numbers) if (numbers := points(text)) is not None else None
    if len(items) > 1:
        return combined(map(condition, items), both_or_either)
    return condition(text)


def continued(items: Iterable[str]) -> Iterable[str]:
    r"""`x \ne 1, 2` says x \ne 1 and x \ne 2."""
    start = ""
    for item in items:
        if item:
            begun = re.match(rf"{NAME}\s*\\ne(?![a-z])", item)
            start = begun.group() if begun else start
            yield item if OPERATOR.search(item) or not start else f"{start} {item}"


def combined(parts: Iterable[Told | None], join: Callable[..., Set]) -> Told | None:
    told = list(parts)
    if None in told:
        return None
    names = {part.name for part in told if part.name}
    return Told(join(*(part.numbers for part in told)), next(iter(names), None)) if len(names) < 2 else None


def union(*parts: Set) -> Set:
    return Union(*parts)


def both_or_either(*parts: Set) -> Set:
    """What a comma joins: `x > -1, x < 1` holds of the same number; `x < 2, x > 3` can be of two alone."""
    both = Intersection(*parts)
    return Union(*parts) if both is EmptySet else both


def condition(text: str) -> Told | None:
    """A membership, an inequality, an equation with one unknown, or a set."""
    text = text.strip()
    if member := MEMBER.match(text):
        numbers = read_set(member[3])
        if numbers is None:
            return None
        return Told(numbers if member[2] in (r"\in", None) else S.Reals - numbers, member[1])
    if (numbers := read_set(text)) is not None:
        return Told(numbers)
    return solved(text) if any(depth == 0 for depth in operator_depths(text)) else None


def operator_depths(text: str) -> list[int]:
    level = {position: depth for position, _, depth in depths(text)}
    return [level[match.start()] for match in OPERATOR.finditer(text)]


def solved(text: str) -> Told | None:
    """The real solutions of a relation, or of a chain of them, with one unknown."""
    parsed = parse(text)
    relations = parsed.args if isinstance(parsed, And) else (parsed,)
    symbols = sorted(parsed.free_symbols, key=str)
    if len(symbols) != 1 or parsed.has(AppliedUndef) or not all(isinstance(one, Relational) for one in relations):
        return None
    return Told(Intersection(*(solveset(one, symbols[0], S.Reals) for one in relations)), symbols[0].name)


def read_set(text: str) -> Set | None:
    r"""An interval, a set in braces, \mathbb{R}, words for it, and what \setminus, \cup and \cap make of them."""
    text = MINUS.sub(r"\1 \\setminus ", text.strip())
    for command, join in ((r"\setminus", difference), (r"\cup", union), (r"\cap", Intersection)):
        parts = split_at(text, command)
        if len(parts) > 1:
            sets = [read_set(part) for part in parts]
            return None if None in sets else join(*sets)
    if text in (r"\emptyset", r"\{ \}", r"\{\}"):
        return EmptySet
    if named := NUMBERS.match(text):
        return number_set(named)
    if worded := WORDS.match(text):
        return S.Reals - points(re.sub(rf"{NAME}\s*=", "", worded["rest"])) if worded["rest"] else S.Reals
    opener, inside, closer = enclosing(text) or ("", "", "")
    if opener + closer == "{}":
        return built(inside)
    items = split_top(inside, ",;")
    if opener and len(items) == 2:
        return Interval(*map(bound, items), left_open=opener == "(", right_open=closer == ")")
    told = read(inside) if opener == "(" and closer == ")" else None
    return told.numbers if told else None


def difference(first: Set, *others: Set) -> Set:
    return first - Union(*others)


def number_set(named: re.Match) -> Set | None:
    r"""\mathbb{R}, \mathbb{R}^+, \mathbb{R}_{>0}, \mathbb{Z}; \mathbb{N} is None, since some begin it with 0."""
    whole = {"R": S.Reals, "Z": S.Integers}.get(named["which"])
    mark = (named["mark"] or named["wide"] or "").strip().replace(r"\ast", "*").replace(r"\times", "*")
    if whole is None or not mark:
        return whole
    if mark in SIGNED:
        return Intersection(whole, SIGNED[mark])
    told = solved(f"x {mark}") if OPERATOR.match(mark) else None
    return Intersection(whole, told.numbers) if told else None


def built(inside: str) -> Set | None:
    r"""What stands in set braces: `x \in \mathbb{R} : x > 3`, or a list of numbers."""
    match = BUILT.match(inside.strip())
    if match is None:
        return points(inside)
    domain = read_set(match["domain"]) if match["domain"] else S.Reals
    told = read(match["condition"])
    if domain is None or told is None or told.name not in (None, match["name"].lstrip("\\")):
        return None
    return Intersection(domain, told.numbers)


def points(text: str) -> Set | None:
    values = [parse(item) for item in split_top(text, ",;") if item]
    plain = values and all(isinstance(value, Expr) and not value.free_symbols for value in values)
    return FiniteSet(*values) if plain else None


def bound(text: str) -> Expr:
    value = parse(text.strip())
    if value.free_symbols:
        raise ValueError(f"{text!r} has a letter in it")
    return value


def split_at(text: str, command: str) -> list[str]:
    """The parts between a command's uses outside every bracket."""
    level = {position: depth for position, _, depth in depths(text)}
    parts, last = [], 0
    for match in re.finditer(rf"{re.escape(command)}(?![a-z])", text):
        if level[match.start()] == 0:
            parts.append(text[last : match.start()])
            last = match.end()
    return [*parts, text[last:]]


def pieces(numbers: Set) -> list[Piece] | None:
    """A set as its intervals and single numbers in order; None where it is none of finitely many such."""
    if isinstance(numbers, Range) and numbers.is_finite_set and numbers.size <= MAX_INTEGERS:
        numbers = FiniteSet(*numbers)
    found: list[Piece] = []
    for part in numbers.args if isinstance(numbers, Union) else (numbers,):
        if isinstance(part, FiniteSet):
            found += [(value, value, False, False) for value in part]
        elif isinstance(part, Interval):
            found.append((part.start, part.end, bool(part.left_open), bool(part.right_open)))
        elif part is not EmptySet:
            return None
    return sorted(found, key=lambda piece: -oo if piece[0] == -oo else number_at(piece[0], {}))


def same_piece(a: Piece, b: Piece) -> bool:
    return a[2:] == b[2:] and all(map(same_bound, a[:2], b[:2]))


def same_bound(a: Expr, b: Expr) -> bool:
    return a == b or bool(a.is_finite and b.is_finite and equal_at_points(a, b))
