r"""Reading text bracket by bracket: what regular expressions cannot do, in linear time.

An escaped brace (`\{`, `\}`) is the brace of a set in mathematics, and an ordinary character in TeX: `enclosing` reads
it in the first way, `balanced` in the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OPENERS, CLOSERS = "([{", ")]}"
MAX_DEPTH = 40

ARITY = {"frac": 2, "sqrt": 1, "binom": 2}
PAIRS = {"{": re.compile(r"\\.|[{}]", re.S), "(": re.compile(r"\\.|[()]", re.S)}
SPACES = re.compile(" *")
TOKEN = re.compile(r"\\(?:[A-Za-z]+|.|$)", re.S)
COMMAND = re.compile(r"\\(frac|sqrt|binom)(?![a-z])\s*(\[[^\[\]]*\])?")


def balanced(text: str, start: int, limit: int | None = None) -> str | None:
    """What stands between the opener at `start` and its closer; None when it does not close within `limit` characters.

    The opener is `{` or `(`; brackets of other kinds and escaped ones do not count.
    """
    opener, depth = text[start], 0
    for match in PAIRS[opener].finditer(text, start, len(text) if limit is None else start + limit):
        if match.group()[0] != "\\":
            depth += 1 if match.group() == opener else -1
        if depth == 0:
            return text[start + 1 : match.start()]
    return None


def depths(text: str) -> Iterator[tuple[int, str, int]]:
    """(position, character, bracket depth before it), any opener paired with any closer: `[0, 1)` is one group."""
    depth = 0
    for position, char in enumerate(text):
        yield position, char, depth
        if char in OPENERS:
            depth += 1
        elif char in CLOSERS:
            depth = max(0, depth - 1)


def deepest(text: str) -> int:
    """How deep the brackets nest; parsers that recurse are kept away from text beyond MAX_DEPTH."""
    return max((depth + (char in OPENERS) for _, char, depth in depths(text)), default=0)


def split_top(text: str, separators: str) -> list[str]:
    """The parts between the separators that stand outside every bracket, stripped."""
    parts, last = [], 0
    for position, char, depth in depths(text):
        if depth == 0 and char in separators:
            parts.append(text[last:position].strip())
            last = position + 1
    parts.append(text[last:].strip())
    return parts


def enclosing(text: str) -> tuple[str, str, str] | None:
    """(opener, inside, closer) when one pair of brackets holds the whole text; set braces come back as `{` and `}`."""
    plain = text.strip().replace("\\{", "{").replace("\\}", "}")
    if not plain or plain[0] not in OPENERS or plain[-1] not in CLOSERS:
        return None
    for position, char, depth in depths(plain):
        if char in CLOSERS and depth <= 1 and position < len(plain) - 1:
            return None
    return plain[0], plain[1:-1].strip(), plain[-1]


def brace_groups(text: str) -> str:
    r"""`^(1/4)` to `^{1/4}` and `\sqrt (5)` to `\sqrt{5}`: LaTeX groups with braces only."""
    for _ in range(len(text)):
        match = re.search(r"(\^|\\sqrt)\s*\(", text)
        inside = balanced(text, match.end() - 1) if match else None
        if inside is None:
            return text
        rest = text[match.end() + len(inside) + 1 :]
        text = f"{text[: match.start()]}{match.group(1)}{{{inside}}}{rest}"
    return text


def brace_arguments(text: str) -> str:
    r"""TeX takes the next token as the argument; parsers want it braced: \frac34, \frac\pi2, \sqrt3."""
    out, position = [], 0
    while match := COMMAND.search(text, position):
        out.append(text[position : match.start()] + "\\" + match.group(1) + (match.group(2) or ""))
        position = match.end()
        for _ in range(ARITY[match.group(1)]):
            argument, position = next_argument(text, position)
            out.append("{" + brace_arguments(argument) + "}")
    return "".join(out) + text[position:]


def next_argument(text: str, position: int) -> tuple[str, int]:
    position = SPACES.match(text, position).end()
    if position == len(text):
        return "", position
    if text[position] == "{":
        inside = balanced(text, position)
        return (inside, position + len(inside) + 2) if inside is not None else (text[position + 1 :], len(text))
    if text[position] == "\\":
        end = TOKEN.match(text, position).end()
        return text[position:end], end
    return text[position], position + 1
