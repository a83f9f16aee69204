"""The line in which a word stands."""

from pagefinder.words import words


def cite(text, query, width=60):
    """The first line with one of the words of a query, shortened; "" if there is none."""
    wanted = set(words(query))
    for line in text.splitlines():
        if wanted & set(words(line)):
            return line if len(line) <= width else line[: width - 3] + "..."
    return ""
