"""The list."""

import csv
from pathlib import Path

from lettermill.errors import LetterError


def read_people(path):
    """A dict a row. What a row leaves empty is not in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise LetterError(f"cannot read {path}") from error
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    return [{name: value for name, value in row.items() if value} for row in rows]
