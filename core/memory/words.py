"""Comparison of texts by their words, where embeddings say nothing: in any language, in process, without an index."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from core.types import Scored

# Scripts that put no blanks between words: their texts are compared by pairs of neighbouring characters.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TERM = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_RUN = re.compile(rf"[{_UNSPACED}]+")


def terms(text: str) -> set[str]:
    """The words of a text; of scripts without blanks between words the pairs of neighbouring characters."""
    found: set[str] = set()
    for term in _TERM.findall(unicodedata.normalize("NFKC", text).lower()):
        if _RUN.match(term) and len(term) > 2:
            found.update(term[at : at + 2] for at in range(len(term) - 1))
        else:
            found.add(term)
    return found


def ranked_by_words(query: str, hits: Iterable[Scored], *, queries_only: bool = False) -> list[Scored]:
    """The hits that share a word with a query, best first; ties keep their order.

    The score, in [0, 1], is the share of the query's words that a record has, rare words weighing more. Their
    similarity is None: it was not measured.

    queries_only   compare with the records' queries alone, not with their lessons
    """
    found = list(hits)
    texts = [
        terms(h.record.original_query if queries_only else f"{h.record.original_query} {h.record.text}") for h in found
    ]
    asked, count = terms(query), Counter(term for text in texts for term in text)
    weight = {term: math.log(1 + (len(found) + 1) / (count[term] + 0.5)) for term in asked}
    most = sum(weight[term] for term in sorted(asked)) or 1.0
    scores = [round(sum(weight[term] for term in sorted(asked & text)) / most, 6) for text in texts]
    pairs = sorted(zip(scores, found, strict=True), key=lambda pair: -pair[0])
    return [replace(hit, score=score, similarity=None) for score, hit in pairs if score > 0]
