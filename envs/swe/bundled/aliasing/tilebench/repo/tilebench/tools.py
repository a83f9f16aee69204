"""Tools change a board."""


def pen(board, x, y, tile):
    board[x, y] = tile


def fill(board, x, y, tile):
    """Floods the area of like tiles around a place."""
    old, todo = board[x, y], [(x, y)]
    while todo and old != tile:
        x, y = todo.pop()
        if board.inside(x, y) and board[x, y] == old:
            board[x, y] = tile
            todo += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]


def swap(board, first, second):
    """Every tile of one sort becomes the other, and the other way round."""
    change = {first: second, second: first}
    for row in board.rows:
        row[:] = [change.get(tile, tile) for tile in row]
