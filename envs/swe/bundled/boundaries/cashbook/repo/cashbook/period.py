"""A stretch of days."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Period:
    start: date
    end: date

    @classmethod
    def of(cls, start, end):
        """From dates, or from text such as 2024-03-01."""
        return cls(*(day if isinstance(day, date) else date.fromisoformat(day) for day in (start, end)))

    def __contains__(self, day):
        return self.start < day <= self.end

    def __str__(self):
        return f"{self.start} .. {self.end}"

    @property
    def days(self):
        return (self.end - self.start).days
