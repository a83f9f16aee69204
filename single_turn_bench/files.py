"""Reading the rows of .jsonl, .jsonl.gz and the official GPQA archive; a file's hash; writing a file in one piece.

An error is one sentence that names the file and the line.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from core.errors import UserError
from single_turn_bench.specs import GPQA_ZIP_MEMBER, GPQA_ZIP_PASSWORD


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_objects(path: Path) -> Iterator[tuple[str, dict]]:
    """("FILE line N", decoded row) of a .jsonl, .jsonl.gz or .zip file, blank lines left out."""
    if path.suffix == ".zip":
        yield from zip_rows(path)
        return
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path.name} line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where}: not JSON ({error}).") from error
        except RecursionError as error:
            raise UserError(f"{where}: not JSON that can be read (nested too deep).") from error
        if not isinstance(row, dict):
            raise UserError(f"{where}: a row is a JSON object, this is a {type(row).__name__}.")
        yield where, row


def text_lines(path: Path) -> list[str]:
    """Split at newlines only: a JSON text may hold the other line separators of Unicode."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        return data.decode("utf-8-sig").split("\n")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path.name} is not UTF-8 text: {error}.") from error


def zip_rows(path: Path) -> Iterator[tuple[str, dict]]:
    """The rows of the CSV in the official GPQA archive, decrypted in memory: nothing is written to disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(GPQA_ZIP_MEMBER, pwd=GPQA_ZIP_PASSWORD).decode("utf-8-sig")
    except KeyError as error:
        raise UserError(f"{path.name} holds no {GPQA_ZIP_MEMBER}: it is not the official GPQA archive.") from error
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} cannot be read as the official GPQA archive: {error}.") from error
    for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), start=1):
        yield f"{path.name} row {number}", row


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it; a write that fails leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
