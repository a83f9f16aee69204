"""How old a record is, on the clock that a run chooses.

`memory.clock=stream` counts positions in the stream of tasks, so that a run repeats exactly; `wall` counts real days.
"""

from __future__ import annotations

import time
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


def clock_time(bank: MemoryBank) -> float:
    """The present by the bank's clock: the stream's tick, or seconds since 1970. `last_used` is set to it."""
    return bank.tick() if bank.clock == "stream" else round(time.time(), 3)


def idles(bank: MemoryBank, ticks_per_day: float = 1.0) -> Callable[[MemoryRecord], float]:
    """idle(record): days of the bank's clock since it was last used, or since it was made if it never was."""
    age, at = ages(bank, ticks_per_day), clock_time(bank)
    a_day = ticks_per_day if bank.clock == "stream" else SECONDS_A_DAY

    def idle(record: MemoryRecord) -> float:
        return age(record) if record.last_used is None else min(age(record), max(at - record.last_used, 0) / a_day)

    return idle


def added_at(record: MemoryRecord) -> datetime | None:
    """When a record was added, UTC where its time names no zone; None where it is missing or unreadable."""
    try:
        added = datetime.fromisoformat(record.created_at)
    except ValueError:
        return None
    return added if added.tzinfo else added.replace(tzinfo=UTC)


def last_use(record: MemoryRecord) -> datetime | None:
    """When a record was last used; when it was added, if it never was or if that was counted in ticks of a stream."""
    added, used = added_at(record), None
    if record.last_used is not None:
        try:
            used = datetime.fromtimestamp(record.last_used, UTC)
        except (ValueError, OverflowError, OSError):  # no number of seconds
            used = None
    return max(filter(None, (added, used)), default=None)


def stream_age(record: MemoryRecord, tick: int, ticks_per_day: float = 1.0) -> float:
    """Days since the record was made, where `ticks_per_day` tasks are a day and the stream stands at `tick`."""
    return max(0.0, (tick - record.tick) / ticks_per_day)


def wall_age(record: MemoryRecord, present: datetime) -> float:
    """Days since the record was added. 0 where its time is missing or unreadable: then it is not known to be old."""
    added = added_at(record)
    return 0.0 if added is None else max(0.0, (present - added).total_seconds() / SECONDS_A_DAY)
