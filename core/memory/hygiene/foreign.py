"""Finds lessons that repeat what their attempt only read in foreign text: a page, a mail, an issue of a stranger.

Whoever writes a page that an agent opens can put a lesson into its memory (Greshake et al. 2023, arXiv:2302.12173).
The wording of the lesson does not matter here, only where its words stood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from core.memory.protocol import Steps

EVERY = "*"  # in `Guard.foreign`: what any action brought back is foreign
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")  # scripts without blanks: by character
_PART = re.compile(r"(?<=[.!?:;])\s+|(?<=[。！？；])|\n+")
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")
_SHORTEST = 20  # min. characters of a sentence that is compared alone
_STEM = 6  # characters of a word that are compared, so that "moves" is found in "moved"
_FEWEST = 3  # words of a lesson's sentence; of a shorter one half is too easily shared by chance
_EMPTY = frozenset(
    "a an and are as at be been before but by can do for from had has have if in into is it its must no not of on one "
    "or should so such that the them then there these they this those to was were when which while who will with would "
    "you your".split()
)


def foreign_texts(did: Steps, actions: Sequence[str]) -> list[str]:
    """What the attempt read by actions that contain one of these words, in any case. actions: words, or EVERY.

    What was seen before the first action is the task's own, and what came back from the action that ended the attempt
    is the environment's verdict: good lessons repeat it, and no page of a stranger is one.
    """
    named = re.compile("|".join(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in actions) or r"(?!)", re.I)
    read = (step for step in did if step.action and not step.ended)
    return [step.observation for step in read if EVERY in actions or named.search(step.action)]


def share_of(text: str, foreign: Iterable[str], own: Iterable[str]) -> float:
    """The largest share of a lesson's sentence, in words, that stood in one sentence of a foreign text; 0 to 1.

    own   texts whose words count neither way: the task, and the actions of the attempt
    """
    known = _stems(" ".join(own))
    said = [words for part in sentences(text) if len(words := _stems(part) - known) >= _FEWEST]
    every = set().union(*said)
    read = {frozenset(_stems(part) & every) for seen in foreign for part in _PART.split(seen)}
    return max((len(words & part) / len(words) for words in said for part in read), default=0.0)


def sentences(text: str) -> list[str]:
    """The whole text and its sentences, because what was read may be one sentence in a good lesson."""
    parts = [part.strip() for part in _SENTENCE.split(text)]
    return list(dict.fromkeys([text.strip(), *(part for part in parts if len(part) >= _SHORTEST)]))


def _stems(text: str) -> set[str]:
    return {word[:_STEM] for word in _WORD.findall(text.lower()) if word not in _EMPTY}
