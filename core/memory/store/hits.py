"""What a search finds, whatever searched: places in the bank, and the records there."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from core.types import MemoryRecord, Scored

# The texts that a record's items are found by; with memory.key=both title, tags and content, in windows.

WINDOW = 800  # characters of content: with the title some 250 word pieces, as many as MiniLM reads (256)
WRAP = textwrap.TextWrapper(width=WINDOW, expand_tabs=False, replace_whitespace=False, drop_whitespace=False)
PLACES = 1000  # an item's place and which of its windows, as one number: place + PLACES * window


def item_texts(record: MemoryRecord, key: str) -> list[tuple[int, str]]:
    """(place, text) of all that a record's items are found by with memory.key=item or both."""
    return windows(record) if key == "both" else [(place, item.text) for place, item in enumerate(record.items)]


def windows(record: MemoryRecord) -> list[tuple[int, str]]:
    """(place + PLACES * window, text) of all items: each window under the title, the tags and the description."""
    found = []
    for place, item in enumerate(record.items):
        head = f"{item.title} ({', '.join(record.tags)})" if record.tags else item.title
        parts = WRAP.wrap(item.content) or [""]
        texts = [f"{head}\n{item.description}\n{part}" for part in parts[:PLACES]]
        found += [(place + PLACES * number, text) for number, text in enumerate(texts)]
    return found


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
