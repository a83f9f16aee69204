"""The words of a text as SQLite's FTS5 takes them: letters and digits, without case and the accents of Latin letters.

PostgreSQL could do it (words_of in tables.sql, for records that come without their words), at four times an addition's
other work.
"""

from __future__ import annotations

import re
import unicodedata

from core.memory.store.schema import storable
from core.types import MemoryRecord

_ACCENT = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Every word of a text, as often as it stands there."""
    text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", storable(text))))
    return _WORD.findall(text)


def words_of_record(record: MemoryRecord) -> str:
    """The words of its query and its items, with blanks between them."""
    parts = [part for item in record.items for part in (item.title, item.description, item.content)]
    return " ".join(words_of(" ".join((record.original_query, *parts))))
