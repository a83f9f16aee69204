import pytest

from stockroom import StockError, Stockroom, book_delivery

NOTE = """
# supplier 44
BOLT-M6   200
NUT-M6    200   in two boxes

WASHER-6  500   # checked
"""


def test_delivery():
    room = Stockroom({"BOLT-M6": 20})
    assert book_delivery(room, NOTE) == 3
    assert room.counts == {"BOLT-M6": 220, "NUT-M6": 200, "WASHER-6": 500}
    assert room.journal[0] == ("BOLT-M6", 200)


def test_take():
    room = Stockroom({"BOLT-M6": 20})
    room.take("BOLT-M6", 5)
    with pytest.raises(StockError, match="only 15 of BOLT-M6"):
        room.take("BOLT-M6", 16)


def test_unknown():
    with pytest.raises(StockError, match="no shelf for GLUE"):
        Stockroom().take("GLUE", 1)
