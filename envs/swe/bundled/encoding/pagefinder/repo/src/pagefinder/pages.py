"""The pages of a folder."""

from pathlib import Path


def read_page(path):
    return Path(path).read_text(encoding="utf-8", errors="ignore")


def pages(folder):
    """(name, text) of every page, by name."""
    for path in sorted(Path(folder).glob("*.txt")):
        yield path.stem, read_page(path)
