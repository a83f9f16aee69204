"""Retrieval by a policy, with what its options add to it (core/memory/policies/base.py).

corrections_first, other_languages_by_words and ignore_preamble are the same for every policy, so that none has to know
of them. Without them the ranking is the policy's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import takewhile

from core.memory.filter import Filter
from core.memory.lexical import has_no_blanks, terms, words_of
from core.memory.long_texts import LONG, own_part
from core.memory.ports import Bank, Policy
from core.memory.protocol import hits_of
from core.memory.records import source_of
from core.memory.store.hits import newest_first, newest_of_equals
from core.types import Lesson, Scored

SAME_TEXT = 0.999999  # cosine of a text with itself
MORE = 50  # further records that a long query is compared with
TIED, MOST_TIED = 8, 1000  # further records, which may be as good as the last one that is asked for


def ranked(
    bank: Bank, policy: Policy, query: str, top_k: int, exclude_task: str | None, where: Filter | None
) -> list[Scored]:
    """The policy's ranking with its options, and no source more often than it may."""
    rank = _corrected if policy.corrections_first else _ranking
    asked = partial(rank, bank, policy, query, exclude_task=exclude_task, where=where)
    if policy.per_source is None:
        return asked(top_k)
    wanted = top_k
    while True:
        hits = asked(wanted)
        kept = _limited(hits, policy.per_source, policy.source)
        if len(kept) >= top_k or len(hits) < wanted:
            return kept[:top_k]
        wanted *= 4


def _limited(hits: list[Scored], most: int, by: str) -> list[Scored]:
    """The hits without those of a source that has `most` before them. by: see `source_of`."""
    counts: Counter[str] = Counter()
    kept = []
    for hit in hits:
        counts[source := source_of(hit.record, by)] += 1
        if counts[source] <= most or not source:
            kept.append(hit)
    return kept


def _corrected(
    bank: Bank, policy: Policy, query: str, top_k: int, exclude_task: str | None, where: Filter | None
) -> list[Scored]:
    """The policy's ranking, with each record that corrects an older one before it."""
    rank = partial(_ranking, bank, policy, query, exclude_task=exclude_task, where=where)
    hits, known = rank(top_k), set()
    while pairs := bank.corrections([hit.record.id for hit in hits]) - known:
        known |= pairs
        if missing := {newer for newer, _ in pairs} - {hit.record.id for hit in hits}:
            hits += _hits_of(missing, rank, top_k, _size(bank, where))
    return newest_first(hits, known)[:top_k]


def _hits_of(ids: set[str], rank: Callable[[int], list[Scored]], top_k: int, most: int) -> list[Scored]:
    """The hits of these records, below the top_k; of as few as hold all of them, and at most of `most`."""
    while True:
        top_k = min(max(8 * top_k, MORE), max(most, top_k))
        found = [hit for hit in rank(top_k) if hit.record.id in ids]
        if top_k >= most or {hit.record.id for hit in found} == ids:
            return found


def _ranking(
    bank: Bank, policy: Policy, query: str, top_k: int, exclude_task: str | None, where: Filter | None
) -> list[Scored]:
    """The policy's ranking; by words if it says so of the query's language.

    If no record shares a word with such a query, the policy ranks after all, but nothing can reach a threshold.
    """
    if policy.by_meaning and not bank.embedder.reads(query):
        bank.say_unread()
        if by_words := policy.other_languages_by_words:
            bank.counts.update(("retrieved by words", f"retrieved by words of {bank.namespace}"))
    else:
        by_words = policy.by_words and has_no_blanks(query)
    if by_words:
        found = bank.lexical(query, top_k, exclude_task, policy.within(where), parts=True)
        if found or not policy.by_meaning or policy.min_score is not None:
            return found
    hits = _by_policy(bank, policy, query, top_k, exclude_task, where)
    is_long = policy.ignore_preamble and policy.by_meaning and len(query) >= LONG
    if not is_long or not hits or hits[0].record.original_query == query:
        return hits
    return _of_long_text(bank, policy, query, top_k, exclude_task, where)


def _by_policy(
    bank: Bank, policy: Policy, query: str, top_k: int, exclude_task: str | None, where: Filter | None
) -> list[Scored]:
    """The policy's own ranking; with corrections_first the newer of equals stands first."""
    if not policy.corrections_first:
        return hits_of(policy, "rank", policy.rank(bank, query, top_k, exclude_task, where))
    wanted = top_k
    while True:
        wanted += TIED
        hits = hits_of(policy, "rank", policy.rank(bank, query, wanted, exclude_task, where))
        if len(hits) < wanted or hits[-1].score < hits[top_k - 1].score or wanted >= MOST_TIED:
            return newest_of_equals(hits)[:top_k]
        wanted *= 4


def _size(bank: Bank, where: Filter | None) -> int:
    """Number of records that a search may look at: in its own namespace none of the others'."""
    own = where is None or (not where.everyone and where.namespace in (None, bank.namespace))
    return sum(bank.statuses().values()) if own else len(bank)


def _of_long_text(
    bank: Bank, policy: Policy, query: str, top_k: int, exclude_task: str | None, where: Filter | None
) -> list[Scored]:
    """The ranking for a long query: by the part of it that others do not have, ties by words.

    The records are those that reach min_score with the whole query or with that part.
    """
    hits = _by_policy(bank, policy, query, top_k + MORE, exclude_task, where)
    if own := own_part(query, [hit.record.original_query for hit in hits]):
        known = {_place(hit): hit for hit in hits}
        unbound = copy(policy)
        unbound.min_score = None
        ranked = unbound.rank(bank, own, top_k + MORE, exclude_task, where)
        ranked = [known.pop(_place(hit), hit) for hit in ranked if _place(hit) in known or policy.good_enough([hit])]
        hits = ranked + list(known.values())
    tied = _tied(hits)
    asked = set(terms(words_of(own or query)))
    tied.sort(key=lambda hit: -len(asked.intersection(terms(words_of(hit.record.original_query)))))
    return (tied + hits[len(tied) :])[:top_k]


def _place(hit: Scored) -> tuple[str, str, tuple[Lesson, ...]]:
    """What a hit is of: with unit=item several are of one record."""
    return hit.record.namespace, hit.record.id, hit.record.items


def _tied(hits: list[Scored]) -> list[Scored]:
    """The first hits, all of the same score, if the embedder takes the query and their keys for the same text."""
    alike = (hit.similarity is not None and hit.similarity >= SAME_TEXT and hit.score == hits[0].score for hit in hits)
    return [hit for hit, _ in zip(hits, takewhile(bool, alike))]
