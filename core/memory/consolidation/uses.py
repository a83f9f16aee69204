"""What it makes of a record that an agent was shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.memory.consolidation.confidence import Confidence
from core.memory.store.clock import clock_time, idles
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


def after_use(
    bank: MemoryBank,
    record: MemoryRecord,
    label: str | None,
    *,
    confidence: Confidence | None,
    ticks_per_day: float = 1.0,
    shown: int = 1,
) -> dict[str, Any]:
    """The new fields of a record that was shown to an agent whose attempt was judged `label` (None: not yet).

    confidence      its arithmetic, where the bank keeps it
    ticks_per_day   of a clock that counts tasks
    shown           how often it was; 0: that was counted before
    """
    n_success = record.n_used_success + (label == "success")
    fields = {"n_used": max(record.n_used + shown, n_success), "n_used_success": n_success}
    if confidence is not None:
        fields["confidence"] = confidence.after_use(record, idles(bank, ticks_per_day)(record), label)
    return fields | {"last_used": clock_time(bank)}
