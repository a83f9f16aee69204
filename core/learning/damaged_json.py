"""Damaged JSON, read all the same: json-repair mends the structure and never sees a string, so none is changed.

Models write trailing commas, single quotes, bare keys, comments, Python's literals, unescaped quotes and newlines, or
stop in the middle. A string is taken out from its opening quote to the quote after which JSON goes on, a mark put in
its place, and exactly the same text put back after the repair.
"""

from __future__ import annotations

import json
import re
from typing import Any

from core.jsonl import in_strings

_MAX_TOKENS = 10_000  # short ones, that json-repair is given: the bound on the time that garbage can take

_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’", '"""': '"""', "'''": "'''"}
_NOTE = r"(?://[^\n]{0,300}|(?<=\s)\#[^\n]{0,300}|/\*.{0,300}?\*/)"  # bounded: it is looked for at every quote
_GAP = rf"(?:\s|{_NOTE})*+"
_LITERAL = r"(?:-?\d[\d.eE+-]{0,40}+|true|false|null|True|False|None|undefined|NaN)(?=[\s,;}\]]|//|\#|/\*)"
_TOKEN = re.compile(
    rf"{_NOTE}|/\*.*|(?P<bracket>[{{}}\[\]])"
    r"""|(?P<item>"(?:\\.|[^"\\])*+(?:"|\Z)|'(?:\\.|[^'\\])*+(?:'|\Z)|“[^”]*(?:”|\Z)"""
    r"|(?<!\w)[A-Za-z_$][\w$ -]{0,60}(?=\s*:))(?=\s*+(?P<key>:)?)"
    rf"|(?P<colon>:)(?:{_GAP}(?P<value>\"{{3}}|'{{3}}|[\"'“‘]|(?!{_LITERAL}|[{{}}\[\],:;]|\Z)))?|\Z",
    re.DOTALL,
)
_PLAIN = re.compile(rf"(?<![\w.-]){_LITERAL}")  # all that is read between those
_KEY = r"""(?:"[^"\n]{1,60}"|'[^'\n]{1,60}'|“[^”\n]{1,60}”|[A-Za-z_][\w-]{0,60})\s*:"""
# What follows the quote that ends a string. A bracket alone may belong to the string, as in \text{"yes"}.
_AFTER = re.compile(
    rf"{_GAP}(?:(?P<member>[,;]?{_GAP}(?:{_KEY}|\{{\s*[\"'“]))|(?P<end>,?{_GAP}\Z|,{_GAP}[\"'“][\w -]*\Z)"
    rf"|,?{_GAP}[}}\]](?P<closed>[^\S\n]*\n|{_GAP}[,;]?{_GAP}(?:[\[\]{{}}\"'“<`]|-?[\d.]+\s*[,}}\]]|\Z))?)",
    re.DOTALL,
)
# The next member, or the quote of its key, in a string whose own quote Q is missing.
_SWALLOWED = r"[{,]\s*(?:Q[^Q\n\\]{1,60}Q\s*:|Q?[\w -]{1,60}\s*:\s*Q)|(?<!\\)Q\s*,\s*\Z"
_FENCE = re.compile(r"\n[ \t]*+```[ \t]*+\n")
_BARE_END = re.compile(rf"[{{}}\[\]\n]|,(?=\s*{_KEY})")


class Cut(str):
    """A string whose end is not in the reply, or not where it should be: nothing to learn from."""

    __slots__ = ()


def repaired(text: str, begin: int) -> tuple[Any, int]:
    """(value, end) of the damaged object that opens at `begin`; value None when nothing can be made of it.

    A string that the text breaks off in, or whose end is uncertain, is a `Cut`.
    """
    from json_repair import repair_json

    structure, strings, end = _without_strings(text, begin)
    try:
        value = repair_json(structure, return_objects=True)
    except (ValueError, RecursionError):
        return None, len(text)
    # What json-repair put together itself is no string of the reply.
    return in_strings(value, lambda said: strings.get(said, Cut(said)), keys=True), end


def _without_strings(text: str, begin: int) -> tuple[str, dict[str, str], int]:
    """(the value with a mark for each string, the strings by their marks, its end)."""
    tokens = ["["]
    strings: dict[str, str] = {}
    depth, place = 0, begin
    while place < len(text) and len(tokens) <= _MAX_TOKENS:
        token = _TOKEN.search(text, place)
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
    """(what the string says that begins here, after its opening quote or without quotes; where it ends)."""
    end, cut = _closing_quote(text, begin, _CLOSING[quote], depth) if quote else _bare_end(text, begin)
    body = text[begin:end] if quote else text[begin:end].strip()
    cut = cut or _FENCE.search(body) is not None  # its quote was lost, and what follows the reply's form is in it
    return _decoded(body, cut), min(end + len(quote), len(text))


def _closing_quote(text: str, begin: int, quote: str, depth: int) -> tuple[int, bool]:
    """(where the string ends that begins here, whether that is uncertain)."""
    first, cut, braces = True, False, 0
    for match in re.compile(rf"\\\\[{{}}]|\\.|[{{}}]|{quote}", re.DOTALL).finditer(text, begin):
        if match.group() != quote:
            braces += (match.group() == "{") - (match.group() == "}")
        elif after := _AFTER.match(text, match.end()):
            surely = after.lastgroup  # None where a bracket alone follows
            closes = braces <= 0 and (surely or depth == 1)
            # Behind an unescaped quote of its own the string may have more of them, with anything after them.
            if (closes or surely) if first else (closes and surely != "end"):
                swallowed = re.search(_SWALLOWED.replace("Q", quote), text[begin : match.start()])
                return match.start(), cut or swallowed is not None
            cut = cut or surely is not None
        first = first and match.group() != quote
    return len(text), True


def _bare_end(text: str, begin: int) -> tuple[int, bool]:
    """(where a string without quotes ends, with its line or its member; whether that is uncertain)."""
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
    """What a string's text says: escapes are read as JSON reads them, and unescaped quotes and newlines stand."""
    escaped = {"\\'": "'", '"': '\\"'}
    body = re.sub(r"\\.|\"", lambda match: escaped.get(match.group(), match.group()), body, flags=re.DOTALL)
    try:
        body = json.loads(f'"{body}"', strict=False)
    except ValueError:  # a backslash at the very end of the reply
        cut = True
    return Cut(body) if cut else body
