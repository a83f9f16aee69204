import pytest

from marketbasket import Basket, receipt

PRICES = {"apples": 290, "leeks": 350, "eggs": 800}


def test_total():
    basket = Basket(PRICES, [], {})
    basket.add("apples", 1.5)
    basket.add("leeks", 0.4)
    assert basket.total() == 435 + 140


def test_voucher():
    basket = Basket(PRICES, [], {})
    basket.add("eggs", 1)
    basket.redeem("SPRING", 300)
    assert basket.total() == 500
    basket.redeem("BIRTHDAY", 1000)
    assert basket.total() == 0


def test_note():
    basket = Basket(PRICES, [], {})
    basket.add("apples", 1, "ripe")
    basket.note("apples", "red ones")
    assert basket.contents() == [{"item": "apples", "kilos": 1, "notes": ["ripe", "red ones"]}]


def test_nothing():
    with pytest.raises(ValueError, match="0 kilos of eggs"):
        Basket(PRICES, [], {}).add("eggs", 0)


def test_receipt():
    basket = Basket(PRICES, [], {})
    basket.add("leeks", 2, "thin")
    basket.redeem("SPRING", 300)
    assert receipt(basket).splitlines() == [
        "leeks            2 kg    7.00",
        "  (thin)",
        "voucher SPRING          -3.00",
        "total                    4.00",
    ]
