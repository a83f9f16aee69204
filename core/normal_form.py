"""The form in which texts are compared, by graders and by retrieval alike: what only looks different is the same.

D’Arcy · D'Arcy            well‑known · well-known        “Blue Jay” · "Blue Jay"
Os<zero width>lo · Oslo    to be continued… · ...         San<no-break>Jose · San Jose
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache

_SINGLE, _DOUBLE = "‘’‚‛‹›ʹʻʼʽˈˊ′‵´՚׳ꞌ", "“”„‟«»″‶〝〞〟״"
_QUOTES = str.maketrans(_SINGLE + _DOUBLE, "'" * len(_SINGLE) + '"' * len(_DOUBLE))
_NOTHING = "\u034f\u0640"  # the joiner of graphemes, and the line that stretches an Arabic word


def normal_form(text: str) -> str:
    """NFKC, with quotes, dashes and slashes as ASCII has them and without format characters. Case and blanks stay."""
    if text.isascii():
        return text
    return "".join(map(_plain, unicodedata.normalize("NFKC", text.translate(_QUOTES))))


@lru_cache(maxsize=16_384)  # titles and contents that a round of consolidation compares
def folded(text: str) -> str:
    """The normal form without case, and with one blank for any number."""
    return " ".join(normal_form(text).casefold().split())


@cache
def _plain(sign: str) -> str:
    """One character of a text in NFKC."""
    if sign.isascii():
        return sign
    name, kind = unicodedata.name(sign, ""), unicodedata.category(sign)
    if kind == "Cf" or sign in _NOTHING or name.startswith("VARIATION SELECTOR"):
        return ""
    if kind == "Pd" or name.endswith("MINUS SIGN"):
        return "-"
    return "/" if sign in "⁄∕" else sign
