"""Reads a carrier's table."""

from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True)
class Step:
    """A price for a range of weights, in grams."""

    low: int
    high: int
    price: Decimal

    def fits(self, grams):
        return self.low < grams < self.high


@dataclass
class Table:
    zones: dict = field(default_factory=dict)
    extras: dict = field(default_factory=dict)


def read_table(text):
    table, steps = Table(), None
    for line in filter(None, map(str.strip, text.splitlines())):
        word, *rest = line.split()
        if word == "zone":
            steps = table.zones.setdefault(rest[0], [])
        elif word == "extra":
            table.extras[rest[0]] = Decimal(rest[1])
        else:
            steps.append(Step(int(word), int(rest[0]), Decimal(rest[1])))
    return table
