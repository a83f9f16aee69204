"""What it makes of a record that an agent was shown it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.memory.moment import Moment
from core.memory.ports import ConfidenceRule
from core.types import MemoryRecord


def after_use(
    moment: Moment, label: str | None, *, confidence: ConfidenceRule | None, ticks_per_day: float = 1.0
) -> Callable[[MemoryRecord, int], dict[str, Any]]:
    """fields(record, shown): the new fields of one that was shown to an agent whose attempt was judged `label`.

    shown is how often it was shown; 0: that was counted before.

    moment          the present of the bank, one for all records of a change
    label           success | failure, None: not yet judged
    confidence      its arithmetic, where the bank keeps it
    ticks_per_day   of a clock that counts tasks
    """

    def fields(record: MemoryRecord, shown: int) -> dict[str, Any]:
        n_success = record.n_used_success + (label == "success")
        counted = {"n_used": max(record.n_used + shown, n_success), "n_used_success": n_success}
        if confidence is not None:
            idle_days = moment.idle_days(record, ticks_per_day)
            counted["confidence"] = confidence.after_use(record, idle_days, label)
        return counted | {"last_used": moment.time}

    return fields
