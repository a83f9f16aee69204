"""The present of a bank, on the clock that a run chooses, and how old records are then.

`memory.clock=stream` counts positions in the stream of tasks, so that a run repeats exactly; `wall` counts real days.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from core.types import MemoryRecord

SECONDS_A_DAY = 86_400.0


def now() -> str:
    """Wall clock, ISO, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The present, read once, so that one ranking, or one change of several records, sees one present.

    tick   the highest of any record: where the stream of tasks stands; None on the wall clock
    at     UTC
    """

    tick: int | None
    at: datetime

    def age_days(self, record: MemoryRecord, ticks_per_day: float = 1.0) -> float:
        """Days since a record was made; where the clock is the stream, `ticks_per_day` tasks are a day."""
        return wall_age(record, self.at) if self.tick is None else stream_age(record, self.tick, ticks_per_day)

    def idle_days(self, record: MemoryRecord, ticks_per_day: float = 1.0) -> float:
        """Days since a record was last used, or since it was made if it never was."""
        age = self.age_days(record, ticks_per_day)
        if record.last_used is None:
            return age
        a_day = SECONDS_A_DAY if self.tick is None else ticks_per_day
        return min(age, max(self.time - record.last_used, 0) / a_day)

    @property
    def time(self) -> float:
        """What `last_used` of a record is set to: the tick, or seconds since 1970."""
        return round(self.at.timestamp(), 3) if self.tick is None else self.tick


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
