"""SqlSession (core/memory/store/schema.py) for SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from core.memory.sqlite.setup import DIALECT
from core.memory.store.schema import storable


class SqliteSession:
    """Executes statements of both databases: adapts $1, $2 placeholders (named parameters in SQLite)."""

    dialect = DIALECT

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    @property
    def total_changes(self) -> int:
        return self.db.total_changes

    def execute(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.db.execute(query, _by_name(values))

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        self.db.executemany(query, map(_by_name, rows))


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    return {str(place): storable(value) for place, value in enumerate(values, 1)}
