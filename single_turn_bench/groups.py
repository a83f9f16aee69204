r"""How an answer is built at its top level: a list, a set, a tuple or interval, or one value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from single_turn_bench.scan import enclosing, split_top

SIGNS = re.compile(r"\\pm(?![a-z])")


@dataclass(frozen=True)
class Group:
    """kind: list (bare), set, tuple (round or square brackets, which `brackets` keeps), or one (a single value)."""

    kind: str
    items: tuple[str, ...]
    brackets: str = ""


def group(text: str) -> Group:
    """How the text is built at its top level."""
    if len(values := members(text)) > 1:
        return Group("list", values)
    opener, inside, closer = enclosing(text) or ("", "", "")
    if opener + closer == "{}":
        return Group("set", members(inside))
    if opener != "{" and len(items := split_items(inside)) > 1:
        return Group("tuple", tuple(items), opener + closer)
    return Group("one", (text,))


def members(text: str) -> tuple[str, ...]:
    return tuple(value for item in split_items(text) for value in both_signs(item))


def split_items(text: str) -> list[str]:
    """At semicolons when there are any, else at commas; those in 1,234 stay when others have a space."""
    if "\\begin" in text:
        return [text]
    separator = ";" if len(split_top(text, ";")) > 1 else ","
    if separator == "," and re.search(r",\s", text):
        text = re.sub(r"(?<![\d.])(\d{1,3})((?:,\d{3})+)(?!\d)", lambda match: match[0].replace(",", ""), text)
    return [item for item in split_top(text, separator) if item]


def both_signs(item: str) -> list[str]:
    r"""1 \pm \sqrt{19} stands for two values; with several signs, all the upper ones or all the lower ones."""
    if not SIGNS.search(item):
        return [item]
    upper = re.sub(r"\\mp(?![a-z])", "-", SIGNS.sub("+", item))
    lower = re.sub(r"\\mp(?![a-z])", "+", SIGNS.sub("-", item))
    return [upper, lower]
