from tilebench.board import Board
from tilebench.tools import fill, pen, swap


def test_pen():
    board = Board(["...", "..."])
    pen(board, 2, 1, "#")
    assert str(board) == "...\n..#"


def test_fill():
    board = Board(["..#.", ".##.", "#..."])
    fill(board, 0, 0, "~")
    assert str(board) == "~~#.\n~##.\n#..."


def test_fill_with_the_same():
    board = Board(["..", ".."])
    fill(board, 0, 0, ".")
    assert str(board) == "..\n.."


def test_swap():
    board = Board(["ab", "c."])
    swap(board, "a", "b")
    assert str(board) == "ba\nc."
