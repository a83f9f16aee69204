from decimal import Decimal

import pytest

from pocketrates import Converter, RateError

FEED = '{"day": "2024-03-01", "rates": {"USD": "1.0825", "JPY": "162.41"}}'


@pytest.fixture
def converter():
    converter = Converter("EUR")
    converter.refresh(FEED)
    return converter


def test_convert(converter):
    assert converter.convert("100", "EUR", "JPY") == Decimal("16241.00")
    assert converter.convert("10", "USD", "USD") == Decimal("10.00")


def test_total(converter):
    assert converter.total([("108.25", "USD"), ("20", "EUR")]) == Decimal("120.00")


def test_unknown_currency(converter):
    with pytest.raises(RateError, match="no rate for XAU on 2024-03-01"):
        converter.convert("1", "XAU", "EUR")


def test_no_amount(converter):
    with pytest.raises(RateError, match="no amount: 'ten'"):
        converter.convert("ten", "USD", "EUR")


def test_the_newer_feed_counts(converter):
    converter.refresh(FEED.replace("1.0825", "2"))
    assert converter.convert("10", "USD", "EUR") == Decimal("5.00")
