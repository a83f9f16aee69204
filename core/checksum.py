"""Checksums in files: a CRC-32 at the end of each JSON line and of each whole file of a run, written last.

The lines of a file are chained: the CRC-32 of a line is that of all lines so far, without their checksums. So a line
that is missing, exchanged or there twice is seen as well as a changed one. (Those of a bank's journal are not chained:
they are numbered, and one that is damaged is left out.)
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from core.errors import UserError
from core.escaping import printable

Read = Callable[[bytes], Any]
KEY = "crc32"  # the last key of a line, and of a whole JSON file
_MARK = b', "crc32": "'
_END = b'"}\n'
_DIGITS = slice(-8 - len(_END), -len(_END))
_LENGTH = len(_MARK) + 8 + len(_END)
_MOST = 64  # bytes at the end of a whole file that hold its checksum
_OF_FILE = re.compile(rb'(?:,\n  "crc32": "([0-9a-f]{8})"\n}|# crc32: ([0-9a-f]{8}))\n\Z')


def sealed(line: bytes, before: int) -> tuple[bytes, int]:
    """(a line with its checksum, the CRC-32 of all lines so far). before: that of the lines above it."""
    body = line[:-2]  # without "}\n"
    now = crc32(body, before)
    return b"%b%b%08x%b" % (body, _MARK, now, _END), now


def is_sealed(line: bytes) -> bool:
    """Whether a line has a checksum."""
    return line[-_LENGTH : len(_MARK) - _LENGTH] == _MARK


def checked(line: bytes, before: int) -> tuple[bool, int]:
    """(whether the checksum of a line is right, the CRC-32 of all lines so far). before: that of the lines above it."""
    now = crc32(line[:-_LENGTH], before)
    return line[_DIGITS] == b"%08x" % now, now


def noted_in(line: bytes) -> int:
    """The CRC-32 that a line with a checksum notes."""
    return int(line[_DIGITS], 16)


def whole_json(value: dict[str, Any]) -> str:
    """The text of a whole file of JSON, which ends with its checksum."""
    text = json.dumps(value, indent=2, ensure_ascii=False).removesuffix("\n}")
    return f'{text},\n  "{KEY}": "{crc32(text.encode()):08x}"\n}}\n'


def whole_yaml(text: str) -> str:
    """The text of a whole file of YAML, which ends with its checksum in a comment."""
    return f"{text}# {KEY}: {crc32(text.encode()):08x}\n"


def read_whole(path: Path, *, must: bool = False) -> dict[str, Any] | None:
    """The content of a file of JSON or YAML, without its checksum; None if there is none.

    must   a file without a checksum is damaged; else it is an earlier version's

    Raises UserError for a damaged file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if found := _OF_FILE.search(data, max(0, len(data) - _MOST)):
        if (found[1] or found[2]) != b"%08x" % crc32(data[: found.start()]):
            wrong_checksum(path, "its checksum is wrong")
    elif must:
        wrong_checksum(path, "its checksum is missing")
    content = loaded(path, data, read=json.loads if path.suffix == ".json" else _yaml)
    content.pop(KEY, None)
    return content


def resealed(data: bytes, *, lines: bool) -> bytes:
    """The content of a file with the checksums that fit it, where it had some: for who changes a copy on purpose.

    lines   it is a file of JSON lines, not a whole one
    """
    if not lines:
        if (found := _OF_FILE.search(data)) is None:
            return data
        start, end = found.span(1 if found[1] else 2)
        return b"%b%08x%b" % (data[:start], crc32(data[: found.start()]), data[end:])
    so_far, made = 0, []
    for line in data.splitlines(keepends=True):
        if is_sealed(line):
            line, so_far = sealed(line[:-_LENGTH] + b"}\n", so_far)
        made.append(line)
    return b"".join(made)


def has_checksum(path: Path) -> bool:
    """Whether a whole file ends with a checksum."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST))
            return _OF_FILE.search(file.read()) is not None
    except FileNotFoundError:
        return False


def loaded(path: Path, data: bytes, line: int | None = None, read: Read = json.loads) -> dict[str, Any]:
    """The object in the JSON, or in what `read` reads. Raises UserError for anything else."""
    if not isinstance(found := parsed(path, data, line, read), dict):
        raise damaged(path, "it holds no object", line)
    return found


def parsed(path: Path, data: bytes, line: int | None = None, read: Read = json.loads) -> Any:
    """What the JSON says, or what `read` reads. Raises UserError for what is none."""
    try:
        return read(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error), line) from None


_noted: ContextVar[list[str] | None] = ContextVar("checksums that are wrong", default=None)


@contextmanager
def noting_wrong_checksums() -> Iterator[list[str]]:
    """Within it, what has a wrong checksum is read all the same, and the list has a sentence on each: for an audit."""
    before = _noted.set(found := [])
    try:
        yield found
    finally:
        _noted.reset(before)


def wrong_checksum(path: Path, why: str, line: int | None = None) -> None:
    """Raise UserError for what does not fit its checksum; within `noting_wrong_checksums` note it."""
    error = damaged(path, why, line)
    if (found := _noted.get()) is None:
        raise error
    found.append(str(error))


def damaged(path: Path, why: str, line: int | None = None) -> UserError:
    """The error for a file that is not what was written. line: the number of the line, from 1."""
    return UserError(f"{path}{'' if line is None else f' line {line}'} is damaged: {why}.")


@cache  # many files of many runs would say the same
def say_once(text: str) -> None:
    """Print a note about files that are read to stderr, once in a process."""
    print(printable(text), file=sys.stderr, flush=True)


def n_said() -> int:
    """How many notes there were to print, those that had been printed before too."""
    known = say_once.cache_info()
    return known.hits + known.misses


def say_unchecked() -> None:
    """Say that there are records of an earlier version, which has no checksums."""
    say_once("note: records of an earlier version have no checksums: not every damage to them would be seen.")


def _yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.load(data.decode(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
