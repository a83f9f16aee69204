from tilebench.editor import Editor
from tilebench.tools import pen


def test_use():
    editor = Editor(["..", ".."])
    editor.use(pen, 0, 0, "#")
    assert editor.snapshot() == [["#", "."], [".", "."]]


def test_nothing_to_undo():
    editor = Editor([".."])
    editor.undo()
    editor.redo()
    assert str(editor.board) == ".."
