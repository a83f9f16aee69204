"""The bank's JSON."""

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass(frozen=True)
class Feed:
    day: date
    rates: dict[str, Decimal]


def parse_feed(text):
    data = json.loads(text)
    rates = {currency: Decimal(rate) for currency, rate in data["rates"].items()}
    return Feed(date.fromisoformat(data["day"]), rates)
