"""One spelling of characters: digits, letters, signs and punctuation of other scripts as ASCII has them.

    ４２ · ٤٢ · ४२ · ৪২       42
    （Ｃ） · Ⓒ · 𝐂             (C) · C · C
    ‑5 · －5 · ﹣5              -5
    答案是**C**。              答案是 C.

Letters and digits of the Latin alphabet are set apart from those of a script that writes them without a space between,
so that a word boundary stands where one is read.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Scripts whose letters are no variables: Cyrillic to Thai and beyond, Kana, Han, Hangul. Greek is mathematics.
FOREIGN = "\u0400-\u1dbf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
PUNCTUATION = {
    "。": ". ", "．": ".", "｡": ". ", "।": ". ", "॥": ". ", "۔": ". ", "，": ", ", "、": ", ",
    "､": ", ", "،": ", ", "；": "; ", "؛": "; ", "：": ": ", "！": "! ", "？": "? ", "؟": "? ",
    "٫": ".", "٬": ",", "٪": "%", "【": "[", "】": "]", "〔": "(", "〕": ")", "「": "“", "」": "”",
    "『": "“", "』": "”", "\u2212": "-", "\u2796": "-", "\u2010": "-", "\u2011": "-", "\u2012": "-",
    "\u3000": " ",
}  # fmt: skip
DIGIT_COMMA = re.compile(r"(?<=\d)，(?=\d)")
# A dash is a sign before a value, not between two, where it is a range.
SIGN = re.compile(r"(?<![\w)\]}–])–(?=[.\d\\$])")
EMPHASIS = re.compile(rf"(?<=[{FOREIGN}])[*_`]+|[*_`]+(?=[{FOREIGN}])")
BORDER = re.compile(rf"(?<=[{FOREIGN}])(?=[A-Za-z0-9(\[\\$“-])|(?<=[A-Za-z0-9)\]%$}}”’'\"])(?=[{FOREIGN}])")
# What is counted in 共 42 个苹果 and 42\\text{ 元}, where nothing else stands there.
BEFORE_NUMBER = re.compile(rf"^\s*(?:\\text\s*\{{)?[{FOREIGN}\s]+\}}?\s*(?=[-+]?[$€£¥₹]?\d)")
BEHIND_NUMBER = re.compile(
    rf"(?<=[\d)}}\]%])\s*(?:\\(?:text\w*|mathrm|mbox)\s*\{{\s*)?[{FOREIGN}][^\d\\$=<>(){{}}\[\],;]*\}}?\s*$"
)
ONE_LETTER = re.compile(r"\(?[A-Za-z]\)?")


def plain_characters(text: str) -> str:
    """The text in the one spelling; text in ASCII is returned as it is."""
    if text.isascii():
        return text
    text = DIGIT_COMMA.sub(",", text)
    spelled = {ord(char): plain(char) for char in set(text) if not char.isascii()}
    text = SIGN.sub("-", text.translate(spelled))
    return BORDER.sub(" ", EMPHASIS.sub(" ", text))


def without_foreign_words(value: str) -> str:
    """A value without the words of another script that stand before and behind its number."""
    bare = BEFORE_NUMBER.sub("", BEHIND_NUMBER.sub("", value))
    return bare if re.search(r"\d", bare) else value


@cache
def plain(char: str) -> str:
    """One character; itself where ASCII has none of the same meaning."""
    if char in PUNCTUATION:
        return PUNCTUATION[char]
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    if unicodedata.category(char) == "Cf" or "\u064b" <= char <= "\u0652":  # marks of direction, vowels of Arabic
        return ""
    form = unicodedata.decomposition(char).partition(" ")[0]
    shape = unicodedata.normalize("NFKC", char)
    styled = form in ("<wide>", "<narrow>", "<small>") or (form == "<font>" and char >= "\U0001d400")
    if styled and shape.isascii():
        return shape
    in_circle = form == "<circle>" or (form == "<compat>" and shape.startswith("("))
    return shape if in_circle and ONE_LETTER.fullmatch(shape) else char
