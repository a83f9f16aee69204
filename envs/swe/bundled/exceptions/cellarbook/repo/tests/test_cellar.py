import pytest
from trouble import CellarError


def test_rack(cellar):
    cellar.rack("T1", "T2", 1500)
    assert (cellar.tank("T1").litres, cellar.tank("T2").litres) == (1700, 1500)
    assert cellar.tank("T2").wine == "Riesling 2023"
    assert cellar.book == ["T1: 1500 l out", "T2: 1500 l in"]
    assert cellar.total("Riesling 2023") == 3200


def test_blend(cellar):
    cellar.rack("T1", "T3", 100)
    assert cellar.tank("T3").wine == "Silvaner 2023 / Riesling 2023"


def test_emptied(cellar):
    cellar.rack("T3", "T2", 600)
    assert cellar.tank("T3").wine is None


def test_bottle(cellar):
    assert cellar.bottle("T3", 100) == 75
    assert cellar.tank("T3").litres == 525


def test_not_enough(cellar):
    with pytest.raises(CellarError, match="T3 has only 600 l"):
        cellar.bottle("T3", 1000)


def test_twice(cellar):
    with pytest.raises(CellarError, match="T1 already"):
        cellar.add_tank("T1", 100)
