"""When do two lessons say the same? Pure functions, no bank."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from core.types import Lesson

_NUMBER = re.compile(r"\d+")


def normal(text: str) -> str:
    """A text without what makes no difference: case, width of letters, runs of blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def content_hash(item: Lesson) -> str:
    """Equal for items whose content is the same text, whatever their titles; 64 hex digits."""
    return hashlib.sha256(normal(item.content).encode("utf-8", "replace")).hexdigest()


def titles_near(one: str, other: str, distance: int) -> bool:
    """Whether two titles are fewer than `distance` edits apart (Levenshtein). Other numbers make another title."""
    from rapidfuzz.distance import Levenshtein

    one, other = normal(one), normal(other)
    if _NUMBER.findall(one) != _NUMBER.findall(other):  # "square of 12" and "square of 13" are one edit apart
        return False
    return Levenshtein.distance(one, other, score_cutoff=distance - 1) < distance
