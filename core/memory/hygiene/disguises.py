"""Undo the disguises of a text (invisible characters, look-alikes, encodings) before it is searched for orders."""

from __future__ import annotations

import base64
import codecs
import re
import unicodedata
from contextlib import suppress
from urllib.parse import unquote

# Cyrillic and Greek letters that look Latin (a part of Unicode's confusables.txt that words can be spelt with).
_LOOKALIKES = str.maketrans(
    "авекмнорстухіјѕԁԛԝһӏαβεικνορτυχΑВЕКМНОРСТУХІЈЅ", "abekmhopctyxijsdqwhlabeikvoptuxabekmhopctyxijs"
)
_LEET = str.maketrans("0134578@$", "oieastbas")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,4000}={0,2}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[2-7][0-9A-Fa-f]){8,2000}(?![0-9A-Za-z])")
_SPACED = re.compile(r"(?<![A-Za-z])(?:[A-Za-z][ .*_-]){3,40}[A-Za-z](?![A-Za-z])")
_WORD_WITH_DIGIT = re.compile(r"(?<![\w\\])(?=\w*\d)(?=\w*[a-z])[\w@$]{3,30}(?!\w)")


def has_hidden_characters(text: str) -> bool:
    """Whether a model sees characters here that a person does not: Unicode tags, changes of direction."""
    return any(_is_covert(character) for character in text)


def readings(text: str) -> list[str]:
    """A text in lower case: plain, in its own alphabet, digits as letters, reversed, by ROT13, decoded."""
    plain = _plain(text)
    letters = _WORD_WITH_DIGIT.sub(lambda m: m.group().translate(_LEET), plain)
    coded = (*_base64_texts(text), *_hex_texts(text), *([unquote(text)] if "%" in text else []))
    own_letters = unicodedata.normalize("NFKC", text).lower()  # a Cyrillic word is no disguise where all are
    return [plain, own_letters, letters, plain[::-1], codecs.decode(plain, "rot13"), *map(_plain, coded)]


def _plain(text: str) -> str:
    text = "".join(c for c in unicodedata.normalize("NFKC", text) if not _is_invisible(c))
    text = "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))
    text = text.translate(_LOOKALIKES)
    return _SPACED.sub(lambda m: re.sub(r"[ .*_-]", "", m.group()), text)


def _base64_texts(text: str) -> list[str]:
    found = []
    for match in _BASE64.finditer(text):
        code = match.group().rstrip("=")
        for encoding in ("utf-8", "utf-16-le"):
            with suppress(ValueError):  # no base64, or no text in this encoding
                inner = base64.b64decode(code + "=" * (-len(code) % 4), validate=True).decode(encoding)
                if inner.isascii() and inner.isprintable():
                    found.append(inner)
    return found


def _hex_texts(text: str) -> list[str]:
    found = [bytes.fromhex(match.group()) for match in _HEX.finditer(text)]
    return [code.decode("ascii") for code in found if code.isascii() and code.decode("ascii").isprintable()]


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) == "Cf" or character in "\u115f\u1160\u3164\uffa0\u034f\u00ad"


def _is_covert(character: str) -> bool:
    code = ord(character)
    return 0xE0000 <= code <= 0xE007F or code in range(0x202A, 0x202F) or code in range(0x2066, 0x206A)
