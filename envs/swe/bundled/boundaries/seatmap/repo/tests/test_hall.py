import pytest
from hall import Hall, Taken
from spans import Span


@pytest.fixture
def hall():
    hall = Hall({"A": Span(1, 20), "B": Span(1, 25)})
    hall.reserve("Miller", "B", 10, 14)
    return hall


def test_same_seats(hall):
    with pytest.raises(Taken, match="Miller has 10 to 14 in row B"):
        hall.reserve("Okafor", "B", 12, 16)


def test_another_row(hall):
    hall.reserve("Okafor", "A", 10, 14)
    assert hall.parties["A"] == {"Okafor": (10, 14)}


def test_cancelled_seats_are_free_again(hall):
    assert hall.cancel("Miller", "B") == (10, 14)
    hall.reserve("Okafor", "B", 9, 15)


def test_beyond_the_row(hall):
    with pytest.raises(ValueError, match="row A has no seats 18 to 24"):
        hall.reserve("Okafor", "A", 18, 24)


def test_free(hall):
    assert hall.free("B") == [(1, 10), (14, 25)]
