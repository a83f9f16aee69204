"""How many lessons a source may give, and what several of one source say together: each alone looks harmless."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from core.memory.hygiene.injection import hints
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

_WORD = re.compile(r"[^\W\d_][\w-]{3,}")


def source_of(record: MemoryRecord, by: str) -> str:
    """Where a record comes from. by: task, namespace, or a name of its provenance; "" where that is not known."""
    known = {"task": record.task_id, "namespace": record.namespace}
    return str(known.get(by, record.provenance.get(by, "")))


def same_source(record: MemoryRecord, bank: MemoryBank, by: str, window: int) -> list[MemoryRecord]:
    """The records of its source among the last `window` of the bank, itself left out, newest first."""
    source = source_of(record, by)
    recent = bank.recent(window, everyone=by == "namespace") if source else []
    return [other for other in recent if other.id != record.id and source_of(other, by) == source]


def burst(record: MemoryRecord, others: list[MemoryRecord], bank: MemoryBank, by: str, least: int) -> list[str]:
    """The ids of the records that lead away from a thing together with this one; [] where they do not.

    They do where at least `least` of one source, this one included, share a word that no other source's lessons hold,
    and all but one of them hint at something else in the thing's place. In a bank with fewer than 3 * least records
    of other sources every word is new, so nothing is found there.

    others   of the same source, as from `same_source`
    """
    together = [record, *(other for other in others if other.parents == ())]
    if len(together) < least or len(bank) - len(others) < 3 * least:
        return []
    words = {one.id: set(_WORD.findall(one.text.lower())) for one in together}
    counts = Counter(word for own in words.values() for word in own)
    for word in sorted(word for word in words[record.id] if counts[word] >= least):
        group = [one for one in together if word in words[one.id]]
        if sum(bool(hints(one.text)) for one in group) >= len(group) - 1 and _is_new(word, bank, record, by):
            return [one.id for one in group if one.id != record.id]
    return []


def _is_new(word: str, bank: MemoryBank, record: MemoryRecord, by: str) -> bool:
    known = bank.lexical(word, 50, everyone=by == "namespace")  # in its own there is no other source
    return all(source_of(hit.record, by) == source_of(record, by) for hit in known)
