"""Foreign text where a person reads it: in a terminal, in a log, in Markdown, in a spreadsheet.

Text is foreign if a model, a provider, a dataset, a tenant or a file name may have chosen it. In a prompt it is escaped
by core/control_tokens.py; in a page by the template's engine.
"""

from __future__ import annotations

import re
from typing import Any

# What a terminal obeys, and what changes or hides the order of letters: controls but tab and newline (ESC, CR, BEL, BS,
# C1), bidirectional marks, invisible letters, separators of lines, tags and variation selectors that carry hidden text,
# halves of surrogate pairs. The joiners of emoji, Persian and Indian scripts (U+200C, U+200D) are ordinary letters.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with what a terminal would obey written out, as in "\u001b[2J": in JSON this is the same data."""
    return _UNPRINTABLE.sub(_written_out, text)


def without_hidden(text: str) -> str:
    """The text without what `printable` writes out, e.g. for a prompt: a model reads characters that nobody sees."""
    return _UNPRINTABLE.sub("", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


# What Markdown hides, loads or leads elsewhere with: tags and comments, entities, links, images, definitions, notes,
# formulas; the rest of a fence's first line; cells that a table has no column for. A backslash before a sign comes
# first, as it would escape our own.
_MARKDOWN = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\](?=[(:\[])|!(?=\[)|\$"
    r"|`(?=``+(?![ \t]*[\w+#.-]{0,20}[ \t]*$))|~(?=~~+(?![ \t]*[\w+#.-]{0,20}[ \t]*$))",
    re.MULTILINE,
)
_RULE = re.compile(r"([ \t>]*)(?=[|: \t-]*-)([|: \t-]+)")  # of a table: |---|---|, of one column also :-


def markdown(text: str) -> str:
    """The text as Markdown that shows all of it. Emphasis, lists and code stay what they are."""
    lines = _MARKDOWN.sub(r"\\\g<0>", printable(text)).split("\n")
    for place, line in enumerate(lines):
        if (rule := _RULE.fullmatch(line)) and ("|" in line or (place and "|" in lines[place - 1])):
            lines[place] = f"{rule[1]}\\{rule[2]}"
    return "\n".join(lines)


# Where a cell begins: at its beginning, and behind what some spreadsheets take for its end.
_FORMULA = re.compile(
    r"(?:^|(?<=[;\t\r\n]))(?=[\s\x00-\x1f\ufeff\u200b-\u200f\u2060]*[=+\-@\ufe62\ufe63\ufe66\uff1d\uff0b\uff0d\uff20|%]|[\t\r])"
)
_NUMBER = re.compile(r"\s*[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*%?\s*|-*")


def spreadsheet(value: Any) -> Any:
    """A cell of a CSV file: before what a spreadsheet would calculate stands a ', which makes it a text.

    Numbers, and texts that are one, are left alone.
    """
    return value if not isinstance(value, str) or _NUMBER.fullmatch(value) else _FORMULA.sub("'", value)
