"""Whether two lessons with nearly the same embedding say the same, or one may correct the other.

An embedding hardly sees a number, a name or a negation: "listens on port 8443" and "listens on port 8444" have a cosine
of 0.98. What such a difference means only a reader knows. So two lessons count as the same only if their words are the
same in the same order, but for case, the endings of English and the words in `FUNCTION_WORDS`.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from core.types import Lesson

# Words that no correction is made of: none negates, counts, or says where, when, whether or how often.
FUNCTION_WORDS = frozenset(
    "a an the that it its it's is are was were be been being am do does did has have had please simply of".split()
)
SHARED = 0.5  # share of common words from which one lesson may be the other with something exchanged
_AROUND = "\"'`“”‘’«»„*", "\"'`“”‘’«»„*.,;:…。，、；："  # of a word: quotes and emphasis, and where a clause ends
_PLAIN = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")  # else a number, a flag, a path, a sign: every letter counts
_IDENTIFIER = re.compile(r"\w*[^\W\d_][A-Z]\w*")  # capitals after the first letter: an abbreviation, camelCase
_ENDINGS = (("s", 3), ("es", 3), ("d", 3), ("ed", 4), ("ing", 4), ("'s", 1), ("’s", 1))  # and letters that must be left


def difference(one: Lesson, other: Lesson) -> str | None:
    """What differs in two lessons that are near by embedding: words that only one has, or "order". None: nothing."""
    a, b = content_words(_body(one)), content_words(_body(other))
    mine, theirs = facts(one.text), facts(other.text)  # a title may hold the number that was corrected
    if len(a) == len(b) and all(map(_same, a, b)) and mine == theirs:
        return None
    only = [word for word, n in (Counter(a) - Counter(b) + (Counter(b) - Counter(a))).items() if n > 0]
    return ", ".join(sorted({*only, *(mine ^ theirs)})[:6]) or "order"


def may_correct(one: Lesson, other: Lesson) -> bool:
    """Whether one lesson may correct the other: they differ, and share most words, or each has a fact of its own."""
    if difference(one, other) is None:
        return False
    a, b = set(content_words(_body(one))), set(content_words(_body(other)))
    common = sum(any(_same(mine, theirs) for theirs in b) for mine in a)
    mine, theirs = facts(one.text), facts(other.text)
    return common >= SHARED * max(len(a), len(b)) or bool(mine - theirs and theirs - mine)


@lru_cache(maxsize=4_096)  # each lesson of a round is compared with many others
def content_words(text: str) -> tuple[str, ...]:
    """The words of a text in their order, plain ones in lower case, without function words."""
    words = [word for each in text.split() if (word := each.lstrip(_AROUND[0]).rstrip(_AROUND[1]))]
    found = []
    for word, after in zip(words, [*words[1:], ""]):
        if not _is_plain(word):
            found.append(word)
        elif word.lower() not in FUNCTION_WORDS or (len(word) == 1 and not _is_plain(after)):  # a variable: a > b
            found.append(word.lower())
    return tuple(found)


@lru_cache(maxsize=4_096)
def facts(text: str) -> frozenset[str]:
    """What is no plain word in a text: numbers, flags, paths, identifiers, signs of a formula."""
    return frozenset(word for word in content_words(text) if not _is_plain(word))


def _is_plain(word: str) -> bool:
    return bool(_PLAIN.fullmatch(word)) and not _IDENTIFIER.fullmatch(word)


def _body(lesson: Lesson) -> str:
    """What a lesson says: titles are worded anew more freely than anything else."""
    return next(filter(str.strip, (lesson.content, lesson.description, lesson.title)), "")


def _same(one: str, other: str) -> bool:
    return one == other or (_is_plain(one) and _is_plain(other) and not _bases(one).isdisjoint(_bases(other)))


@lru_cache(maxsize=16_384)
def _bases(word: str) -> set[str]:
    """The forms without an ending of English of which a word may be one."""
    cut = {word.removesuffix(end) for end, least in _ENDINGS if word.endswith(end) and len(word) - len(end) >= least}
    if word.endswith(("ing", "ies")) and len(word) > 4:  # using, queries
        cut.add(word[:-3] + ("e" if word.endswith("ing") else "y"))
    return {word} | cut
