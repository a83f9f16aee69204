"""All evenings of a season."""

from choirdates.dates import Date


class Season:
    def __init__(self):
        self.dates: list[Date] = []

    def add(self, date):
        self.dates.append(date)
        self.dates.sort(key=lambda date: date.day)

    def repeat(self, first, weeks):
        """The same evening every week, `weeks` times in all."""
        for week in range(weeks):
            self.add(first.moved(7 * week))

    def on(self, day):
        """The evening of a day, to be changed; LookupError if there is none."""
        for date in self.dates:
            if date.day == day:
                return date
        raise LookupError(f"nothing on {day}")

    def absences(self, singer):
        return [date.day for date in self.dates if singer in date.absent]
