"""A file of JSON lines that only grows. A line that a crash left incomplete is cut off when the file is opened."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from core.errors import StopRun, UserError


class JsonLines:
    """Raises UserError when a line in the file is damaged, and StopRun when the disk refuses a write.

    durable   each line is fsynced
    redact    takes secrets out of a text; applied to every text in a line before it becomes JSON
    """

    def __init__(self, path: Path, *, durable: bool = False, redact: Callable[[str], str] = str) -> None:
        self.path, self._durable, self._redact = path, durable, redact
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise refused(path, error) from error
        self._cut_to_line()

    def append(self, row: dict[str, Any], hint: str = "", *, durable: bool = False) -> None:
        """Write one line. hint: what the error says besides, when the write fails; durable: fsync it in any case."""
        data = self._line(row)
        before = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if self._durable or durable:
                os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            raise refused(self.path, error, hint) from error

    def read(self) -> Iterator[dict[str, Any]]:
        """Every line."""
        return read_lines(self.path)

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace all lines, or none where a crash comes between."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                file.writelines(map(self._line, rows))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            old, self._file = self._file, os.open(self.path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise refused(self.path, error) from error
        os.close(old)

    def drop_last(self) -> None:
        """Remove the last line."""
        self._cut_to_line(-1)

    def close(self) -> None:
        """Close the file. A thread that still writes gets an error, never a new file with the same descriptor."""
        file, self._file = self._file, -1
        os.close(file)

    def _line(self, row: dict[str, Any]) -> bytes:
        if self._redact is not str:
            row = in_strings(row, self._redact)  # in the finished JSON a secret may look like a part of it
        text = json.dumps(row, ensure_ascii=False) + "\n"
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate: escaped, the line stays valid
            return (json.dumps(row) + "\n").encode("ascii")

    def _cut_to_line(self, last: int = 0) -> None:
        """Cut the file off behind its last newline; with -1 behind the one before a newline at its end."""
        size = os.fstat(self._file).st_size
        if size == 0:  # which cannot be mapped
            return
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as data:  # not read whole: a long run's is large
            end = data.rfind(b"\n", 0, size + last) + 1
        if end < size:
            os.ftruncate(self._file, end)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of a file; a torn last one is left out. Raises UserError where one is damaged."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UserError(f"{path} line {number} is damaged: {error}.") from error


def in_strings(value: Any, change: Callable[[str], str], *, keys: bool = False) -> Any:
    """A copy of JSON data with every text in it changed; the keys of its objects only where `keys` says so."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if keys else key: in_strings(part, change, keys=keys) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_strings(part, change, keys=keys) for part in value]
    return value


def refused(path: Path, error: OSError, hint: str = "") -> StopRun:
    """The error for a write that the disk refused."""
    return StopRun(f"{path} cannot be written: {error.strerror}{'; ' + hint if hint else ''}.")
