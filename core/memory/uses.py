"""Updates a record's usage counters and confidence after it was shown to an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.memory.moment import Moment
from core.memory.ports import ConfidenceRule
from core.types import MemoryRecord


def after_use(
    moment: Moment, label: str | None, *, confidence: ConfidenceRule | None, ticks_per_day: float = 1.0
) -> Callable[[MemoryRecord, int], dict[str, Any]]:
    """Returns a function fields(record, shown) -> {field: new value} for `Change.update_usage`.

    Its argument `shown` is how often the record was shown; 0: the showings were counted before.

    moment          current time of the bank, the same for all records of a change
    label           judge's label of the attempt: success | failure; None: not judged yet
    confidence      rule for the confidence; None: the bank keeps no confidence
    ticks_per_day   tasks that count as a day, on the stream clock
    """

    def fields(record: MemoryRecord, shown: int) -> dict[str, Any]:
        n_success = record.n_used_success + (label == "success")
        counted: dict[str, Any] = {"n_used": max(record.n_used + shown, n_success), "n_used_success": n_success}
        if confidence is not None:
            idle_days = moment.idle_days(record, ticks_per_day)
            counted["confidence"] = confidence.after_use(record, idle_days, label)
        return counted | {"last_used": moment.time}

    return fields
