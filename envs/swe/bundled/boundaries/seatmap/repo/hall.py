"""The hall: rows of seats and who has reserved which."""

from spans import Span


class Taken(Exception):
    """Somebody else sits there."""


class Hall:
    def __init__(self, rows):
        """`rows` gives each row's Span of seats: {"A": Span(1, 25)}."""
        self.rows = dict(rows)
        self.parties = {row: {} for row in rows}

    def reserve(self, party, row, start, end):
        wanted = Span(start, end)
        if not self.rows[row].covers(wanted):
            raise ValueError(f"row {row} has no seats {wanted}")
        for other, span in self.parties[row].items():
            if span.meets(wanted):
                raise Taken(f"{other} has {span} in row {row}")
        self.parties[row][party] = wanted

    def cancel(self, party, row):
        return self.parties[row].pop(party)

    def free(self, row):
        """What is left of a row, as spans from left to right."""
        place, gaps = self.rows[row].start, []
        for span in sorted(self.parties[row].values()):
            if place < span.start:
                gaps.append(Span(place, span.start))
            place = span.end
        if place < self.rows[row].end:
            gaps.append(Span(place, self.rows[row].end))
        return gaps
