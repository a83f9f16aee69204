"""Picks the lines."""


def select(text, place):
    """(number, line) of every line that a place names; as many as there are."""
    lines = text.splitlines()
    if place.end is None:
        chosen = lines[place.start - 1 : place.start]
    else:
        chosen = lines[place.start : place.end]
    return list(enumerate(chosen, start=place.start))
