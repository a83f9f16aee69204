"""The book: one entry a line."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Entry:
    day: date
    account: str
    cents: int
    remark: str = ""


def read_entry(line):
    day, account, cents, *remark = line.split(maxsplit=3)
    return Entry(date.fromisoformat(day), account, int(cents), "".join(remark))


def read_book(text):
    """The entries of a book, the oldest first."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return sorted((read_entry(line) for line in lines if line), key=lambda entry: entry.day)
