"""How old a record is, on the clock that a run chooses.

`memory.clock=stream` counts positions in the stream of tasks, so that a run repeats exactly; `wall` counts real days.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

SECONDS_A_DAY = 86_400.0


def now() -> str:
    """Wall clock, ISO, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def ages(bank: MemoryBank, ticks_per_day: float = 1.0) -> Callable[[MemoryRecord], float]:
    """age(record) in days on the bank's clock; the present is read once, so that one ranking sees one present."""
    if bank.clock == "wall":
        present = datetime.now(UTC)
        return lambda record: wall_age(record, present)
    tick = bank.tick()
    return lambda record: stream_age(record, tick, ticks_per_day)


def stream_age(record: MemoryRecord, tick: int, ticks_per_day: float = 1.0) -> float:
    """Days since the record was made, where `ticks_per_day` tasks are a day and the stream stands at `tick`."""
    return max(0.0, (tick - record.tick) / ticks_per_day)


def wall_age(record: MemoryRecord, present: datetime) -> float:
    """Days since the record was added. 0 where its time is missing or unreadable: then it is not known to be old."""
    try:
        added = datetime.fromisoformat(record.created_at)
    except ValueError:
        return 0.0
    added = added if added.tzinfo else added.replace(tzinfo=UTC)
    return max(0.0, (present - added).total_seconds() / SECONDS_A_DAY)
