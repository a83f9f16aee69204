"""Reads FILE:START-END."""

import re
from dataclasses import dataclass

FORM = re.compile(r"(?P<file>.+):(?P<start>\d+)(?:-(?P<end>\d+))?")


@dataclass(frozen=True)
class Place:
    """Where to quote from; lines are numbered from 1."""

    file: str
    start: int
    end: int | None = None


def parse_place(text):
    match = FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"not FILE:START-END: {text!r}")
    end = match["end"]
    return Place(match["file"], int(match["start"]), None if end is None else int(end))
