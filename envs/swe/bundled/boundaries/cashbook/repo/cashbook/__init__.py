"""A cash book in plain text."""

from cashbook.book import Entry, read_book
from cashbook.period import Period
from cashbook.summary import balance, by_account, report

__all__ = ["Entry", "Period", "balance", "by_account", "read_book", "report"]
