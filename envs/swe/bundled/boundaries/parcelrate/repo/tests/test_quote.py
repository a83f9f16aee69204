from decimal import Decimal

import pytest
from parcelrate.compare import cheapest
from parcelrate.quote import NoRate, quote


def test_quote():
    assert quote("snail", grams=700, zone="home") == Decimal("5.49")
    assert quote("snail", grams=700, zone="abroad") == Decimal("9.20")


def test_extras():
    assert quote("snail", grams=90, zone="home", extras=["signature"]) == Decimal("6.20")
    with pytest.raises(NoRate, match="snail has no saturday"):
        quote("snail", grams=90, zone="home", extras=["saturday"])


def test_too_heavy():
    with pytest.raises(NoRate, match="snail has no rate for 2600 g, zone home"):
        quote("snail", grams=2600, zone="home")


def test_cheapest():
    assert cheapest(300, "home") == ("snail", Decimal("3.70"))
    assert cheapest(730, "home") == ("swift", Decimal("5.10"))
    assert cheapest(3000, "home") == ("swift", Decimal("8.40"))


def test_nobody():
    with pytest.raises(NoRate):
        cheapest(300, "moon")
