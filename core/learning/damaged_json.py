"""Damaged JSON, read all the same: json-repair mends the structure and never sees a string, so none is changed.

Models write trailing commas, single quotes, bare keys, comments, Python's literals, unescaped quotes and newlines, or
stop in the middle. A string is taken out from its opening quote to the quote after which JSON goes on, a mark put in
its place, and exactly the same text put back after the repair.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

MAX_CHARS = 200_000  # of a reply, its end; with the other limits the bound on the time that garbage can take
MAX_STRINGS = 2000
MAX_DEPTH = 32
MAX_STRUCTURE = 50_000  # characters beside the strings

_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’", '"""': '"""', "'''": "'''"}
_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null", "NaN": "null"}
_KEY = r"""(?:"[^"\n]{1,60}"|'[^'\n]{1,60}'|“[^”\n]{1,60}”|[A-Za-z_][\w-]{0,60})\s*:"""
_NOTE = r"(?://[^\n]{0,300}|(?<=\s)\#[^\n]{0,300}|/\*.{0,300}?\*/)"  # bounded: it is looked for at every quote
_GAP = rf"(?:\s|{_NOTE})*+"
_CLOSED = (
    rf"[}}\]]{_GAP}(?:[}}\]<]|\Z|```|,{_GAP}(?:[\[{{}}\]\"'“]|-?[\d.]+\s*[,}}\]]|\Z)|[\[{{])|[}}\]][^\S\n]*(?:\n|\Z)"
)
_TOKEN = re.compile(rf"""\s+|{_NOTE}|/\*.*|[{{}}\[\],:;]|\"{{3}}|'{{3}}|["'“‘]""", re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z_$][\w$ -]{0,60}(?=\s*:)")
_BARE_END = re.compile(r"[{}\[\],\n]|\Z")
_STRAY_END = re.compile(r"[{}\[\],\n\"'“:]|\Z")
_NEXT_KEY = re.compile(rf"\s*{_KEY}")
_LITERAL = re.compile(rf"(?:-?\d[\d.eE+-]*|true|false|null|{'|'.join(_LITERALS)})(?=[\s,}}\]]|//|\#|/\*)")
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w{0,60}\Z")
_MARK = re.compile("\ue000(\\d+)\ue001")
# What follows the quote that ends a string: surely, or only probably.
_AFTER_MEMBER = re.compile(
    rf"{_GAP}(?:[,;]?{_GAP}{_KEY}|,?{_GAP}(?:{_CLOSED})|,?{_GAP}\Z|,{_GAP}\{{\s*[\"'“])", re.DOTALL
)
_AFTER_ITEM = re.compile(
    rf"{_GAP}(?:,{_GAP}(?:[\"'“‘{{\[\]}}-]|\d|true|false|null|True|False|None|\Z)|[\]}}]|\Z|(?<=\s)[\"'“‘])", re.DOTALL
)
_CLOSER = re.compile(r"\s*[}\]]")
_SWALLOWED = re.compile(r"[{,]\s*\"[^\"\n\\]{1,60}\"\s*:")  # the next member, in a string whose own quote was missed
_PERHAPS = re.compile(r"\s*(?:[,}\]:]|\Z)")


class Cut(str):
    """A string whose end is not in the reply, or not where it should be: nothing to learn from."""

    __slots__ = ()


@dataclass(kw_only=True)
class Scan:
    """One pass over a value that opens at `place`; afterwards `end` is where it ends."""

    text: str
    place: int
    out: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    after_colon: bool = False
    unending: set[tuple[str, bool]] = field(default_factory=set)  # searches that found nothing up to the end

    def run(self) -> bool:
        """Whether a value was read within the limits."""
        end = len(self.text)
        while self.place < end:
            token = _TOKEN.match(self.text, self.place)
            mark = token.group() if token else ""
            if mark in _CLOSING:
                self._quoted(mark)
            elif mark and mark in "{[}],:;":
                self.place += 1
                self._structure(mark)
            elif mark:
                self.place = token.end()  # blanks and comments
                self.out.append(" ")
            else:
                self._bare()
            if not self.stack:
                return True
            if len(self.stack) > MAX_DEPTH or len(self.strings) > MAX_STRINGS or len(self.out) > MAX_STRUCTURE:
                return False
        while self.stack:
            self._close_one()
        return True

    def _structure(self, mark: str) -> None:
        if mark in "{[":
            if mark == "{" and len(self.stack) > 1 and self._in_object() and not self.after_colon:
                self._close_one()  # the next item begins where the closing brace of the last one is missing
                self.out.append(",")
            self.stack.append(mark)
            self.out.append(mark)
        elif mark in "}]":
            opening = "{" if mark == "}" else "["
            while opening in self.stack and self.stack[-1] != opening:
                self._close_one()
            if opening in self.stack:
                self._close_one()
        else:
            self.out.append("," if mark == ";" else mark)
        self.after_colon = mark == ":"

    def _close_one(self) -> None:
        self.out.append("}" if self.stack.pop() == "{" else "]")

    def _in_object(self) -> bool:
        return bool(self.stack) and self.stack[-1] == "{"

    def _quoted(self, quote: str) -> None:
        begin = self.place + len(quote)
        is_key = self._in_object() and not self.after_colon
        end = self._closing_quote(_CLOSING[quote], begin, is_key)
        body = self.text[begin:] if end is None else self.text[begin:end]
        self.place = len(self.text) if end is None else end + len(quote)
        self._put(_decoded(body), cut=end is None or _SWALLOWED.search(body) is not None, is_key=is_key)

    def _closing_quote(self, quote: str, begin: int, is_key: bool) -> int | None:
        """Where the string ends: the first quote that JSON surely goes on after, else the first that it may."""
        kind = (quote, self._in_object())
        hopeless, perhaps, open_braces, seen = kind in self.unending, None, 0, begin
        for match in re.compile(rf"\\.|{re.escape(quote)}", re.DOTALL).finditer(self.text, begin):
            if match.group() != quote:
                continue
            place = match.start()
            if is_key or len(quote) == 3:
                return place
            open_braces += self.text.count("{", seen, place) - self.text.count("}", seen, place)
            seen = place
            if not hopeless and self._goes_on(match.end(), open_braces):
                return place
            if perhaps is None and _PERHAPS.match(self.text, match.end()):
                perhaps = place
            if hopeless and perhaps is not None:
                return perhaps
        self.unending.add(kind)
        return perhaps

    def _goes_on(self, place: int, open_braces: int) -> bool:
        """Whether JSON surely goes on after a quote. What follows the whole value may be anything.

        In \\text{"yes"} the closing brace belongs to the string, in which one is open.
        """
        if len(self.stack) == 1 and open_braces <= 0 and _CLOSER.match(self.text, place):
            return True
        return (_AFTER_MEMBER if self._in_object() else _AFTER_ITEM).match(self.text, place) is not None

    def _bare(self) -> None:
        """A word without quotes: a key, a literal, or a string up to the end of its line or member."""
        is_key = self._in_object() and not self.after_colon
        found = _BARE_KEY.match(self.text, self.place) if is_key else _LITERAL.match(self.text, self.place)
        if found and is_key:
            self.place = found.end()
            self._put(found.group().strip(), is_key=True)
        elif found:
            self.place, self.after_colon = found.end(), False
            self.out.append(_LITERALS.get(found.group(), found.group()))
        else:
            begin, self.place = self.place, self._end_of_bare(is_key)
            if not is_key:
                cut = self.place == len(self.text)
                self._put(_decoded(self.text[begin : self.place].strip()), cut=cut)

    def _end_of_bare(self, is_key: bool) -> int:
        depth = 0
        for match in (_STRAY_END if is_key else _BARE_END).finditer(self.text, self.place + 1):
            mark = match.group()
            if mark in ("", "\n") or is_key or (mark in "}]" and depth == 0):
                return match.start()
            if mark == "," and depth == 0 and (not self._in_object() or _NEXT_KEY.match(self.text, match.end())):
                return match.start()
            depth += (mark in "{[") - (mark in "}]")
        return len(self.text)

    def _put(self, said: str, cut: bool = False, is_key: bool = False) -> None:
        if is_key and _PLAIN_KEY.match(said):
            self.out.append(f'"{said}"')
        else:
            self.out.append(f'"\ue000{len(self.strings)}\ue001"')
            self.strings.append(Cut(said) if cut else said)
        if not is_key:
            self.after_colon = False


def repaired(text: str, begin: int) -> tuple[Any, int] | None:
    """(value, end) of the damaged object or list that opens at `begin`; None when nothing can be made of it.

    A string that the text breaks off in is a `Cut`.
    """
    from json_repair import repair_json

    scan = Scan(text=text, place=begin)
    if not scan.run():
        return None
    try:
        value = repair_json("".join(scan.out), return_objects=True)
    except (ValueError, RecursionError):
        return None
    return _put_back(value, scan.strings), scan.place


def _decoded(body: str) -> str:
    """What a string's text says: escapes are read as JSON reads them, and unescaped quotes and newlines stand."""
    body = re.sub(r"\\(.)|\"", lambda m: m.group() if m.group(1) not in ("'", None) else (m.group(1) or '\\"'), body)
    odd = len(body) - len(body.rstrip("\\"))
    try:
        return json.loads(f'"{body}{chr(92) * (odd % 2)}"', strict=False)
    except ValueError:
        return body


def _put_back(value: Any, strings: list[str]) -> Any:
    if isinstance(value, str):
        whole = _MARK.fullmatch(value)
        if whole and int(whole.group(1)) < len(strings):
            return strings[int(whole.group(1))]
        return _MARK.sub(lambda m: strings[int(m.group(1))] if int(m.group(1)) < len(strings) else "", value)
    if isinstance(value, list):
        return [_put_back(item, strings) for item in value]
    if isinstance(value, dict):
        return {str(_put_back(key, strings)): _put_back(item, strings) for key, item in value.items()}
    return value
