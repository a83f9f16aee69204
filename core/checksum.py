"""Checksums at the end of files: a CRC-32 in each whole file of a run, and in each line of a bank's journal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from core.errors import UserError

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


def whole_json(value: dict[str, Any]) -> str:
    """The text of a whole file of JSON, which ends with its checksum."""
    text = json.dumps(value, indent=2, ensure_ascii=False).removesuffix("\n}")
    return f'{text},\n  "{KEY}": "{crc32(text.encode()):08x}"\n}}\n'


def whole_yaml(text: str) -> str:
    """The text of a whole file of YAML, which ends with its checksum in a comment."""
    return f"{text}# {KEY}: {crc32(text.encode()):08x}\n"


def read_whole(path: Path, *, must: bool = False) -> dict[str, Any] | None:
    """The content of a file of JSON or YAML, without its checksum; None if there is none.

    must   a file without a checksum is damaged; else it is of version 0.1.0, or somebody has changed it

    Raises UserError for a damaged file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if found := _OF_FILE.search(data, max(0, len(data) - _MOST)):
        if (found[1] or found[2]) != b"%08x" % crc32(data[: found.start()]):
            raise damaged(path, "its checksum is wrong")
    elif must:
        raise damaged(path, "its checksum is missing")
    content = loaded(path, data, read=json.loads if path.suffix == ".json" else _yaml)
    content.pop(KEY, None)
    return content


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
    try:
        found = read(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error), line) from None
    if not isinstance(found, dict):
        raise damaged(path, "it holds no object", line)
    return found


def damaged(path: Path, why: str, line: int | None = None) -> UserError:
    """The error for a file that is not what was written. line: the number of the line, from 1."""
    return UserError(f"{path}{'' if line is None else f' line {line}'} is damaged: {why}.")


def _yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.load(data.decode(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
