"""Characters that look like Latin letters or digits, undone for checking. What is stored is never changed.

The data is Unicode's confusables.txt from the package confusable-homoglyphs, which has no dependencies and nothing
compiled.
"""

from __future__ import annotations

import unicodedata
from functools import cache

# What Unicode's data does not count as a Latin letter, or as another one: ӏ is used for l, as in аррӏе.
_FURTHER = {ord(sign): letter for sign, letter in zip("кмβεκχӏ", "kmbekxl")}
_SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "


def folded(text: str) -> str:
    """A text of the same length, with ASCII letters (lower case) and digits in place of what looks like them."""
    return text if text.isascii() else text.translate(_table())


def bare(text: str) -> str:
    """A text without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


@cache
def _table() -> dict[int, str]:
    """{code point: ASCII letter or digit}, also of letters that look like one with an accent."""
    from confusable_homoglyphs.confusables import confusables_data

    small = {c: name[-1].lower() for c in map(chr, range(0x250, 0x1E00)) if (name := _small_capital(c))}
    found = dict(small)
    for sign, likes in confusables_data.items():
        # Unicode's data spells m as rn, and a capital I as l.
        looks = [small.get(like["c"], bare(like["c"]).replace("rn", "m")) for like in likes]
        look = min((look for look in looks if len(look) == 1 and look.isascii() and look.isalnum()), default="")
        if look and len(sign) == 1 and not sign.isascii():
            found[sign] = "i" if look == "l" and _is_capital_i(sign) else look.lower()
    return str.maketrans(found) | _FURTHER


def _small_capital(sign: str) -> str:
    """The name of a small capital of one Latin letter, else ""."""
    name = unicodedata.name(sign, "")
    return name if name.startswith(_SMALL_CAPITAL) and len(name) == len(_SMALL_CAPITAL) + 1 else ""


def _is_capital_i(sign: str) -> bool:
    return unicodedata.category(sign) == "Lu" or unicodedata.name(sign, "").endswith(" I")
