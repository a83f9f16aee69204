"""Parse damaged JSON: json-repair mends the structure but never sees a string, so that no string is changed.

Models write trailing commas, single quotes, bare keys, comments, Python literals, unescaped quotes and newlines, or
stop in the middle. Each string, from its opening quote to the quote after which JSON continues, is replaced by a mark
before the repair and restored after it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from core.jsonl import in_strings

_MAX_TOKENS = 10_000  # most tokens passed to json-repair: bounds its time on garbage

_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’", '"""': '"""', "'''": "'''"}
_NOTE = (
    r"(?://[^\n]{0,300}|(?<=\s)\#[^\n]{0,300}|/\*.{0,300}?\*/)"  # bounded length, because it is searched at every quote
)
_GAP = rf"(?:\s|{_NOTE})*+"
_LITERAL = r"(?:-?\d[\d.eE+-]{0,40}+|true|false|null|True|False|None|undefined|NaN)(?=[\s,;}\]]|//|\#|/\*)"
_TOKEN = re.compile(
    rf"{_NOTE}|/\*.*|(?P<bracket>[{{}}\[\]])"
    r"""|(?P<item>"(?:\\.|[^"\\])*+(?:"|\Z)|'(?:\\.|[^'\\])*+(?:'|\Z)|“[^”]*(?:”|\Z)"""
    r"|(?<!\w)[A-Za-z_$][\w$ -]{0,60}(?=\s*:))(?=\s*+(?P<key>:)?)"
    rf"|(?P<colon>:)(?:{_GAP}(?P<value>\"{{3}}|'{{3}}|[\"'“‘]|(?!{_LITERAL}|[{{}}\[\],:;]|\Z)))?|\Z",
    re.DOTALL,
)
_PLAIN = re.compile(rf"(?<![\w.-]){_LITERAL}")  # literals between tokens; other text there is skipped
_KEY = r"""(?:"[^"\n]{1,60}"|'[^'\n]{1,60}'|“[^”\n]{1,60}”|[A-Za-z_][\w-]{0,60})\s*:"""
# Text after the closing quote of a string. A single bracket may belong to the string, as in \text{"yes"}.
_AFTER = re.compile(
    rf"{_GAP}(?:(?P<member>[,;]?{_GAP}(?:{_KEY}|\{{\s*[\"'“]))|(?P<end>,?{_GAP}\Z|,{_GAP}[\"'“][\w -]*\Z)"
    rf"|,?{_GAP}[}}\]](?P<closed>[^\S\n]*\n|{_GAP}[,;]?{_GAP}(?:[\[\]{{}}\"'“<`]|-?[\d.]+\s*[,}}\]]|\Z))?)",
    re.DOTALL,
)
# The next member, or the quote of its key, within a string whose closing quote Q is missing.
_SWALLOWED = r"[{,]\s*(?:Q[^Q\n\\]{1,60}Q\s*:|Q?[\w -]{1,60}\s*:\s*Q)|(?<!\\)Q\s*,\s*\Z"
_FENCE = re.compile(r"\n[ \t]*+```[ \t]*+\n")
_BARE_END = re.compile(rf"[{{}}\[\]\n]|,(?=\s*{_KEY})")


class Cut(str):
    """A string that is cut off or whose end is uncertain; not used as a lesson."""

    __slots__ = ()


def repaired(text: str, begin: int) -> tuple[Any, int]:
    """(value, end) of the damaged object that opens at `begin`; value None if it cannot be repaired.

    A string that is cut off or whose end is uncertain is a `Cut`.
    """
    from json_repair import repair_json

    structure, strings, end = _without_strings(text, begin)
    try:
        value = repair_json(structure, return_objects=True)
    except (ValueError, RecursionError):
        return None, len(text)
    # A string that json-repair assembled itself is not from the reply.
    return in_strings(value, lambda said: strings.get(said, Cut(said)), keys=True), end


def _without_strings(text: str, begin: int) -> tuple[str, dict[str, str], int]:
    """(the value's text with a mark for each string, {mark: string}, its end)."""
    tokens = ["["]
    strings: dict[str, str] = {}
    depth, place = 0, begin
    while place < len(text) and len(tokens) <= _MAX_TOKENS:
        token = _TOKEN.search(text, place)
        assert token is not None  # it ends with the text at the latest
        tokens += _PLAIN.findall(text, place, token.start())
        place, said = token.end(), None
        if token["bracket"]:
            tokens.append(token["bracket"])
            depth += {"{": 1, "}": -1}.get(token["bracket"], 0)
            if depth <= 0:
                return " ".join(tokens), strings, place
        elif token["colon"]:
            tokens.append(":")
            if token["value"] is not None:
                said, place = _string(text, place, token["value"], depth)
        elif item := token["item"]:
            tokens.append("" if token["key"] else ",")
            said = _decoded(item[1:-1] if item[0] in _CLOSING else item, cut=place == len(text))
        if said is not None:
            mark = said if token["key"] and len(said) <= 60 else f"\ue000{len(strings)}"
            strings[mark] = said
            tokens.append(json.dumps(mark, ensure_ascii=False))
    return " ".join(tokens) if place == len(text) else "", strings, len(text)


def _string(text: str, begin: int, quote: str, depth: int) -> tuple[str, int]:
    """(the content of the string that begins here, after its opening quote or without quotes; its end)."""
    end, cut = _closing_quote(text, begin, _CLOSING[quote], depth) if quote else _bare_end(text, begin)
    body = text[begin:end] if quote else text[begin:end].strip()
    cut = cut or _FENCE.search(body) is not None  # its closing quote is missing, and it runs past the code fence
    return _decoded(body, cut), min(end + len(quote), len(text))


def _closing_quote(text: str, begin: int, quote: str, depth: int) -> tuple[int, bool]:
    """(end of the string that begins here, whether the end is uncertain)."""
    first, cut, braces = True, False, 0
    for match in re.compile(rf"\\\\[{{}}]|\\.|[{{}}]|{quote}", re.DOTALL).finditer(text, begin):
        if match.group() != quote:
            braces += (match.group() == "{") - (match.group() == "}")
        elif after := _AFTER.match(text, match.end()):
            surely = after.lastgroup  # None where a bracket alone follows
            closes = braces <= 0 and (surely or depth == 1)
            # After one unescaped quote within the string, more may follow, with any text after them.
            if (closes or surely) if first else (closes and surely != "end"):
                swallowed = re.search(_SWALLOWED.replace("Q", quote), text[begin : match.start()])
                return match.start(), cut or swallowed is not None
            cut = cut or surely is not None
        first = first and match.group() != quote
    return len(text), True


def _bare_end(text: str, begin: int) -> tuple[int, bool]:
    """(end of a string without quotes: the end of its line or member; whether that is uncertain)."""
    depth = 0
    for match in _BARE_END.finditer(text, begin):
        mark = match.group()
        if mark in ",\n}]" and depth == 0:
            return match.start(), text.count('"', begin, match.start()) % 2 == 1
        if mark in ",\n":
            break
        depth += 1 if mark in "{[" else -1
    return len(text), True


def _decoded(body: str, cut: bool) -> str:
    """A string's content: JSON escapes are decoded, unescaped quotes and newlines are kept."""
    escaped = {"\\'": "'", '"': '\\"'}
    body = re.sub(r"\\.|\"", lambda match: escaped.get(match.group(), match.group()), body, flags=re.DOTALL)
    try:
        body = json.loads(f'"{body}"', strict=False)
    except ValueError:  # a backslash at the very end of the reply
        cut = True
    return Cut(body) if cut else body
