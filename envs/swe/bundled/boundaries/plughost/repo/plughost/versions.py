"""Versions are compared number by number; 1.2 is 1.2.0."""

from functools import total_ordering


@total_ordering
class Version:
    def __init__(self, text):
        self.text = text
        self.numbers = tuple(int(part) for part in text.split("."))

    @property
    def key(self):
        numbers = self.numbers
        while numbers and numbers[-1] == 0:
            numbers = numbers[:-1]
        return numbers

    def __eq__(self, other):
        return self.key == other.key

    def __lt__(self, other):
        return self.key < other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"Version({self.text!r})"
