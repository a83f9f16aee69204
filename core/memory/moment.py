"""Current time of a bank (stream position or wall clock), and record ages.

`memory.clock=stream` counts positions in the stream of tasks, so that a run repeats exactly; `wall` counts real days.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from core.errors import UserError
from core.types import MemoryRecord

SECONDS_A_DAY = 86_400.0
DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def now() -> str:
    """The time of the wall clock: ISO, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def since(text: str) -> datetime:
    """The time that `7d`, `12h`, `2w` or an ISO date stands for, in UTC. Raises UserError."""
    try:
        if text[-1:] in DAYS:
            return datetime.now(UTC) - timedelta(days=float(text[:-1]) * DAYS[text[-1]])
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UserError(f"--since {text}: give e.g. 7d, 12h, 2w or 2026-01-31.") from None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The current time, read once, so that all records of one ranking or one change are compared with the same time.

    tick   the highest tick of any record of the namespace: the position in its stream of tasks; None on the wall clock
    at     time of the wall clock, UTC
    """

    tick: int | None
    at: datetime

    def age_days(self, record: MemoryRecord, ticks_per_day: float = 1.0) -> float:
        """Days since a record was added. On the stream clock, `ticks_per_day` tasks count as a day.

        0 if its time is missing or unreadable, so that it is not treated as old.
        """
        if self.tick is not None:
            return max(0.0, (self.tick - record.tick) / ticks_per_day)
        added = added_at(record)
        return 0.0 if added is None else max(0.0, (self.at - added).total_seconds() / SECONDS_A_DAY)

    def idle_days(self, record: MemoryRecord, ticks_per_day: float = 1.0) -> float:
        """Days since a record was last used, or since it was added if it was never used."""
        age = self.age_days(record, ticks_per_day)
        if record.last_used is None:
            return age
        a_day = SECONDS_A_DAY if self.tick is None else ticks_per_day
        return min(age, max(self.time - record.last_used, 0) / a_day)

    @property
    def time(self) -> float:
        """The value for a record's `last_used`: the tick, or seconds since 1970."""
        return round(self.at.timestamp(), 3) if self.tick is None else self.tick


def added_at(record: MemoryRecord) -> datetime | None:
    """Time when a record was added, taken as UTC if it has no time zone; None if it is missing or unreadable."""
    try:
        added = datetime.fromisoformat(record.created_at)
    except ValueError:
        return None
    return added if added.tzinfo else added.replace(tzinfo=UTC)


def last_use(record: MemoryRecord) -> datetime | None:
    """Time of a record's last use; falls back to the time added if it was never used, or if last_used is a tick."""
    added, used = added_at(record), None
    if record.last_used is not None:
        try:
            used = datetime.fromtimestamp(record.last_used, UTC)
        except (ValueError, OverflowError, OSError):  # no number of seconds
            used = None
    return max(filter(None, (added, used)), default=None)
