"""One spelling of characters: digits, letters, signs and punctuation of other scripts as ASCII has them (NFKC).

    ４２ · ٤٢ · ४२ · ৪২       42
    （Ｃ） · Ⓒ · 𝐂             (C) · C · C
    ‑5 · －5 · ﹣5              -5

Mathematics keeps its own characters, which notation.py reads: x² is no x2, ½ no 1/2, ℝ no R.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Scripts whose letters are no variables: Cyrillic to Thai and beyond, Kana, Han, Hangul. Greek is mathematics.
FOREIGN = "\u0400-\u1dbf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
PUNCTUATION = {
    "。": ". ", "।": ". ", "॥": ". ", "۔": ". ", "、": ", ", "،": ", ", "؛": "; ", "؟": "? ", "٫": ".", "٬": ",",
    "٪": "%", "【": "[", "】": "]", "〔": "(", "〕": ")", "「": "“", "」": "”", "『": "“", "』": "”", "\u2212": "-",
    "\u2796": "-", "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u3000": " ",
}  # fmt: skip
DIGIT_COMMA = re.compile(r"(?<=\d)，(?=\d)")
# A dash is a sign before a value, not between two, where it is a range.
SIGN = re.compile(r"(?<![\w)\]}–])–(?=[.\d\\$])")


def plain_characters(text: str) -> str:
    """The text in the one spelling; text in ASCII is returned as it is."""
    if text.isascii():
        return text
    text = DIGIT_COMMA.sub(",", text)
    return SIGN.sub("-", text.translate({ord(char): plain(char) for char in set(text) if not char.isascii()}))


@cache
def plain(char: str) -> str:
    """One character; itself where ASCII has none of the same meaning."""
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    if unicodedata.category(char) == "Cf" or "\u064b" <= char <= "\u0652":  # marks of direction, vowels of Arabic
        return ""
    form = unicodedata.decomposition(char).partition(" ")[0]
    shape = unicodedata.normalize("NFKC", char)
    mathematics = form in ("<super>", "<sub>", "<fraction>") or "\u2100" <= char <= "\u214f"
    if len(shape) == 1 and not mathematics and shape != " ":  # 1 234 may be grouped by a narrow one
        wide = form in ("<wide>", "<narrow>") and shape in ",;:!?."
        return f"{shape} " if wide else PUNCTUATION.get(shape, shape if shape.isascii() else char)
    return PUNCTUATION.get(char, char)
