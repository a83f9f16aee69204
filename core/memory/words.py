"""Comparison of texts by their words, where embeddings say nothing: in any language, in process, without an index."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from core.types import MemoryRecord, Scored

# Scripts that put no blanks between words: their texts are compared by pairs of neighbouring characters. So are those
# in Hangul, where particles are written together with short words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PAIRED = f"{_UNSPACED}\uac00-\ud7af"
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"  # written with letters, but for Python no part of a word
_TERM = rf"[{_PAIRED}]+|(?:[^\W_{_PAIRED}]|[{_MARKS}])+"
_RUN = rf"[{_UNSPACED}]+"
_PAIRS = rf"[{_PAIRED}]+"
PART = 4  # characters of the parts of words in other scripts: inflected forms of a word share some of them


@lru_cache(maxsize=16_384)  # the texts of a bank, which each query is compared with
def terms(text: str) -> frozenset[str]:
    """The words of a text and their parts of 4 characters; of scripts without blanks between words those of 2."""
    found: set[str] = set()
    for term in re.findall(_TERM, unicodedata.normalize("NFKC", text).lower()):
        size = 2 if re.match(_PAIRS, term) else PART
        found.add(term)
        found.update(term[at : at + size] for at in range(len(term) - size + 1))
    return frozenset(found)


def has_no_blanks(text: str) -> bool:
    """Whether a text holds a script without blanks between words, of which a full-text index knows whole sentences."""
    return re.search(_RUN, text) is not None


def word_shares(query: str, texts: list[str]) -> list[float]:
    """The share of a query's words that each text has, in [0, 1]; words that few of the texts have weigh more."""
    found = [terms(text) for text in texts]
    asked, count = sorted(terms(query)), Counter(term for text in found for term in text)
    weight = {term: math.log(1 + (len(found) + 1) / (count[term] + 0.5)) for term in asked}
    most = sum(weight.values()) or 1.0
    return [round(sum(weight[term] for term in asked if term in text) / most, 6) for text in found]


def ranked_by_words(
    query: str, hits: Iterable[Scored], further: Iterable[tuple[MemoryRecord, Scored]] = ()
) -> list[Scored]:
    """The hits that share a word with a query, by `word_shares` of query and lessons; ties keep their order.

    Their similarity is None: it was not measured.

    further   (another record, the hit that its words find, too)
    """
    found = [(hit.record, hit) for hit in hits]
    found += further
    shares = word_shares(query, [f"{record.original_query} {record.text}" for record, _ in found])
    best: dict[tuple, tuple[float, Scored]] = {}
    for share, (_, hit) in zip(shares, found, strict=True):
        place = hit.record.namespace, hit.record.id, hit.record.items
        if share > best.get(place, (0.0, hit))[0]:
            best[place] = share, hit
    pairs = sorted(best.values(), key=lambda pair: -pair[0])
    return [replace(hit, score=share, similarity=None) for share, hit in pairs]
