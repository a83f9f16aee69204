import pytest

from weatherwire.collect import Collection
from weatherwire.daily import daily
from weatherwire.report import Report, parse


def test_parse():
    assert parse(b"station Lindau\ntemp -3.5\r\nwind 12\n") == Report("Lindau", {"temp": -3.5, "wind": 12})


def test_no_report():
    with pytest.raises(ValueError, match="an empty report"):
        parse(b"\n")
    with pytest.raises(ValueError, match="begins with its station"):
        parse(b"temp 4\n")


def test_grouped():
    collection = Collection()
    for station, temp in (("Lindau", 3), ("Bregenz", 2), ("Lindau", 5)):
        collection.receive(f"station {station}\ntemp {temp}".encode("ascii"))
    assert collection.stations() == ["Bregenz", "Lindau"]
    assert collection.values("Lindau", "temp") == [3, 5]


def test_daily(tmp_path):
    collection = Collection()
    collection.receive(b"station Lindau\ntemp -3.5")
    collection.receive(b"station Lindau\ntemp 4")
    collection.receive(b"station Bregenz\nwind 9")
    daily(collection, tmp_path / "day.txt")
    assert (tmp_path / "day.txt").read_text() == "Bregenz: no temperature\nLindau: -3.5 to 4.0, 2 reports\n"
