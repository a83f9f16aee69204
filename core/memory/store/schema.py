"""How a record becomes a row and back, and the statements in which the two databases agree or differ."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from core.memory.filter import folded_tags
from core.types import Lesson, MemoryRecord

# A record's fields in the order of the table's columns; the embedding lies in `vectors`.
FIELDS = tuple(
    "id namespace status outcome domain tags task_id original_query items source_trajectory_id score label_source "
    "created_at tick confidence n_used n_used_success n_helpful n_harmful last_used trust parents provenance".split()
)
COLUMNS = (*FIELDS, "folded_tags")  # the last as a filter compares them
BARE = f"SELECT rowid, {', '.join(FIELDS)}, NULL"  # a row like those of Dialect.records, its vector left out
SET_ASIDE = ("archived", "superseded")  # no search looks for these: a bank may drop their vectors until they come back
LACKS_VECTOR = (
    f"v.vector IS NULL AND (r.status NOT IN {SET_ASIDE} OR NOT EXISTS (SELECT 1 FROM meta WHERE key = 'drops_vectors'))"
)

# What a change can be undone in: each table with its columns, and how many of these, the first, are its key.
TRACKED = {
    "records": (("rowid", *COLUMNS), 3),
    "links": (("namespace", "source", "relation", "target", "note"), 4),
    "facts": (("namespace", "key", "value"), 2),
}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Where the SQL of the two databases differs. The rest is said once: `$1` for values, json_extract, json_each.

    vector_row        what names the row of `vectors` of a record `r`
    differs           stands between two rows that are not the same, NULLs compared like values
    names_conflicts   whether ON CONFLICT DO UPDATE must say of which key
    """

    vector_row: str
    differs: str
    names_conflicts: bool

    @cached_property
    def records(self) -> str:
        """The query for rows that `to_record` takes: of records `r`, with their vectors `v`."""
        return (
            f"SELECT r.rowid, {', '.join('r.' + name for name in FIELDS)}, v.vector "
            f"FROM records r LEFT JOIN vectors v ON v.rowid = {self.vector_row}"
        )

    @cached_property
    def mark_unembedded(self) -> str:
        """The statement that tells whoever has an embedder that some records want a vector and have none."""
        return (
            "INSERT INTO meta SELECT 'unembedded', '1' FROM records r "
            f"LEFT JOIN vectors v ON v.rowid = {self.vector_row} WHERE {LACKS_VECTOR} LIMIT 1 ON CONFLICT DO NOTHING"
        )


class SqlSession(Protocol):
    """What executes the statements of both databases, inside a transaction.

    total_changes   rows that were inserted, updated and deleted so far
    """

    dialect: Dialect
    total_changes: int

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement with values for $1, $2 ...; its cursor has fetchone, fetchall and rowcount."""

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""


def places(n: int, after: int = 0) -> str:
    """`$1, $2, ...`: places for n values, those before them passed over."""
    return ", ".join(f"${number}" for number in range(after + 1, after + n + 1))


def row_of(record: MemoryRecord) -> list[Any]:
    """The values of COLUMNS."""
    return [*(to_column(name, getattr(record, name)) for name in FIELDS), column_of_tags(record.tags)]


def column_of_tags(tags: Sequence[str]) -> str:
    """The value of folded_tags."""
    return storable(json.dumps(folded_tags(tags), ensure_ascii=False)) if tags else "[]"


def to_column(name: str, value: Any) -> Any:
    """One field's value as a database stores it: what is nested becomes JSON."""
    if name == "items":
        value = json.dumps([vars(item) for item in value], ensure_ascii=False)
    elif name in _EMPTY:
        value = json.dumps(value, ensure_ascii=False, sort_keys=True) if value else _EMPTY[name]
    return storable(value)


_EMPTY = {"tags": "[]", "parents": "[]", "provenance": "{}"}


def storable(value: Any) -> Any:
    """A value without halves of surrogate pairs, which a model's escapes leave in a text and SQLite does not take."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value


def to_record(row: tuple) -> MemoryRecord:
    """A row of Dialect.records as a record."""
    values, blob = dict(zip(FIELDS, row[1:])), row[-1]
    values["query_embedding"] = () if blob is None else struct.unpack(f"{len(blob) // 4}f", blob)
    for name in ("tags", "parents"):
        values[name] = tuple(json.loads(text)) if (text := values[name]) != "[]" else ()
    values["provenance"] = json.loads(text) if (text := values["provenance"]) != "{}" else {}
    values["items"] = tuple(Lesson(**item) for item in json.loads(values["items"]))
    return MemoryRecord(**values)


def to_dict(record: MemoryRecord) -> dict[str, Any]:
    """A record as plain JSON data, without its embedding."""
    values = {name: getattr(record, name) for name in FIELDS}
    values |= {"items": [dict(vars(item)) for item in record.items]}
    return values | {"tags": list(record.tags), "parents": list(record.parents)}


def from_dict(values: dict[str, Any]) -> MemoryRecord:
    """The record that to_dict described. Raises KeyError, TypeError or ValueError where it describes none."""
    items = tuple(Lesson(**item) for item in values["items"])
    tuples = {name: tuple(values[name]) for name in ("tags", "parents", "query_embedding") if name in values}
    return MemoryRecord(**values | {"items": items} | tuples)
