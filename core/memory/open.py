"""The database that a bank's path names, opened; the one place that tells a URL of PostgreSQL from an SQLite file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from core.errors import is_url
from core.memory.sqlite.store import Store
from core.memory.store.contract import BankStore
from core.memory.store.schema import BARE, RECORDS, to_record
from core.types import MemoryRecord


def open_store(path: str | Path, *, read_only: bool = False, how: Any = None) -> BankStore:
    """The database that a bank's path names: a PostgreSQL URL or an SQLite file. how: `memory.store`."""
    if how is None and not is_url(path):
        return Store(path, read_only=read_only)
    from core.memory.postgres.store import Postgres

    return (how or Postgres()).open(str(path), read_only=read_only)


def embedder_of(path: str | Path, *, read_only: bool = False) -> str | None:
    """The name of the embedder that a bank was made with; None where there is no bank, or nothing in it."""
    if not is_url(path) and not Path(path).exists():
        return None
    with closing(open_store(path, read_only=read_only)) as store:
        return store.meta("embedder")


def read_records(path: str | Path, namespace: str, *, vectors: bool = False) -> list[MemoryRecord]:
    """The records of a namespace, oldest first, of a bank that is only looked at; without embeddings unless `vectors`.

    None where there is no file; leaves no trace beside it. Raises UserError where it is damaged or no bank.
    """
    if not is_url(path) and not Path(path).is_file():
        return []
    with closing(open_store(path, read_only=True)) as store:
        select = RECORDS if vectors else f"{BARE} FROM records r"
        rows = store.of(namespace).rows(f"{select} WHERE r.namespace = ? ORDER BY r.rowid", (namespace,))
    return [to_record(row) for row in rows]
