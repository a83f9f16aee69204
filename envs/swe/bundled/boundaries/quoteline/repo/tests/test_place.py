import pytest
from quoteline.place import Place, parse_place


def test_range():
    assert parse_place("a/b.py:4-12") == Place("a/b.py", 4, 12)


def test_single():
    assert parse_place("b.py:7") == Place("b.py", 7)


def test_nonsense():
    for text in ("b.py", "b.py:", "b.py:4-", ":"):
        with pytest.raises(ValueError):
            parse_place(text)
