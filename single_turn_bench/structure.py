r"""Equality of whole answers: lists, tuples, intervals, sets, equations; what is left to compare is a pair of values.

Policies, where graders differ (docs/grading.md has the reasons):
- a bare list (`-2, 1`) is a set of answers: order and repetition do not matter; a tuple `(1, 3)` is ordered
- a bare list in the order of a tuple is that tuple
- a name or a sum in front of an answer does not matter (`x = 5`, `12 + 30 = 42`), two different names do
"""

from __future__ import annotations

import re
from collections.abc import Callable

from single_turn_bench import plain_numbers, relations
from single_turn_bench.groups import Group, group
from single_turn_bench.units import strip_unit

MAX_ITEMS = 40
MAX_LEVELS = 8
WORDS = re.compile(r"^[A-Za-z][A-Za-z' -]*$")

BASED = re.compile(r"^\(?(?P<digits>[0-9A-F]*\d[0-9A-F]*|[A-F]+)\)?(?:_\{?(?P<base>\d+)\}?)?$")

Leaf = Callable[[str, str], bool]  # (pred, gold) -> equal, for two values


def equivalent(pred: str, gold: str, leaf: Leaf, level: int = 0) -> bool:
    """Whether two normalised answers are the same; `leaf` decides about single values that are no plain numbers."""
    if not pred or not gold:
        return False
    if squash(pred) == squash(gold):
        return True
    if level > MAX_LEVELS:
        return False
    numbers = plain_numbers.compare(pred, gold)
    if numbers is not None:
        return numbers
    settled = same_words(pred, gold)
    settled = same_base(pred, gold) if settled is None else settled
    if settled is not None:
        return settled
    p, g = group(pred), group(gold)
    if p.kind == g.kind == "one":
        return same_value(pred, gold, leaf, level)
    if "one" in (p.kind, g.kind):
        return one_and_group(p, g, pred, gold, leaf, level)
    return same_groups(p, g, leaf, level)


def squash(text: str) -> str:
    """Without what TeX ignores: spaces, and braces around one character of an index or exponent."""
    return re.sub(r"([_^])\{(\w)\}", r"\1\2", re.sub(r"\s+", "", text))


def same_words(pred: str, gold: str) -> bool | None:
    """Answers in words; None when one is not, or when they are so short that they could be products of variables."""
    bare_p, bare_g = pred.strip("() "), gold.strip("() ")
    if not (WORDS.match(bare_p) and WORDS.match(bare_g)):
        return None
    if squash(bare_p).casefold() == squash(bare_g).casefold():
        return True
    return False if max(len(bare_p), len(bare_g)) >= 4 else None


def same_base(pred: str, gold: str) -> bool | None:
    """2516_8: digits and base must be the same; a base may be left out, since the question asks for it."""
    p, g = BASED.match(squash(pred)), BASED.match(squash(gold))
    if not (p and g and (p["base"] or g["base"])):
        return None
    return p["digits"].upper() == g["digits"].upper() and (p["base"] or g["base"]) == (g["base"] or p["base"])


def one_and_group(p: Group, g: Group, pred: str, gold: str, leaf: Leaf, level: int) -> bool:
    """One of the two is no list: a name is taken off it, an inequality becomes an interval, a list a union."""
    single, other = (pred, g) if p.kind == "one" else (gold, p)
    if other.kind == "set" and len(other.items) == 1:
        return again(single, other.items[0], p.kind == "one", leaf, level)
    relation = relations.read(single)
    plain = relations.value(single)
    if plain == single and other.kind == "tuple" and relation:
        plain = relations.interval(relation) or single
    if plain != single:
        return again(plain, gold if p.kind == "one" else pred, p.kind == "one", leaf, level)
    union = as_union(other)
    return again(single, union, p.kind == "one", leaf, level) if union else leaf(pred, gold)


def again(single: str, other: str, single_is_pred: bool, leaf: Leaf, level: int) -> bool:
    pred, gold = (single, other) if single_is_pred else (other, single)
    return equivalent(pred, gold, leaf, level + 1)


def as_union(some: Group) -> str | None:
    r"""`x < 2, x > 3` as `(-\infty, 2) \cup (3, \infty)`."""
    parsed = [relations.read(item) for item in some.items]
    intervals = [relation and relations.interval(relation) for relation in parsed]
    return r" \cup ".join(intervals) if all(intervals) else None


def same_groups(p: Group, g: Group, leaf: Leaf, level: int) -> bool:
    if max(len(p.items), len(g.items)) > MAX_ITEMS:
        return False
    kinds = {p.kind, g.kind}
    if kinds == {"tuple"}:
        plain = len(p.items) != 2 or p.brackets == g.brackets
        return plain and same_order(p, g, leaf, level)
    if g.kind == "tuple" and g.brackets != "()":
        return False  # an interval is no list; a list may be written as [1, 2] by a model
    if kinds == {"list", "tuple"} or (kinds == {"list"} and named_apart(p) != named_apart(g)):
        return same_order(p, g, leaf, level)
    return kinds <= {"list", "set"} and same_members(p, g, leaf, level)


def same_order(p: Group, g: Group, leaf: Leaf, level: int) -> bool:
    if len(p.items) != len(g.items):
        return False
    return all(equivalent(a, b, leaf, level + 1) for a, b in zip(p.items, g.items))


def same_members(p: Group, g: Group, leaf: Leaf, level: int) -> bool:
    """Every member of the one is in the other."""

    def within(item: str, others: tuple[str, ...], is_pred: bool) -> bool:
        pairs = ((item, other) if is_pred else (other, item) for other in others)
        return any(equivalent(a, b, leaf, level + 1) for a, b in pairs)

    return all(within(item, g.items, True) for item in p.items) and all(
        within(item, p.items, False) for item in g.items
    )


def named_apart(some: Group) -> bool:
    """Whether the items carry different names (AB = 4, CD = 5), so that their order says which is which."""
    parsed = [relations.read(item) for item in some.items]
    names = [pair[0] for pair in (relations.solved(relation) for relation in parsed if relation) if pair]
    heads = {re.sub(r"_.*$", "", relations.head(name)) for name in names}
    return len(names) == len(some.items) and len(heads) > 1


def same_value(pred: str, gold: str, leaf: Leaf, level: int) -> bool:
    """Two answers that are no lists: names, equations and units are taken off before the values are compared."""
    p, g = relations.read(pred), relations.read(gold)
    if p and g:
        return same_relations(p, g, leaf, level) or leaf(pred, gold)
    evaluated = p is not None and p.is_equation and not relations.states_unknown(p)
    plain_pred = p.sides[-1] if evaluated else relations.value(pred)
    plain_gold = relations.value(gold)
    if (plain_pred, plain_gold) == (pred, gold):
        if bool(p) != bool(g) and not (p or g).is_order:
            return False  # `a + 3z = 0` against `0`
        plain_pred, plain_gold = strip_unit(pred), strip_unit(gold)
    if (plain_pred, plain_gold) == (pred, gold):
        return leaf(pred, gold)
    return equivalent(plain_pred, plain_gold, leaf, level + 1)


def same_relations(p: relations.Relation, g: relations.Relation, leaf: Leaf, level: int) -> bool:
    """Both are relations: equal name and value, equal sets, or inequalities equal side by side (also mirrored)."""
    named_p, named_g = relations.solved(p), relations.solved(g)
    if named_p and named_g:
        same_name = relations.head(named_p[0]) == relations.head(named_g[0])
        return same_name and equivalent(named_p[1], named_g[1], leaf, level + 1)
    if p.is_membership and g.is_membership:
        return equivalent(p.sides[1], g.sides[1], leaf, level + 1)
    as_sets = [relations.interval(side) or (side.sides[1] if side.is_membership else None) for side in (p, g)]
    if all(as_sets):
        return equivalent(as_sets[0], as_sets[1], leaf, level + 1)
    return False
