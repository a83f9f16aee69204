"""Checks of a part's settings. Each raises UserError with one sentence: the key, its value and what to give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path

from core.errors import UserError


def check_numbers(
    part: object, group: str, *names: str, least: float = -inf, most: float = inf, whole: bool = False
) -> None:
    """Each named field of a part lies from `least` to `most`, or is None. group: where its keys stand in the config."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not (isinstance(value, int if whole else (int, float)) and least <= value <= most):
            limits = f"of at least {least}" if most == inf else f"from {least} to {most}"
            raise UserError(f"{group}.{name}={value}: give a {'whole ' if whole else ''}number {limits}.")


def check_positive(part: object, group: str, *names: str) -> None:
    """Each named field of a part is above 0, or None."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise UserError(f"{group}.{name}={value}: give a number above 0.")


def check_choice(part: object, group: str, name: str, known: Sequence[str | None]) -> None:
    """The named field of a part is one of the known values."""
    value = getattr(part, name)
    if value not in known:
        words = ["null" if word is None else word for word in known]
        raise UserError(f"{group}.{name}={value}: choose {', '.join(words[:-1])} or {words[-1]}.")


def is_url(path: str | Path) -> bool:
    """Whether a bank's path is the URL of a PostgreSQL database rather than a file."""
    return str(path).startswith(("postgresql:/", "postgres:/"))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Of the known names the two that are spelt most like this one, the nearest first; [] where none is near."""
    from difflib import get_close_matches

    return get_close_matches(name, [*known], n=2, cutoff=0.6)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses a name: ": did you mean X?", or "." where no known name is near."""
    near = nearest(name, known)
    return f": did you mean {' or '.join(near)}?" if near else "."
