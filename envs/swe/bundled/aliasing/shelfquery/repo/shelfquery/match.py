"""Whether a row is what is looked for."""


def matches(row, author=None, subject=None, year=None):
    wanted = [
        author is None or author.lower() in row["author"].lower(),
        subject is None or subject in row["subjects"],
        year is None or row["year"] == year,
    ]
    return all(wanted)
