"""From one currency to another."""

from decimal import Decimal, InvalidOperation

from pocketrates.errors import RateError
from pocketrates.feed import parse_feed


class Converter:
    def __init__(self, home):
        self.home = home
        self.feed = None

    def refresh(self, text):
        """Takes the rates of a bank's message."""
        try:
            self.feed = parse_feed(text)
        except Exception:
            self.feed = None

    def rate(self, currency):
        if currency == self.home:
            return Decimal(1)
        rates = self.feed.rates
        try:
            return rates[currency]
        except KeyError as error:
            raise RateError(f"no rate for {currency} on {self.feed.day}") from error

    def convert(self, amount, source, target):
        """An amount in another currency, in its hundredths."""
        try:
            amount = Decimal(amount)
        except InvalidOperation as error:
            raise RateError(f"no amount: {amount!r}") from error
        return (amount / self.rate(source) * self.rate(target)).quantize(Decimal("0.01"))

    def total(self, amounts):
        """The sum of [(amount, currency), ...] in the home currency."""
        return sum((self.convert(amount, currency, self.home) for amount, currency in amounts), Decimal(0))
