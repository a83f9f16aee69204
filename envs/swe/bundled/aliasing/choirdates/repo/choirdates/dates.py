"""One evening of the choir."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, timedelta


@dataclass
class Date:
    day: date
    kind: str
    programme: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    drivers: dict[str, list[str]] = field(default_factory=dict)

    def moved(self, days: int) -> Date:
        """The same some days later."""
        return replace(self, day=self.day + timedelta(days=days))

    def seats(self) -> int:
        """How many still fit into the cars, at four a car."""
        return sum(4 - len(riders) for riders in self.drivers.values())
