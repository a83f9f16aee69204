"""Reading the rows of .jsonl, .json, .csv, .tsv and .parquet files, also packed (.gz), and of the official GPQA
archive; a file's hash.

An error is one sentence that names the file and the line.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.textfile import MOST_UNPACKED, decoded, read_bytes, read_member
from single_turn_bench.specs import GPQA_ZIP_MEMBER, GPQA_ZIP_PASSWORD

DELIMITERS = ",;\t|"
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n")  # what Excel understands above a table


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_objects(path: Path) -> Iterator[tuple[str, dict]]:
    """("FILE line N" or "FILE row N", decoded row) of a file; blank lines are left out.

    The name says which kind it is, without .gz: .csv, .tsv, .json, .parquet, .zip (GPQA), and any other: JSON lines.
    """
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind == ".zip":
        yield from zip_rows(path)
        return
    data = read_bytes(path)
    if kind == ".parquet" or data.startswith(b"PAR1"):
        yield from objects(path.name, parquet_rows(path.name, data))
        return
    text = decoded(path.name, data)
    if kind in (".csv", ".tsv", ".tab"):
        yield from table_rows(path.name, text)
    elif kind == ".json" or text.lstrip().startswith("["):
        yield from whole_json(path.name, text)
    else:
        yield from json_lines(path.name, text)


def objects(name: str, rows: Iterable[Any]) -> Iterator[tuple[str, dict]]:
    for number, row in enumerate(rows, start=1):
        yield f"{name} row {number}", checked(f"{name} row {number}", row)


def checked(where: str, row: Any) -> dict:
    if not isinstance(row, dict):
        raise UserError(f"{where}: a row is a JSON object, this is a {type(row).__name__}.")
    return row


def json_lines(name: str, text: str) -> Iterator[tuple[str, dict]]:
    """Split at newlines only: a JSON text may hold the other line separators of Unicode."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name} line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where}: not JSON ({error}): {line[:60]!r}.") from error
        except RecursionError as error:
            raise UserError(f"{where}: not JSON that can be read (nested too deep).") from error
        yield where, checked(where, row)


def whole_json(name: str, text: str) -> Iterator[tuple[str, dict]]:
    """The rows of a text that is one JSON value; where more follows the first one, it is JSON lines."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
    except RecursionError as error:
        raise UserError(f"{name}: not JSON that can be read (nested too deep).") from error
    except ValueError as error:
        raise UserError(f"{name}: not JSON ({error}).") from error
    yield from json_lines(name, text) if text[end:].strip() else objects(name, listed(name, value))


def listed(name: str, value: Any) -> list[Any]:
    """The rows of a JSON value: a list, the one list of objects in it, or one row."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or not value:
        raise UserError(f"{name}: rows are a list of JSON objects, this is a {type(value).__name__}.")
    lists = {key: each for key, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)}
    if len(lists) > 1:
        raise UserError(f"{name} holds several lists of rows ({', '.join(lists)}): keep one of them.")
    return next(iter(lists.values()), [value])


def table_rows(name: str, text: str) -> Iterator[tuple[str, dict]]:
    """The rows of a CSV file, whichever sign divides its columns: that which makes the most of the first line."""
    csv.field_size_limit(min(max(len(text), 131_072), 2**31 - 1))  # of a cell, for the whole process
    given = SEPARATOR_LINE.match(text)
    text = text[given.end() :] if given else text
    headers = [next(csv.reader(io.StringIO(text, newline=""), delimiter=sign), []) for sign in DELIMITERS]
    widest = max(range(len(DELIMITERS)), key=lambda number: len(headers[number]))
    sign = given[1] if given else DELIMITERS[widest]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    header: list[str] = []
    try:
        for number, cells in enumerate(reader, start=1):  # as a spreadsheet counts, with the first line and blank ones
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = checked_header(name, [cell.strip() for cell in cells])
                continue
            where = f"{name} row {number}"
            if len(cells) != len(header):
                raise UserError(f"{where}: it has {len(cells)} cells, and the first line names {len(header)} columns.")
            yield where, {column: cell for column, cell in zip(header, cells, strict=True) if column}
    except csv.Error as error:
        raise UserError(f"{name} line {reader.line_num}: not CSV ({error}).") from error


def checked_header(name: str, header: list[str]) -> list[str]:
    named = [column for column in header if column]  # pandas leaves that of its index empty
    twice = sorted({column for column in named if named.count(column) > 1})
    if twice:
        raise UserError(f"{name}: its first line names the column {twice[0]!r} twice.")
    if len(named) < 2:
        raise UserError(f"{name}: its first line does not name several columns.")
    return header


def parquet_rows(name: str, data: bytes) -> list[dict]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UserError(f"{name}: parquet files need pyarrow: pip install pyarrow") from error
    try:
        file = ParquetFile(pyarrow.BufferReader(data))
        about = file.metadata
        if sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups)) > MOST_UNPACKED:
            raise UserError(
                f"{name} unpacks to more than {MOST_UNPACKED >> 20} MB: save the rows that you need as JSONL."
            )
        return file.read().to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{name} cannot be read as parquet: {error}.") from error


def zip_rows(path: Path) -> Iterator[tuple[str, dict]]:
    """The rows of the CSV in the official GPQA archive, decrypted in memory: nothing is written to disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = read_member(archive, GPQA_ZIP_MEMBER, GPQA_ZIP_PASSWORD).decode("utf-8-sig")
    except KeyError as error:
        raise UserError(f"{path.name} holds no {GPQA_ZIP_MEMBER}: it is not the official GPQA archive.") from error
    except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} cannot be read as the official GPQA archive: {error}.") from error
    for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), start=1):
        yield f"{path.name} row {number}", row
