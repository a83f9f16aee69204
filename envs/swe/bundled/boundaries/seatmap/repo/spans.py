"""Neighbouring seats."""

from typing import NamedTuple


class Span(NamedTuple):
    start: int
    end: int

    def covers(self, other):
        return self.start <= other.start and other.end <= self.end

    def meets(self, other):
        """Whether two spans have a seat in common."""
        return self.start <= other.start <= self.end or self.start <= other.end <= self.end

    def __str__(self):
        return f"{self.start} to {self.end}"
