"""What it makes of a record that an agent was shown it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.memory.consolidation.confidence import Confidence
from core.memory.store.clock import clock_time, idles
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


def after_use(
    bank: MemoryBank, label: str | None, *, confidence: Confidence | None, ticks_per_day: float = 1.0
) -> Callable[[MemoryRecord, int], dict[str, Any]]:
    """fields(record, shown): the new fields of one that was shown to an agent whose attempt was judged `label`.

    The present is read once, so that all records of one change see one. shown is how often it was shown; 0: that was
    counted before.

    label           success | failure, None: not yet judged
    confidence      its arithmetic, where the bank keeps it
    ticks_per_day   of a clock that counts tasks
    """
    idle, at = idles(bank, ticks_per_day), clock_time(bank)

    def fields(record: MemoryRecord, shown: int) -> dict[str, Any]:
        n_success = record.n_used_success + (label == "success")
        counted = {"n_used": max(record.n_used + shown, n_success), "n_used_success": n_success}
        if confidence is not None:
            counted["confidence"] = confidence.after_use(record, idle(record), label)
        return counted | {"last_used": at}

    return fields
