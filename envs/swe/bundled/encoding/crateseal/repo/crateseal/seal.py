"""Seals and checks."""

from pathlib import Path

from crateseal.files import SEAL, digests
from crateseal.lines import from_text, to_text


def seal(folder):
    """Writes the seal; how many files it has."""
    found = digests(folder)
    Path(folder, SEAL).write_text(to_text(found), encoding="utf-8")
    return len(found)


def check(folder):
    """{word: paths}: what is the same, changed, missing or new."""
    sealed = from_text(Path(folder, SEAL).read_text(encoding="utf-8"))
    found = digests(folder)
    both = sorted(sealed.keys() & found.keys())
    return {
        "same": [path for path in both if sealed[path] == found[path]],
        "changed": [path for path in both if sealed[path] != found[path]],
        "missing": sorted(sealed.keys() - found.keys()),
        "new": sorted(found.keys() - sealed.keys()),
    }
