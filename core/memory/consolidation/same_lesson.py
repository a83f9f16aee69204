"""Whether two lessons are the same by their texts alone."""

from __future__ import annotations

import hashlib
import re

from core.memory.store.filter import normalised
from core.types import Lesson

_NUMBER = re.compile(r"\d+")


def content_hash(lesson: Lesson) -> str:
    """Equal for lessons whose content is the same text, whatever their titles; 64 hex digits."""
    return hashlib.sha256(normalised(lesson.content).encode("utf-8", "replace")).hexdigest()


def titles_near(one: str, other: str, distance: int) -> bool:
    """Whether two titles are fewer than `distance` edits apart (Levenshtein) and hold the same numbers."""
    from rapidfuzz.distance import Levenshtein

    one, other = normalised(one), normalised(other)
    if _NUMBER.findall(one) != _NUMBER.findall(other):  # such as "square of 12" and "square of 13"
        return False
    return Levenshtein.distance(one, other, score_cutoff=distance - 1) < distance
