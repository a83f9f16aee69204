"""The texts that are embedded for a record's items.

With memory.key=item: the item's text. With memory.key=both: one text for each chunk of its content, headed by title,
tags and description.
"""

from __future__ import annotations

import textwrap

from core.types import MemoryRecord

WINDOW = 800  # characters of a chunk: with the title about 250 word pieces; MiniLM reads 256
WRAP = textwrap.TextWrapper(width=WINDOW, expand_tabs=False, replace_whitespace=False, drop_whitespace=False)
PLACES = 1000  # encodes (item index, chunk index) as one int, `place`: item index + PLACES * chunk index


def item_texts(record: MemoryRecord, key: str) -> list[tuple[int, str]]:
    """(place, text) of all texts to embed for a record's items. key: item | both."""
    return windows(record) if key == "both" else [(place, item.text) for place, item in enumerate(record.items)]


def windows(record: MemoryRecord) -> list[tuple[int, str]]:
    """(place, text) of each chunk of all items, headed by title, tags and description."""
    found = []
    for place, item in enumerate(record.items):
        head = f"{item.title} ({', '.join(record.tags)})" if record.tags else item.title
        parts = WRAP.wrap(item.content) or [""]
        texts = [f"{head}\n{item.description}\n{part}" for part in parts[:PLACES]]
        found += [(place + PLACES * number, text) for number, text in enumerate(texts)]
    return found
