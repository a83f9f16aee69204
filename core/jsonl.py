"""An append-only file of JSON lines. A last line that a crash left incomplete is cut off when the file is opened."""

from __future__ import annotations

import json
import mmap
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from core.checksum import damaged, loaded
from core.errors import StopRun

Read = Callable[[dict[str, Any]], dict[str, Any]]
_WITHOUT_STRINGS = frozenset((int, float, bool, type(None)))
_BYTES = getattr(os, "O_BINARY", 0)  # without it Windows writes "\r\n" for each newline


class JsonLines:
    """Raises UserError if a line in the file is damaged, and StopRun if the disk refuses a write.

    durable   fsync each line
    redact    removes secrets from a text; applied to every text in a row before it becomes JSON
    as_read   checks each row that is read (`read_lines`)
    mode      of a new file
    """

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = False,
        redact: Callable[[str], str] = str,
        as_read: Read | None = None,
        mode: int = 0o644,
    ) -> None:
        self.path, self._durable, self._redact, self._as_read = path, durable, redact, as_read
        self._coming: deque[bytes] = deque()  # lines that are to be written
        self._writing = threading.Lock()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BYTES, mode)
        except OSError as error:
            raise refused(path, error) from error
        self._cut_to_line()

    def append(self, *rows: dict[str, Any], hint: str = "") -> None:
        """Write a line for each row. hint: added to the error message if the write fails.

        Thread-safe. While a thread writes, it also writes the lines of others, which need not wait for it. Of a durable
        file they do.
        """
        lines = [self._line(row) for row in rows]
        if self._durable:
            with self._writing:  # before it nobody else may write them: if that failed, it would not be known here
                self._coming.extend(lines)
                self._write(hint)
        else:
            self._coming.extend(lines)
            self._write_coming(hint)

    def _write_coming(self, hint: str = "") -> None:
        while self._coming and self._writing.acquire(blocking=False):
            try:
                self._write(hint)
            finally:
                self._writing.release()

    def _write(self, hint: str) -> None:
        """Write the lines that are to come. Only for the thread that holds `_writing`."""
        data, written = b"".join(self._coming.popleft() for _ in range(len(self._coming))), 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
            if data and self._durable:
                os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self.size() - written)
            raise refused(self.path, error, hint) from error

    def read(self) -> Iterator[dict[str, Any]]:
        """Read every complete line."""
        return read_lines(self.path, self._as_read)

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace all lines atomically. `rows` are taken when no line is being written; later ones come behind them."""
        with self._writing:
            self._replace([self._line(row) for row in rows])
        self._write_coming()

    def _replace(self, lines: list[bytes]) -> None:
        if not lines:
            os.ftruncate(self._file, 0)
            return
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            mode = stat.S_IMODE(os.fstat(self._file).st_mode)  # what others may not read stays so
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BYTES, mode), "wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            os.close(self._file)  # Windows does not replace an open file
            try:
                temporary.replace(self.path)
            finally:
                self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | _BYTES)
        except OSError as error:
            raise refused(self.path, error) from error

    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self._file).st_size

    def last(self) -> bytes:
        """The last line with its newline; empty if there is none."""
        if (size := self.size()) == 0:  # an empty file cannot be mapped
            return b""
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY) as data:
            return data[data.rfind(b"\n", 0, size - 1) + 1 :]

    def sync(self) -> None:
        """fsync all lines so far. Raises StopRun."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise refused(self.path, error) from error

    def drop_last(self) -> None:
        """Remove the last line."""
        self._cut_to_line(-1)

    def close(self) -> None:
        """Close the file. A thread that still writes gets an error: the descriptor is invalidated first."""
        file, self._file = self._file, -1
        os.close(file)

    def _line(self, row: dict[str, Any]) -> bytes:
        if self._redact is not str:
            row = in_strings(row, self._redact)  # before encoding: in JSON a secret could overlap the syntax
        text = json.dumps(row, ensure_ascii=False) + "\n"
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate: escaped, the line stays valid
            return (json.dumps(row) + "\n").encode("ascii")

    def _cut_to_line(self, last: int = 0) -> None:
        """Cut the file after its last newline. last=-1: ignore a newline at its end, which removes the last line."""
        if (size := self.size()) == 0:  # an empty file cannot be mapped
            return
        os.lseek(self._file, -1, os.SEEK_END)
        if not last and os.read(self._file, 1) == b"\n":  # as usual: mapping takes longer than the line that follows
            return
        with mmap.mmap(
            self._file, 0, access=mmap.ACCESS_COPY
        ) as data:  # not read into memory: files of long runs are large
            end = data.rfind(b"\n", 0, size + last) + 1
        if end < size:
            os.ftruncate(self._file, end)


def read_lines(path: Path, as_read: Read | None = None) -> Iterator[dict[str, Any]]:
    """Every complete line of a file; an incomplete last one is skipped.

    as_read   called with each row: returns what is read, and raises ValueError for a row that cannot be

    Raises UserError, with the number of the line, for one that is damaged.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            row = loaded(path, line, number)
            try:
                row = as_read(row) if as_read else row
            except ValueError as fault:
                raise damaged(path, str(fault), number) from None
            yield row


def in_strings(value: Any, change: Callable[[str], str | None], *, keys: bool = False, but: Container[str] = ()) -> Any:
    """A copy of JSON data with `change` applied to every string; with keys=True also to the keys of objects.

    A dataclass becomes the object of its fields. Values of keys in `but` are left as they are.
    """

    def copied(part: Any) -> Any:
        if isinstance(part, str):
            return change(part)
        if type(part) in _WITHOUT_STRINGS:  # before the questions below, which take longer
            return part
        if isinstance(part, (list, tuple)):
            return [copied(each) for each in part]
        if not isinstance(part, dict):
            if not is_dataclass(part):
                return part
            part = vars(part)
        return {change(key) if keys else key: each if key in but else copied(each) for key, each in part.items()}

    return copied(value)


def refused(path: Path, error: OSError, hint: str = "") -> StopRun:
    """The error for a write that the disk refused."""
    return StopRun(f"{path} cannot be written: {error.strerror}{'; ' + hint if hint else ''}.")
