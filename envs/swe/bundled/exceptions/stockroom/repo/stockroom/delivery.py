"""Delivery notes: item, number, and perhaps a remark, one a line."""


def lines_of(note):
    """(line number, words) of every line that says something."""
    for number, line in enumerate(note.splitlines(), start=1):
        words = line.split("#")[0].split(maxsplit=2)
        if words:
            yield number, words


def book_delivery(room, note):
    """Puts everything on the shelves; how many lines the note has."""
    booked = 0
    for _, words in lines_of(note):
        room.put(words[0], int(words[1]))
        booked += 1
    return booked
