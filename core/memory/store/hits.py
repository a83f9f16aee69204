"""Search hits, shared by both backends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from core.memory.store.keys import PLACES
from core.types import MemoryRecord, Scored

RowHit = tuple[int, int, float]  # (rowid, place, score), place as in Hit


class Hit(NamedTuple):
    """A RowHit with its record.

    place   the matching item and chunk, as one int (keys.py); -1: the record's query, or a key of another that leads
            to it
    score   cosine; for a search by words BM25
    """

    rowid: int
    place: int
    score: float
    record: MemoryRecord


AnyHit = TypeVar("AnyHit", RowHit, Hit)


def scored(hits: Iterable[Hit], unit: str, *, by_words: bool = False) -> list[Scored]:
    """Hits in the form that the bank returns.

    unit       "record", or "item": each hit's record holds one item; a hit of a whole record gives one hit per item
    by_words   True: scores are BM25, so `similarity` is None
    """
    found = []
    for hit in hits:
        one = Scored(record=hit.record, score=hit.score, similarity=None if by_words else hit.score)
        if unit == "record":
            found.append(one)
            continue
        items = hit.record.items if hit.place < 0 else (hit.record.items[hit.place % PLACES],)
        found += [replace(one, record=replace(hit.record, items=(item,))) for item in items]
    return found


def in_order(hits: Iterable[AnyHit]) -> list[AnyHit]:
    """Sort hits: best first, ties to the oldest."""
    return sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1]))


def best_of_each(hits: Iterable[AnyHit], *, by_place: bool = False) -> list[AnyHit]:
    """Keep the first hit of each record, or of each of its places."""
    found: dict[Any, AnyHit] = {}
    for hit in hits:
        found.setdefault(hit[:2] if by_place else hit[0], hit)
    return list(found.values())


def each_item_once(hits: list[Scored]) -> list[Scored]:
    """Keep the first hit of each item. hits: as unit=item returns them."""
    found: dict[tuple, Scored] = {}
    for hit in hits:
        found.setdefault((hit.record.namespace, hit.record.id, hit.record.items), hit)
    return list(found.values())


def newest_of_equals(hits: list[Scored]) -> list[Scored]:
    """The hits in their order, but of neighbours with the same score the one that was added last first."""
    ordered: list[Scored] = []
    for _, tied in groupby(hits, key=lambda hit: round(hit.score, 6)):
        newest = list(tied)[::-1]  # a policy lists equals oldest first, and a record's time is in whole seconds
        ordered += sorted(newest, key=lambda hit: hit.record.created_at, reverse=True)
    return ordered


def newest_first(hits: list[Scored], corrections: set[tuple[str, str]]) -> list[Scored]:
    """The hits in their order, but each before those that it corrects. corrections: (newer, older) ids."""
    ordered: list[Scored] = []
    for hit in hits:
        corrected = (n for n, other in enumerate(ordered) if (hit.record.id, other.record.id) in corrections)
        ordered.insert(next(corrected, len(ordered)), hit)
    return ordered
