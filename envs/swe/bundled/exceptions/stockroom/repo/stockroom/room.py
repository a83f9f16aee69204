from .errors import StockError


class Stockroom:
    def __init__(self, counts=None):
        self.counts = dict(counts or {})
        self.journal = []

    def count(self, item):
        try:
            return self.counts[item]
        except KeyError as error:
            raise StockError(f"no shelf for {item}") from error

    def put(self, item, number):
        self.counts[item] = self.counts.get(item, 0) + number
        self.journal.append((item, number))

    def take(self, item, number):
        if number > self.count(item):
            raise StockError(f"only {self.count(item)} of {item}")
        self.counts[item] -= number
        self.journal.append((item, -number))
