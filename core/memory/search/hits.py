"""What a search finds, whatever searched: places in the bank, and the records there."""

from __future__ import annotations

from dataclasses import replace

from core.memory.search.texts import PLACES
from core.types import MemoryRecord, Scored

Hit = tuple[int, int, float]  # (rowid, an item's place or -1, score); a place as in texts.py


def with_records(hits: list[Hit], records: dict[int, MemoryRecord], unit: str, *, by_words: bool) -> list[Scored]:
    """Hits with their records; those whose record was removed since are left out.

    unit       "record", or "item": each hit holds one item alone, and all items of a record are hits of their own
    by_words   the scores are no cosines
    """
    found = []
    for rowid, place, score in hits:
        if rowid not in records:
            continue
        hit = Scored(record=records[rowid], score=score, similarity=None if by_words else score)
        if unit == "record":
            found.append(hit)
            continue
        items = hit.record.items if place < 0 else (hit.record.items[place % PLACES],)
        found += [replace(hit, record=replace(hit.record, items=(item,))) for item in items]
    return found


def best_of_each(hits: list[Hit]) -> list[Hit]:
    """Of several hits of one record the first."""
    found: dict[int, Hit] = {}
    for hit in hits:
        found.setdefault(hit[0], hit)
    return list(found.values())


def each_item_once(hits: list[Scored]) -> list[Scored]:
    """Of several hits of one item, as unit=item has them, the first."""
    found: dict[tuple, Scored] = {}
    for hit in hits:
        found.setdefault((hit.record.namespace, hit.record.id, hit.record.items), hit)
    return list(found.values())
