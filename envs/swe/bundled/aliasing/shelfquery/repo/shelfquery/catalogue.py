"""The catalogue."""

from shelfquery.match import matches
from shelfquery.remember import Remembered


class Catalogue:
    def __init__(self, rows):
        self.rows = list(rows)
        self.find = Remembered(self.search)

    def search(self, **words):
        """The rows that match, in the order of the shelf."""
        return [row for row in self.rows if matches(row, **words)]

    def add(self, row):
        self.rows.append(row)
        self.find.forget()

    def copies(self):
        return sum(row["copies"] for row in self.rows)
