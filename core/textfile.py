"""Reading text files as people have them: with a byte order mark, in UTF-16, packed. Writing them whole."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import threading
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

from core.errors import UserError

if TYPE_CHECKING:
    from zipfile import ZipFile

# The longer mark first: that of UTF-32 begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
GZIP = b"\x1f\x8b"  # how such a file begins
BINARY = re.compile(rb"[\0-\x08\x0e-\x1a]")  # bytes that stand in no text
NO_TEXT = (
    "is no text, or UTF-16 without a byte order mark: unpack what is packed, save a table as CSV, rows as JSON lines."
)
MOST_UNPACKED = 512 << 20  # bytes that are unpacked into memory: a file of some MB may hold a thousand times as much


def read_text(path: Path, name: str | None = None) -> str:
    """The text of a file. UserError, in one sentence with the name, if it cannot be read. name: None: its path."""
    return decoded(name or str(path), read_bytes(path, name))


def read_bytes(path: Path, name: str | None = None) -> bytes:
    """The bytes of a file, unpacked if it is packed by gzip. UserError if it cannot be read."""
    try:
        data = path.read_bytes()
        if not (data.startswith(GZIP) or path.suffix == ".gz"):
            return data
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            return unpacked(packed, name or str(path))
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{name or path} cannot be read: {why}.") from error


def unpacked(packed: IO[bytes] | gzip.GzipFile, name: str, most: int | None = None) -> bytes:
    """All that a packed file holds. UserError if that is more than `most` bytes (MOST_UNPACKED)."""
    most = most or MOST_UNPACKED
    if len(data := packed.read(most + 1)) > most:
        raise UserError(f"{name} unpacks to more than {most >> 20} MB: unpack it first, if you know what it holds.")
    return data


def read_member(archive: ZipFile, name: str, pwd: bytes | None = None) -> bytes:
    """A file in a ZIP archive, as `unpacked`."""
    with archive.open(name, pwd=pwd) as packed:
        return unpacked(packed, f"{name} in {archive.filename}")


def decoded(name: str, data: bytes) -> str:
    """UTF-8, or what the byte order mark says. Other encodings cannot be told from each other: they are refused."""
    encoding = next((encoding for mark, encoding in MARKS if data.startswith(mark)), "utf-8-sig")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if BINARY.search(data):
            raise UserError(f"{name} {NO_TEXT}") from error
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name} is not UTF-8 text: {error} (line {line}); save it as UTF-8.") from error
    if "\x00" in text:
        raise UserError(f"{name} {NO_TEXT}")
    return text


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file whole or not at all, also in a power failure, and beside others who write it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        into_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def into_place(temporary: Path, path: Path) -> None:
    """Let a file that is written take the place of another one, once it is on the disk. Raises OSError."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
