from marketbasket.lines import make_line, price_of


class Basket:
    """What a customer wants; begins with `lines`, e.g. those of last week's basket."""

    def __init__(self, prices, lines=[], vouchers={}):
        self.prices = prices
        self.lines = lines
        self.vouchers = vouchers

    def add(self, item, kilos, *notes):
        self.lines.append(make_line(item, kilos, *notes))

    def note(self, item, text):
        for line in self.lines:
            if line["item"] == item:
                line["notes"].append(text)

    def redeem(self, code, cents):
        self.vouchers[code] = cents

    def contents(self):
        """The lines, for display and for next week."""
        return self.lines

    def total(self):
        full = sum(price_of(line, self.prices) for line in self.lines)
        return max(full - sum(self.vouchers.values()), 0)
