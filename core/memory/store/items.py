"""The texts that a record's items are found by.

With memory.key=item an item is found by its text; with memory.key=both by its title, the record's tags and its content,
window by window.
"""

from __future__ import annotations

import textwrap

from core.types import MemoryRecord

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
