"""A request for leave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from awayboard.holidays import is_holiday


@dataclass(frozen=True)
class Request:
    name: str
    start: date
    end: date

    @classmethod
    def parse(cls, line: str) -> Request:
        name, start, end = (word.strip() for word in line.split(","))
        request = cls(name, date.fromisoformat(start), date.fromisoformat(end))
        if request.end < request.start:
            raise ValueError(f"{name}: {end} is before {start}")
        return request

    def covers(self, day: date) -> bool:
        return self.start <= day <= self.end

    def cost(self) -> int:
        """The days of the allowance that it takes."""
        days = (self.end - self.start).days + 1
        day = self.start
        while day <= self.end:
            days -= is_holiday(day)
            day += timedelta(days=1)
        return days
