"""Board, undo, redo."""

from tilebench.board import Board


class Editor:
    def __init__(self, rows):
        self.board = Board(rows)
        self.past = []
        self.future = []

    def use(self, tool, *args):
        self.past.append(self.board)
        self.future.clear()
        tool(self.board, *args)

    def undo(self):
        if self.past:
            self.future.append(self.board)
            self.board = self.past.pop()

    def redo(self):
        if self.future:
            self.past.append(self.board)
            self.board = self.future.pop()

    def snapshot(self):
        """The rows as they are now, for whoever draws them."""
        return self.board.rows
