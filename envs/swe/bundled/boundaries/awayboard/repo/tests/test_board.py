from datetime import date

import pytest

from awayboard.board import Board, Refused
from awayboard.requests import Request


@pytest.fixture
def board():
    board = Board(allowance=30)
    board.approve(Request.parse("Ines,2024-05-06,2024-05-10"))
    board.approve(Request.parse("Tom,2024-05-08,2024-05-20"))
    return board


def test_away(board):
    assert board.away(date(2024, 5, 5)) == []
    assert board.away(date(2024, 5, 7)) == ["Ines"]
    assert board.away(date(2024, 5, 9)) == ["Ines", "Tom"]


def test_longer_leave_takes_more(board):
    assert board.left("Tom") < board.left("Ines") < board.left("Zoe") == 30


def test_too_much(board):
    with pytest.raises(Refused, match="Zoe has 30 days left"):
        board.approve(Request.parse("Zoe,2024-06-01,2024-09-01"))


def test_backwards():
    with pytest.raises(ValueError, match="Tom: 2024-05-01 is before 2024-05-08"):
        Request.parse("Tom,2024-05-08,2024-05-01")
