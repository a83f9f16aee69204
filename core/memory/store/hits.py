"""What a search finds, whatever searched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from core.memory.store.items import PLACES
from core.types import MemoryRecord, Scored

Place = tuple[int, int, float]  # (rowid, an item's place or -1, score); a place as in items.py


class Hit(NamedTuple):
    """A place in the bank and the record there.

    place   of an item and which of its windows (items.py); -1: the record as a whole
    score   a cosine, or of a search by words its BM25
    """

    rowid: int
    place: int
    score: float
    record: MemoryRecord


AnyHit = TypeVar("AnyHit", Place, Hit)


def scored(hits: Iterable[Hit], unit: str, *, by_words: bool = False) -> list[Scored]:
    """Hits as the bank gives them out.

    unit       "record", or "item": each hit holds one item alone, and all items of a record are hits of their own
    by_words   the scores are no cosines
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
    """Best first, ties to the oldest."""
    return sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1]))


def best_of_each(hits: Iterable[AnyHit]) -> list[AnyHit]:
    """Of several hits of one record the first."""
    found: dict[int, AnyHit] = {}
    for hit in hits:
        found.setdefault(hit[0], hit)
    return list(found.values())


def each_item_once(hits: list[Scored]) -> list[Scored]:
    """Of several hits of one item, as unit=item has them, the first."""
    found: dict[tuple, Scored] = {}
    for hit in hits:
        found.setdefault((hit.record.namespace, hit.record.id, hit.record.items), hit)
    return list(found.values())
