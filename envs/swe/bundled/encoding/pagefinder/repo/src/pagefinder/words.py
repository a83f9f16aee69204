"""From text to words."""

import re

WORD = re.compile(r"[^\W_]+")


def words(text):
    return WORD.findall(text.lower())
