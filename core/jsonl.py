"""An append-only file of JSON lines. A last line that a crash left incomplete is cut off when the file is opened."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.checksum import KEY, checked, is_sealed, loaded, noted_in, parsed, say_unchecked, sealed, wrong_checksum
from core.errors import StopRun, UserError

Check = Callable[[dict[str, Any]], None]
Note = Callable[[int], None]
_BYTES = getattr(os, "O_BINARY", 0)  # without it Windows writes "\r\n" for each newline


class JsonLines:
    """Raises UserError if a line in the file is damaged, and StopRun if the disk refuses a write.

    durable   fsync each line
    redact    removes secrets from a text; applied to every text in a row before it becomes JSON
    chained   each line gets a checksum of all lines so far (core/checksum.py), so only one process may write. A file
              that an earlier version began goes on without
    check     of the lines that are read (`read_lines`)
    note      told the number of lines after each that is written, and before some are removed (core/line_counts.py)
    """

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = False,
        redact: Callable[[str], str] = str,
        chained: bool = False,
        check: Check | None = None,
        note: Note | None = None,
    ) -> None:
        self.path, self._durable, self._redact = path, durable, redact
        self._chained, self._check, self._note = chained, check, note
        self._so_far: int | None = None  # the CRC-32 of all lines; None: as the file says
        self._n_lines: int | None = None  # likewise
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BYTES, 0o644)
        except OSError as error:
            raise refused(path, error) from error
        self._cut_to_line()

    def append(self, row: dict[str, Any], hint: str = "", *, durable: bool = False) -> None:
        """Write one line. hint: added to the error message if the write fails; durable: fsync this line."""
        data, so_far = self._line(row), self._crc32() if self._chained else None
        if so_far is not None:
            data, so_far = sealed(data, so_far)
        before = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if self._durable or durable:
                os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            raise refused(self.path, error, hint) from error
        self._so_far = so_far
        if self._note is not None:
            self._n_lines = self.n_lines() if self._n_lines is None else self._n_lines + 1
            self._note(self._n_lines)

    def n_lines(self) -> int:
        """The number of lines."""
        if self._n_lines is None:
            with self.path.open("rb") as file:
                self._n_lines = sum(1 for _ in file)
        return self._n_lines

    def read(self) -> Iterator[dict[str, Any]]:
        """Read every complete line."""
        return read_lines(self.path, self._check)

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace all lines atomically."""
        rows = list(rows)
        self._shrinks_to(len(rows))
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                file.writelines(self._lines(rows))
                file.flush()
                os.fsync(file.fileno())
            self.close()  # Windows does not replace an open file
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
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as data:
            return data[data.rfind(b"\n", 0, size - 1) + 1 :]

    def sync(self) -> None:
        """fsync all lines so far. Raises StopRun."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise refused(self.path, error) from error

    def drop_last(self) -> None:
        """Remove the last line."""
        self._shrinks_to(self.n_lines() - 1)
        self._cut_to_line(-1)

    def clear(self) -> None:
        """Remove all lines."""
        self._shrinks_to(0)
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Close the file. A thread that still writes gets an error: the descriptor is invalidated first."""
        file, self._file = self._file, -1
        os.close(file)

    def _shrinks_to(self, n: int) -> None:
        if self._note is not None:
            self._note(n)
        self._so_far = self._n_lines = None

    def _crc32(self) -> int | None:
        """The CRC-32 of all lines so far; None in a file whose lines have no checksums."""
        if self._so_far is None:
            last = self.last()
            return 0 if not last else noted_in(last) if is_sealed(last) else None
        return self._so_far

    def _lines(self, rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
        """Rows as the lines of a new file."""
        so_far = 0
        for row in rows:
            line = self._line(row)
            if self._chained:
                line, so_far = sealed(line, so_far)
            yield line

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
            self._file, 0, access=mmap.ACCESS_READ
        ) as data:  # not read into memory: files of long runs are large
            end = data.rfind(b"\n", 0, size + last) + 1
        if end < size:
            os.ftruncate(self._file, end)


def read_lines(path: Path, check: Check | None = None) -> Iterator[dict[str, Any]]:
    """Every complete line of a file, without its checksum; an incomplete last one is skipped.

    check   of a run's file: called with each row of an earlier version, which has no checksums; a ValueError is its
            fault. That there were such rows is said

    Raises UserError, with the number of the line, for one that is damaged or not where it was written.
    """
    so_far, n_sealed, n_others = 0, 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            right = False
            if is_sealed(line):
                n_sealed += 1
                right, so_far = checked(line, so_far)
                if not right or n_others:
                    wrong_checksum(path, "its checksum is wrong, or lines before it are missing", number)
                    with suppress(ValueError):  # if it can be read, those after it fit the one that it notes
                        so_far = noted_in(line)
            else:
                n_others += 1
                if n_sealed:
                    wrong_checksum(path, "it has no checksum, unlike the lines before it", number)
            row = loaded(path, line, number) if right or check is None else parsed(path, line, number)
            if isinstance(row, dict):
                row.pop(KEY, None)
            if not right and check is not None:
                try:
                    check(row)
                except ValueError as fault:
                    raise UserError(f"{path.parent} is no whole run: {path.name} line {number} {fault}.") from None
            yield row
    if check is not None and n_others:
        say_unchecked()


def in_strings(value: Any, change: Callable[[str], str | None], *, keys: bool = False) -> Any:
    """A copy of JSON data with `change` applied to every string; with keys=True also to the keys of objects."""
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
