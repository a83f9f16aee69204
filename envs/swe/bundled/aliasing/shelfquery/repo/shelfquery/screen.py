"""The screen in the entrance."""


def show(rows, most=5):
    """The newest first, with the subjects in alphabetical order."""
    rows.sort(key=lambda row: -row["year"])
    del rows[most:]
    lines = []
    for row in rows:
        row["subjects"].sort()
        lines.append(f"{row['year']} {row['author']}: {row['title']} [{', '.join(row['subjects'])}]")
    return lines
