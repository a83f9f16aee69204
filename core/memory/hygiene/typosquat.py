"""Whether a text names a package by a name that imitates a widely used one: a letter more, less, other or swapped."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"(?<![\w@/.-])[a-z][a-z0-9]{2,24}(?:[-_.][a-z0-9]{1,24}){0,3}(?![\w/@-])")
# What makes a shorter word a package's name and no typing error.
_CONTEXT = re.compile(
    r"(?i)\b(?:packages?|dependenc\w+|requirements|import\w*|install\w*|pip|npm|yarn|pypi|librar\w+|modules?|"
    r"pyproject|framework)\b"
)
_NO_IMITATIONS = frozenset("python cpython cython ipython jinja ninja unicorn".split())
_LONG = 7  # letters of a name that is looked for without such a word beside it


def imitations(text: str) -> tuple[str, ...]:
    """The names in a text that imitate a package, sorted. Its plural or singular, and other known names, do not."""
    least = 5 if _CONTEXT.search(text) else _LONG + 1
    words = {word for word in _NAME.findall(text.lower()) if len(word) >= least - 1} - _NO_IMITATIONS
    return tuple(sorted(word for word in words if word.replace("_", "-") not in known() and _imitates(word, least)))


@cache
def known() -> frozenset[str]:
    """The names of packages.txt."""
    lines = (Path(__file__).parent / "packages.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


@cache
def _by_shape() -> dict[str, set[str]]:
    """Each name by its forms that lack one letter, and by itself: two names one edit apart share such a form."""
    found: dict[str, set[str]] = {}
    for name in known():
        for shape in _shapes(name):
            found.setdefault(shape, set()).add(name)
    return found


def _shapes(name: str) -> set[str]:
    return {name, *(name[:place] + name[place + 1 :] for place in range(len(name)))}


def _imitates(word: str, least: int) -> bool:
    # rn looks like m, and 1 like l.
    looks = word.replace("rn", "m").replace("1", "l").replace("0", "o").replace("_", "-")
    if looks != word.replace("_", "-") and looks in known():
        return True
    near = {name for shape in _shapes(word) for name in _by_shape().get(shape, ()) if len(name) >= least}
    return any(_one_edit(word, name) for name in near if word.rstrip("s") != name.rstrip("s"))


def _one_edit(one: str, other: str) -> bool:
    """Whether two different words are a letter added, left out, replaced, or two neighbours swapped apart."""
    start = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:] and len(a) > 1)
