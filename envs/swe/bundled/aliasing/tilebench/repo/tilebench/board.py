"""A board: rows of one-letter tiles."""


class Board:
    def __init__(self, rows):
        self.rows = [list(row) for row in rows]

    @property
    def height(self):
        return len(self.rows)

    @property
    def width(self):
        return len(self.rows[0])

    def inside(self, x, y):
        return 0 <= y < self.height and 0 <= x < self.width

    def __getitem__(self, place):
        x, y = place
        return self.rows[y][x]

    def __setitem__(self, place, tile):
        x, y = place
        self.rows[y][x] = tile

    def __str__(self):
        return "\n".join("".join(row) for row in self.rows)
