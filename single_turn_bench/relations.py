r"""Equations and inequalities around an answer: `x = 5`, `k = 1 + 1 = 2`, `x \in [-2, 7]`, `-793 < a < 10`.

Where the left side of an equation only names the answer, the right side is the answer. Where it states something, as in
`a + 3z = 0`, the equation itself is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from single_turn_bench.scan import depths

OPERATOR = re.compile(r"\\(?:le|ge|ne|approx|in|equiv)(?![a-z])|[<>=]")
# A left side that asks for a value though letters stand in it: a sum, d/dx, \sin A, A^{-1}, E[X^2], \|v\|, u·v.
QUANTITY = re.compile(
    r"\\(?:sum|prod|int|lim|frac\s*\{\s*(?:d|\\partial))(?![a-z])|^[A-Z]\s*\^\s*\{?\s*(?:-1|T|\\top)\s*\}?$"
    r"|^\\(?:(?:arc)?(?:sin|cos|tan)|sec|csc|cot|log|ln|exp|det|gcd|lcm|deg|dim|arg|max|min)(?![a-z])[^+\-]*$"
    r"|^[A-Z]\s*\[[^\[\]]*\]$|^\\\|[^|]*\\\|$|^[A-Za-z]\s*\\(?:cdot|times)\s*[A-Za-z]$"
)
PROSE = re.compile(r"(?<![A-Za-z\d\\])[A-Za-z]{3,}")
VARIABLE = re.compile(
    r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])|(?<=\d)[a-z]{2}(?![A-Za-z])|\\(?:alpha|beta|theta|phi)(?![a-z])"
)
# What contests ask for: m + n, 100p + q, a - b + c. A line's equation is none: a + 3z = 0.
LETTER = r"(?:[A-Za-z]'*|\|[A-Za-z]\||\\(?:alpha|beta|gamma|theta|phi)(?![a-z]))"
TERM = rf"\d*\s*(?:\\cdot\s*)?{LETTER}(?:\s*_\s*(?:\{{\w+\}}|\w))?"
SUM = re.compile(rf"^-?\s*{TERM}(?:\s*[+-]\s*{TERM})+$")
MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


@dataclass(frozen=True)
class Relation:
    """sides[0] operators[0] sides[1] operators[1] ..."""

    sides: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def is_equation(self) -> bool:
        return set(self.operators) <= {"=", r"\approx", r"\equiv"}

    @property
    def is_order(self) -> bool:
        return set(self.operators) <= {"<", r"\le"} or set(self.operators) <= {">", r"\ge"}

    @property
    def is_membership(self) -> bool:
        return self.operators == (r"\in",)


def read(text: str) -> Relation | None:
    """The relation that the text is at its top level, or None. `x = 1/3 \\approx 0.33` loses its approximation."""
    level = {position: depth for position, _, depth in depths(text)}
    marks = [match for match in OPERATOR.finditer(text) if level[match.start()] == 0]
    if not marks:
        return None
    edges = [0, *(edge for match in marks for edge in match.span()), len(text)]
    sides = [text[a:b].strip() for a, b in zip(edges[::2], edges[1::2])]
    operators = [match.group() for match in marks]
    while len(operators) > 1 and operators[-1] == r"\approx":
        operators.pop()
        sides.pop()
    return Relation(tuple(sides), tuple(operators)) if all(sides) else None


def names_only(side: str) -> bool:
    r"""Whether a left side is but a name: x, f(x), a_{37}, (p,q), AB, |AB|, \angle APC, V_1:V_2, \frac{NO}{BO}."""
    bare = re.sub(r"_\s*(?:\{[^{}]*\}|\\?\w)", "", side)  # indices
    bare = re.sub(r"\^\s*\{?\s*-1\s*\}?(?=\s*\()", "", bare)  # f^{-1}(x)
    bare = re.sub(r"(?<![A-Za-z])([A-Za-z])'*\s*\([^()]*\)", r"\1", bare)  # arguments
    bare = re.sub(r"\\(?:angle|triangle|overline|frac|vec|mathbf|bar|hat)(?![a-z])", "", bare)
    counts = re.search(r"[\d+\-*/^]|\\(?!alpha|beta|theta|phi)", bare)
    return counts is None and re.search(r"[A-Za-z]", bare) is not None


def head(name: str) -> str:
    """The name without spaces and arguments: f(x) and f(y) have one head, x and y have not."""
    return re.sub(r"^([A-Za-z])\s*\(.*\)$", r"\1()", re.sub(r"[\s{}]", "", name))


def solved(relation: Relation) -> tuple[str, str] | None:
    """(name, value) of an equation that gives a name its value, `5 = x` included; else None."""
    first, last = relation.sides[0], relation.sides[-1]
    if not relation.is_equation:
        return None
    if names_only(first):
        return first, last
    return (last, first) if len(relation.sides) == 2 and names_only(last) else None


def states_unknown(relation: Relation) -> bool:
    """Whether `left = right` only says something about an unknown: 2x = 8, which has not been solved.

    5 + 3 = 8, \\sin A = 3/5, m + n = 113 and (x + 1)^2 = x^2 + 2x + 1 say what their left side is worth.
    """
    left, right = relation.sides[0], relation.sides[-1]
    if len(relation.sides) > 2 or solved(relation) or QUANTITY.search(left) or PROSE.search(left):
        return False
    left = re.sub(r"(?<![A-Za-z])[A-Za-z]'*\s*[(\[]\s*-?[\d., ]+[)\]]", "1", left)  # f(2) is a number
    left = re.sub(r"(?<=\d)\s*x\s*(?=\d)", " ", left)  # 5 x 3
    if SUM.match(left) and (right != "0" or not re.search(r"\d", left)):
        return False
    unknown = set(VARIABLE.findall(left)) - {"e", "i"}
    return bool(unknown - set(VARIABLE.findall(right)))


def value(text: str) -> str:
    r"""What a named or computed answer is worth: `x \in S` is S, `k = 1 + 1 = 2` and `1 + 1 = 2` are 2."""
    relation = read(text)
    if relation is None:
        return text
    if named := solved(relation):
        return named[1]
    if relation.is_membership and names_only(relation.sides[0]):
        return relation.sides[1]
    return relation.sides[-1] if relation.is_equation and len(relation.sides) > 2 else text


def ascending(relation: Relation) -> Relation:
    """Written with < instead of >, where it can be: `5 > x` as `x < 5`."""
    if not set(relation.operators) <= {">", r"\ge", "="} or relation.is_equation:
        return relation
    operators = tuple(MIRROR.get(operator, operator) for operator in relation.operators[::-1])
    return Relation(relation.sides[::-1], operators)


def ranks(relation: Relation) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]] | None:
    r"""What stands at each place of an ascending chain, and the signs between: `a = b < c` is ((a, b), (c,)), (<,).

    None where a sign has no direction (\ne), or another one than the rest.
    """
    relation = ascending(relation)
    if not set(relation.operators) <= {"<", r"\le", "="}:
        return None
    places = [[relation.sides[0]]]
    for operator, side in zip(relation.operators, relation.sides[1:]):
        if operator != "=":
            places.append([])
        places[-1].append(side)
    return tuple(map(tuple, places)), tuple(operator for operator in relation.operators if operator != "=")


def chained(items: tuple[str, ...]) -> str | None:
    """`f(2) < f(1)`, `f(1) < f(4)` as one chain; None where the items are none, or bound an unknown by numbers."""
    parsed = [ascending(relation) for relation in map(read, items) if relation]
    linked = all(a.sides[-1] == b.sides[0] for a, b in pairwise(parsed))
    if not 1 < len(parsed) == len(items) or not linked or not all(relation.is_order for relation in parsed):
        return None
    if not all(re.search(r"(?<![\\A-Za-z])[A-Za-z]", end) for end in (parsed[0].sides[0], parsed[-1].sides[-1])):
        return None
    rest = (f" {sign} {side}" for relation in parsed for sign, side in zip(relation.operators, relation.sides[1:]))
    return parsed[0].sides[0] + "".join(rest)


def unknown(relation: Relation) -> str | None:
    r"""The name that an inequality bounds: x of `-2 \le x < 7` and of `5 > x`; |x| is no name, but a value."""
    sides = relation.sides
    places = {2: (0, 1), 3: (1,)}.get(len(sides), ()) if relation.is_order else ()
    return next((sides[place] for place in places if names_only(sides[place]) and "|" not in sides[place]), None)


def interval(relation: Relation) -> str | None:
    r"""`-2 \le x < 7` as `[-2, 7)`, `x > 5` as `(5, \infty)`; None unless a name stands for the unknown."""
    if (name := unknown(relation)) is None:
        return None
    relation = ascending(relation)
    sides, operators = relation.sides, relation.operators
    left, right = "(" if operators[0] == "<" else "[", ")" if operators[-1] == "<" else "]"
    if len(sides) == 3:
        return f"{left}{sides[0]}, {sides[2]}{right}"
    return rf"(-\infty, {sides[1]}{right}" if sides[0] == name else rf"{left}{sides[0]}, \infty)"
