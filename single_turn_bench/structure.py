r"""Equality of whole answers: lists, tuples, intervals, sets, equations; what is left to compare is a pair of values.

Policies, where graders differ (docs/data.md has the reasons):
- a bare list (`-2, 1`) is a set of answers: order and repetition do not matter; a tuple `(1, 3)` is ordered
- a bare list in the order of a tuple is that tuple
- a name or a sum in front of an answer does not matter (`x = 5`, `12 + 30 = 42`), two different names do
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from single_turn_bench import plain_numbers, relations
from single_turn_bench.scan import enclosing, split_top
from single_turn_bench.units import incompatible, split_unit

MAX_ITEMS = 40
MAX_LEVELS = 8
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)")
SIGNS = re.compile(r"\\pm(?![a-z])")
WORDS = re.compile(r"^[A-Za-z][A-Za-z' -]*$")

DATE = re.compile(r"\d{4}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2\d{4}")
ABBREVIATION = re.compile(r"^[A-Z]{3,}$")
BASED = re.compile(
    r"^\(?(?P<sign>-?)\(?(?:\\overline)?\{?(?P<whole>[0-9A-F]*\d[0-9A-F]*|[A-F]+|)"
    r"(?:\.(?P<part>[0-9A-F]*(?:\\overline\{?[0-9A-F]+\}?)?))?"
    r"\}?\)?(?:_\{?(?P<base>\d+)\}?)?\)?$"
)
BASE_WITH_LETTERS = re.compile(r"\d[\da-f]*_\{?1[1-6]\}?\)?$")  # 2c_{16}
COLUMN = re.compile(r"^\\begin\{([pb]?matrix)\}([^&]+?)\\end\{\1\}$", re.S)
# What tells a set of numbers in another way than an interval or a list does.
TELLS_SET = re.compile(r"[<>]|\\(?:le|ge|ne|setminus|backslash|mathbb|cup|cap)(?![a-z])|\\\{[^{}]*[|:]|\breal", re.I)

Equal = Callable[[str, str], bool]  # (pred, gold) -> whether they are equal


@dataclass(frozen=True)
class Group:
    """kind: list (bare), set, tuple (round or square brackets, which `brackets` keeps), or one (a single value).

    A column vector is a tuple without brackets.
    """

    kind: str
    items: tuple[str, ...]
    brackets: str = ""


def group(text: str) -> Group:
    """How the text is built at its top level."""
    if (column := COLUMN.match(text)) and len(entries := re.split(r"\\\\", column[2].strip("\\ "))) > 1:
        return Group("tuple", tuple(entry.strip() for entry in entries))
    values = members(text, top=True)
    if len(values) > 1 and (chain := relations.chained(values)):
        return Group("one", (chain,))
    if len(values) > 1:
        return Group("list", values)
    opener, inside, closer = enclosing(text) or ("", "", "")
    if opener + closer == "{}":
        return Group("set", members(inside))
    if opener != "{" and len(items := split_items(inside)) > 1:
        return Group("tuple", tuple(items), opener + closer)
    return Group("one", values or (text,))


def members(text: str, top: bool = False) -> tuple[str, ...]:
    return tuple(value for item in split_items(text, top) for value in both_signs(item))


def split_items(text: str, top: bool = False) -> list[str]:
    """At semicolons when there are any, else at commas; those in 1,234 stay outside brackets (`top`).

    Inside they stay when others have a space: (1,234) is a pair.
    """
    if "\\begin" in text:
        return [text]
    text = re.sub(r"\\lor(?![a-z])", ",", text)
    separator = ";" if len(split_top(text, ";")) > 1 else ","
    if separator == "," and (top or re.search(r",\s", text)):
        text = THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    return [item for item in split_top(text, separator) if item]


def both_signs(item: str) -> list[str]:
    r"""1 \pm \sqrt{19} stands for two values; with several signs, all the upper ones or all the lower ones."""
    if not SIGNS.search(item):
        return [item]
    upper = re.sub(r"\\mp(?![a-z])", "-", SIGNS.sub("+", item))
    lower = re.sub(r"\\mp(?![a-z])", "+", SIGNS.sub("-", item))
    return [upper, lower]


def equivalent(pred: str, gold: str, leaf: Equal, level: int = 0) -> bool:
    """Whether two normalised answers are the same; `leaf` decides about single values that are no plain numbers.

    It is also asked about two sets of numbers that are written in different ways: `|x| < 1` and `-1 < x < 1`.
    In the functions below, `leaf` is that of here, and `same` is this function itself, for parts of the answers.
    """
    if not pred or not gold:
        return False
    if squash(pred) == squash(gold):
        return True
    if level > MAX_LEVELS:
        return False
    if alike_in_form(pred, gold, leaf, level):
        return True
    tell_sets = level < 2 and (TELLS_SET.search(pred) or TELLS_SET.search(gold))
    return bool(tell_sets) and leaf(pred, gold)


def alike_in_form(pred: str, gold: str, leaf: Equal, level: int) -> bool:
    """Whether the answers are equal number by number, word by word, item by item."""
    if DATE.fullmatch(pred) or DATE.fullmatch(gold):
        return False  # 2024-05-01 is not 2018
    for rule in (plain_numbers.compare, same_words, same_base):
        if (decided := rule(pred, gold)) is not None:
            return decided

    def same(a: str, b: str) -> bool:
        return equivalent(a, b, leaf, level + 1)

    p, g = group(pred), group(gold)
    if p.kind == g.kind == "one":
        return same_value(p.items[0], g.items[0], same, leaf)
    if "one" in (p.kind, g.kind):
        plain = alike(pred, gold, g) if p.kind == "one" else alike(gold, pred, p)[::-1]
        return same(*plain) if plain != (pred, gold) else leaf(pred, gold)
    return same_groups(p, g, same)


def squash(text: str) -> str:
    """Without what TeX ignores: spaces, but between two digits, and braces around one character of an index."""
    return re.sub(r"([_^])\{(\w)\}", r"\1\2", re.sub(r"\s+(?!\d)|(?<!\d)\s+", "", text))


def same_words(pred: str, gold: str) -> bool | None:
    """Answers in words and abbreviations (AAS); None when one is neither, or when both may be products of variables."""
    bare_p, bare_g = pred.strip("() "), gold.strip("() ")
    if not (WORDS.match(bare_p) and WORDS.match(bare_g)):
        return None
    if squash(bare_p).casefold() == squash(bare_g).casefold():
        return True
    return False if max(len(bare_p), len(bare_g)) >= 4 or ABBREVIATION.match(bare_g) else None


def same_base(pred: str, gold: str) -> bool | None:
    """2516_8, 0.11_2: digits and base must be the same; a base may be left out, since the question asks for it."""
    pred, gold = without_commas(pred), without_commas(gold)
    if BASE_WITH_LETTERS.search(pred) or BASE_WITH_LETTERS.search(gold):
        pred, gold = pred.upper(), gold.upper()
    p, g = BASED.match(pred), BASED.match(gold)
    if not (p and g and (p["base"] or g["base"])):
        return None
    return based_digits(p) == based_digits(g) and (p["base"] or g["base"]) == (g["base"] or p["base"])


def without_commas(text: str) -> str:
    return THOUSANDS.sub(lambda match: match[0].replace(",", ""), squash(text))


def based_digits(number: re.Match) -> tuple[str, str, str]:
    """Sign, digits before the point and digits behind it, without the zeros that say nothing."""
    part = re.sub(r"\{(\w)\}", r"\1", number["part"] or "")
    return number["sign"], number["whole"].lstrip("0"), part if "\\" in part else part.rstrip("0")


def alike(single: str, other: str, grouped: Group) -> tuple[str, str]:
    """A single value and a group, brought to one form: without a name, an inequality as an interval, a list as a union.

    grouped   what `other` is made of
    """
    if grouped.kind == "set" and len(grouped.items) == 1:
        return single, grouped.items[0]
    plain = relations.value(single)
    if plain == single and grouped.kind == "tuple" and (relation := relations.read(single)):
        plain = relations.interval(relation) or single
    return (plain, other) if plain != single else (single, as_union(grouped) or other)


def as_union(some: Group) -> str | None:
    r"""`x < 2, x > 3` as `(-\infty, 2) \cup (3, \infty)`."""
    parsed = [relations.read(item) for item in some.items]
    intervals = [relation and relations.interval(relation) for relation in parsed]
    if not all(intervals) or len({relations.unknown(relation) for relation in parsed}) > 1:
        return None
    return r" \cup ".join(intervals)


def same_groups(p: Group, g: Group, same: Equal) -> bool:
    if max(len(p.items), len(g.items)) > MAX_ITEMS:
        return False
    kinds = {p.kind, g.kind}
    if kinds == {"tuple"}:
        columns = "" in (p.brackets, g.brackets) and {p.brackets, g.brackets} <= {"", "()", "[]"}
        plain = len(p.items) != 2 or p.brackets == g.brackets or columns
        return plain and same_order(p, g, same)
    if g.kind == "tuple" and g.brackets not in ("()", ""):
        return False  # an interval is no list; a list may be written as [1, 2] by a model
    if kinds == {"list", "tuple"} or (kinds == {"list"} and named_apart(p) != named_apart(g)):
        return same_order(p, g, same)
    units = [[split_unit(item)[1].casefold() for item in each.items] for each in (p, g)]
    if kinds == {"list"} and all(len(set(each)) == len(each) for each in units):  # 3 apples and 2 pears
        named = [Group("list", tuple(zip(each.items, words))) for each, words in zip((p, g), units)]
        return same_order(p, g, same) or same_members(*named, lambda a, b: a[1] == b[1] and same(a[0], b[0]))
    return kinds <= {"list", "set"} and same_members(p, g, same)


def same_order(p: Group, g: Group, same: Equal) -> bool:
    return len(p.items) == len(g.items) and all(map(same, p.items, g.items))


def same_members(p: Group, g: Group, same: Equal) -> bool:
    """Every member of the one is in the other."""
    found = all(any(same(a, b) for b in g.items) for a in p.items)
    return found and all(any(same(a, b) for a in p.items) for b in g.items)


def named_apart(some: Group) -> bool:
    """Whether the items carry different names (AB = 4, CD = 5), so that their order says which is which."""
    parsed = [relations.read(item) for item in some.items]
    names = [pair[0] for pair in (relations.solved(relation) for relation in parsed if relation) if pair]
    heads = {re.sub(r"_.*$", "", relations.head(name)) for name in names}
    return len(names) == len(some.items) and len(heads) > 1


def same_value(pred: str, gold: str, same: Equal, leaf: Equal) -> bool:
    """Two answers that are no lists: names, equations and units are taken off before the values are compared."""
    p, g = relations.read(pred), relations.read(gold)
    if p and g:
        return same_relations(p, g, same) or leaf(pred, gold)
    if not (p or g) and (pred.endswith(r"\%") or gold.endswith(r"\%")):
        return same(*without_percent(pred, gold))
    if p and p.operators == (r"\approx",) and not relations.names_only(p.sides[0]) and same(p.sides[0], gold):
        return True
    rounded = pred.rpartition(r"\approx")[2].strip()  # x = 14/3 \approx 4.67, where the gold answer is 4.67
    if rounded != pred and "." in gold and plain_numbers.compare(rounded, gold):
        return True
    evaluated = p is not None and p.is_equation and not relations.states_unknown(p)
    plain_pred = p.sides[-1] if evaluated else relations.value(pred)
    plain_gold = relations.value(gold)
    if (plain_pred, plain_gold) == (pred, gold):
        if bool(p) != bool(g) and not (p or g).is_order:
            return False  # `a + 3z = 0` against `0`
        (plain_pred, unit), (plain_gold, gold_unit) = split_unit(pred), split_unit(gold)
        if incompatible(unit, gold_unit):
            return False
    return leaf(pred, gold) if (plain_pred, plain_gold) == (pred, gold) else same(plain_pred, plain_gold)


def without_percent(pred: str, gold: str) -> tuple[str, str]:
    r"""Of 50\sqrt{2}\% and another percentage the values; beside a value without a sign it is a hundredth."""
    bare = pred.removesuffix(r"\%"), gold.removesuffix(r"\%")
    if pred.endswith(r"\%") and gold.endswith(r"\%"):
        return bare
    return tuple(rf"\frac{{{value}}}{{100}}" if value != text else text for value, text in zip(bare, (pred, gold)))


def same_relations(p: relations.Relation, g: relations.Relation, same: Equal) -> bool:
    """Both are relations: equal name and value, equal sets, or inequalities equal side by side (also mirrored)."""
    named_p, named_g = relations.solved(p), relations.solved(g)
    if named_p and named_g:
        same_name = relations.head(named_p[0]) == relations.head(named_g[0])
        return same_name and same(named_p[1], named_g[1])
    if p.is_membership and g.is_membership:
        return same(p.sides[1], g.sides[1])
    if same_ranks(p, g, same):
        return True
    names = [relations.unknown(side) for side in (p, g)]
    if all(names) and squash(names[0]) != squash(names[1]):
        return False
    as_sets = [relations.interval(side) or (side.sides[1] if side.is_membership else None) for side in (p, g)]
    return all(as_sets) and same(*as_sets)


def same_ranks(p: relations.Relation, g: relations.Relation, same: Equal) -> bool:
    """Whether two chains have the same order: f(2) < f(1) < f(4) is f(4) > f(1) > f(2), and no other one."""
    ranked_p, ranked_g = relations.ranks(p), relations.ranks(g)
    if p.is_equation or g.is_equation or ranked_p is None or ranked_g is None:
        return False
    (places_p, signs_p), (places_g, signs_g) = ranked_p, ranked_g
    return signs_p == signs_g and all(
        len(a) == len(b) and same_members(Group("set", a), Group("set", b), same) for a, b in zip(places_p, places_g)
    )
