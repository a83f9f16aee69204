"""Conversion of records to rows and back, and the SQL that the two databases share or not (`Dialect`)."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec

from core.errors import UserError
from core.memory.filter import folded_tags
from core.types import Lesson, MemoryRecord

# A record's fields in the order of the table's columns; the embedding lies in `keys`.
FIELDS = tuple(
    "id namespace status outcome domain tags task_id original_query items source_trajectory_id score label_source "
    "created_at tick confidence n_used n_used_success n_helpful n_harmful last_used trust parents provenance".split()
)
COLUMNS = (*FIELDS, "folded_tags")  # the last: tags normalised for comparison

# Tables with undo: columns, and the length of their key prefix.
TRACKED: dict[str, tuple[tuple[str, ...], int]] = {
    "records": (("rowid", *COLUMNS), 3),
    "links": (("namespace", "source", "relation", "target", "note"), 4),
    "facts": (("namespace", "key", "value"), 2),
}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Where the SQL of the two databases differs. The rest is shared: `$1` for values, json_extract, json_each.

    key_row   column of records with the number by which `keys` names a record
    put_key   statement that enters a key, if it is not there: row id of its record, kind, place, vector
    touch     statement that notes a record, by its row id, for the search to read its keys again; "": none is needed
    differs   null-safe inequality operator
    keys      {table: its key as ON CONFLICT DO UPDATE must name it}; {}: it need not
    """

    key_row: str
    put_key: str
    differs: str
    keys: Mapping[str, str]
    touch: str = ""

    @cached_property
    def bare(self) -> str:
        """SELECT of records, as `records`, but without FROM and with NULL for the vector."""
        return f"SELECT rowid, {', '.join(COLUMNS)}, NULL"

    @cached_property
    def records(self) -> str:
        """SELECT of records `r` with the vectors of their queries, as the rows that `to_record` takes."""
        names = ", ".join(f"r.{name}" for name in COLUMNS)
        key = f"v.origin = r.{self.key_row} AND v.kind = 'query'"
        return f"SELECT r.rowid, {names}, v.vector FROM records r LEFT JOIN keys v ON {key}"


class SqlSession(Protocol):
    """Executes statements inside a transaction; both databases have one."""

    dialect: Dialect

    @property
    def total_changes(self) -> int:
        """Number of rows inserted, updated and deleted so far."""
        ...

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement with values for $1, $2 ...; its cursor has fetchone, fetchall and rowcount."""

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""


IDS = 500  # max. values in one statement


def in_parts(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The values in order, as many at a time as one statement takes."""
    listed = list(values)
    return (listed[start : start + IDS] for start in range(0, len(listed), IDS))


def placeholders(n: int, after: int = 0) -> str:
    """Placeholders `$1, $2, ...` for n values, which come after the first `after` values."""
    return ", ".join(f"${number}" for number in range(after + 1, after + n + 1))


def row_of(record: MemoryRecord) -> list[Any]:
    """The values of COLUMNS."""
    return [*(to_column(name, getattr(record, name)) for name in FIELDS), column_of_tags(record.tags)]


def column_of_tags(tags: Sequence[str]) -> str:
    """The value of folded_tags."""
    return storable(json.dumps(folded_tags(tags), ensure_ascii=False)) if tags else "[]"


def to_column(name: str, value: Any) -> Any:
    """One field's value as a database stores it: nested values become JSON."""
    if name == "items":
        value = json.dumps([vars(item) for item in value], ensure_ascii=False)
    elif name in _EMPTY:
        value = json.dumps(value, ensure_ascii=False, sort_keys=True) if value else _EMPTY[name]
    return storable(value)


_EMPTY = {"tags": "[]", "parents": "[]", "provenance": "{}"}


def storable(value: Any) -> Any:
    """A value with lone surrogates replaced, which a model's escapes can leave in a text and SQLite refuses."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value


class Damaged(UserError):
    """A record that is not what was stored. what: which one."""

    def __init__(self, bank: object, what: str) -> None:
        self.what = what
        command = f"reasoningbank bank doctor {bank or 'BANK'}"
        super().__init__(f"the bank {bank or ''} is damaged ({what}): close it and run `{command}`.")


def to_record(row: tuple, bank: object = None) -> MemoryRecord:
    """Convert a row of Dialect.records to a record. Raises Damaged if it is damaged. bank: its path."""
    record = object.__new__(MemoryRecord)
    values = vars(record)  # filled as its __init__ does, in a third of the time
    values.update(zip(FIELDS, row[1:]))
    blob = row[-1]
    try:
        values["query_embedding"] = () if blob is None else array("f", blob)
        for name in ("tags", "parents"):
            values[name] = tuple(_decoded(text)) if (text := values[name]) != "[]" else ()
        values["provenance"] = _decoded(text) if (text := values["provenance"]) != "{}" else {}
        values["items"] = _LESSONS.decode(values["items"])
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise Damaged(bank, f"the record {row[1]!r:.80} in row {row[0]} cannot be read: {error}") from error
    return record


_LESSONS = msgspec.json.Decoder(tuple[Lesson, ...])


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)  # in a third of the time
    except msgspec.DecodeError:  # a NaN, which only Python's JSON has
        return json.loads(text)


def to_dict(record: MemoryRecord) -> dict[str, Any]:
    """Convert a record to JSON data, without its embedding."""
    values = {name: getattr(record, name) for name in FIELDS}
    values |= {"items": [dict(vars(item)) for item in record.items]}
    return values | {"tags": list(record.tags), "parents": list(record.parents)}
