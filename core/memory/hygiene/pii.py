"""Detection of personal data: e-mail, phone, payment card, IBAN, IP address, SSN.

Lessons contain many numbers, so a number counts as personal data only by its written form, a check digit (Luhn, ISO
7064 for IBAN) or the word next to it, never by its length. Formulas are left alone, and so is what a command, a URL or
a path needs: git@host:path, user@host:/path, addresses that are not public, and the example domains of RFC 2606.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect
from collections.abc import Callable

_MATHS = re.compile(r"\$\$|\$[^$\n]+\$|\\\(|\\\[|\\begin\{(\w+\*?)\}")  # where a formula begins; `$x$` is all of one
_CLOSING = {"$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_CARD_WORD = re.compile(r"(?i)\b(?:card|visa|master\s?card|amex|credit|debit|payment|cc|pan)\b")
_PHONE_WORD = re.compile(r"(?i)\b(?:phone|call|tel|telephone|mobile|cell|fax|whatsapp|sms|text me|dial|hotline)\b")
_HOST_WORD = re.compile(r"(?i)\b(?:ip|host|server|address|dns|ping|gateway)\b")
_VERSION_WORD = re.compile(r"(?i)\b(?:version|release|v|section|chapter|clause|build)\W{0,2}$")


def spans(text: str) -> list[tuple[int, int, str]]:
    """Spans of personal data in a text: (start, end, kind), unsorted, possibly overlapping."""
    maths = _maths(text)
    starts = [start for start, _ in maths]
    found = []
    for kind, pattern, is_real in _KINDS:
        for match in pattern.finditer(text):
            place = bisect(starts, match.start()) - 1  # the last formula that starts at or before it
            inside = place >= 0 and match.end() <= maths[place][1]
            if not inside and is_real(match, text):
                found.append((*match.span(), kind))
    return found


def _maths(text: str) -> list[tuple[int, int]]:
    """Spans of formulas in a text, in order: (start, end).

    The search for a closing delimiter is skipped if none follows, so that a million `\\(` take linear time.
    """
    last = {closing: text.rfind(closing) for closing in _CLOSING.values()}
    last |= {match.group(): match.start() for match in re.finditer(r"\\end\{\w+\*?\}", text)}
    found, at = [], 0
    while opening := _MATHS.search(text, at):
        start, end = opening.span()
        if opening[1] or opening.group() in _CLOSING:
            closing = rf"\end{{{opening[1]}}}" if opening[1] else _CLOSING[opening.group()]
            least = end if opening[1] else end + 1  # `\(\)` is no formula
            if last.get(closing, -1) < least:
                at = start + 1
                continue
            end = text.find(closing, least) + len(closing)
        found.append((start, end))
        at = end
    return found


def luhn(digits: str) -> bool:
    """The check digit of payment cards (ISO/IEC 7812-1)."""
    doubled = (int(d) * 2 if i % 2 else int(d) for i, d in enumerate(reversed(digits)))
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def _near(word: re.Pattern[str], match: re.Match[str], text: str, reach: int = 40) -> bool:
    return bool(word.search(text, max(0, match.start() - reach), match.start()))


def _is_card(match: re.Match[str], text: str) -> bool:
    digits = re.sub(r"\D", "", match.group())
    if not (13 <= len(digits) <= 19 and digits[0] in "23456" and luhn(digits)):
        return False
    grouped = re.fullmatch(r"\d{4}(?:([ -])\d{4})(?:\1\d{4}){2}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{5}", match.group())
    return bool(grouped) or _near(_CARD_WORD, match, text)


def _is_phone(match: re.Match[str], text: str) -> bool:
    written = match.group()
    if not 8 <= len(re.sub(r"\D", "", written)) <= 15:
        return False
    if _near(_PHONE_WORD, match, text):
        return True
    # `x +34 567 890` and `7 +49 30 12345` are sums: an operand stands before the sign.
    operand = re.search(r"(?:^|[^A-Za-z])(?:[A-Za-z]|[\d)\]}])\s*$", text[max(0, match.start() - 6) : match.start()])
    return not operand and bool(re.match(r"\+\d|\(\d{3}\) ?\d|\d{3}([-.])\d{3}\1\d{4}$", written))


def _is_ip(match: re.Match[str], text: str) -> bool:
    if _VERSION_WORD.search(text[max(0, match.start() - 12) : match.start()]):
        return False
    try:
        if not ipaddress.ip_address(match.group()).is_global:
            return False
    except ValueError:
        return False
    if "." in match.group():  # 0.8.0.2 may be cells of a table
        return max(map(int, match.group().split("."))) >= 10 or _near(_HOST_WORD, match, text, 20)
    return len(match.group()) >= 8  # `1::2` is a slice


def _is_iban(match: re.Match[str], text: str) -> bool:
    code = re.sub(r"\s", "", match.group())
    return 15 <= len(code) <= 34 and int("".join(str(int(c, 36)) for c in code[4:] + code[:4])) % 97 == 1


def _is_email(match: re.Match[str], text: str) -> bool:
    host, after = match.group().rpartition("@")[2].lower(), text[match.end() : match.end() + 2]
    is_place = re.match(r":\S|/", after) or text.endswith("//", 0, match.start())
    return not is_place and not re.search(r"(?:^|\.)(?:example\.(?:com|net|org)|example|test|invalid|localhost)$", host)


def _always(match: re.Match[str], text: str) -> bool:
    return True


_KINDS: list[tuple[str, re.Pattern[str], Callable[[re.Match[str], str], bool]]] = [
    (
        "email",
        re.compile(
            r"(?i)(?<![\w.+\\-])[a-z0-9][\w.+-]{0,63}@[a-z0-9][a-z0-9-]{1,62}(?:\.[a-z0-9-]{1,63}){0,4}\.[a-z]{2,24}\b"
        ),
        _is_email,
    ),
    ("card", re.compile(r"(?<![\d.,])\d(?:[ -]?\d){12,18}(?!\d|[.,]\d)"), _is_card),
    (
        "iban",
        re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])"),
        _is_iban,
    ),
    (
        "ssn",
        re.compile(r"(?i)(?<=ssn |ssn:)\s?\d{3}-\d{2}-\d{4}\b|(?<=social security number )(?:is )?\d{3}-\d{2}-\d{4}\b"),
        _always,
    ),
    ("ip", re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\d]|\.\d)"), _is_ip),
    ("ip", re.compile(r"(?i)(?<![0-9a-z:])(?:[0-9a-f]{1,4}:{1,2}){2,7}[0-9a-f]{1,4}(?![0-9a-z:])"), _is_ip),
    (
        "phone",
        re.compile(
            r"(?<![\d.,\w])(?:\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4})(?![\d\w]|[.,-]\d)"
        ),
        _is_phone,
    ),
]
