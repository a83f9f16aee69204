"""What distinguishes a long query from others, where clients put the same preamble around every task."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

LONG = 500  # characters from which a text may consist of more than a task
LEAST_COMMON = 0.3  # share of a query's characters that it has in common with others, below which it is searched whole
_SENTENCE = re.compile(r"\s*\n\s*|(?<=[.!?;:\u3002\uff01\uff1f])\s*(?=\S)")


def own_part(query: str, keys: Iterable[str]) -> str | None:
    """The sentences of a query that are not in several of the records' queries; None: it has no such preamble.

    keys   the queries of the records that are near to it. Repetitions of one task are not several.
    """
    if len(query) < LONG:
        return None
    said = _sentences(query)
    asked, rests = set(said), defaultdict(set)
    for key in keys:
        of_key = set(_sentences(key))
        rest = frozenset(of_key - asked)
        for sentence in asked & of_key:
            rests[sentence].add(rest)
    common = {sentence for sentence, different in rests.items() if len(different - {frozenset()}) > 1}
    own = [sentence for sentence in said if sentence not in common]
    if not own or sum(map(len, said)) - sum(map(len, own)) < LEAST_COMMON * sum(map(len, said)):
        return None
    return "\n".join(own)


def both_ends(text: str, most: int) -> str:
    """At most so many characters of a text: of a longer one beginning and end; a task may stand in either."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}\n{text[len(text) - half :]}"


def _sentences(text: str) -> list[str]:
    return [sentence for part in _SENTENCE.split(text) if (sentence := " ".join(part.split()))]
