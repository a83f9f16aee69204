"""The file under a cache: values by key in SQLite, for all threads and processes that open it."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import StopRun, UserError


@dataclass(kw_only=True)
class KeyValueFile:
    """One table of a SQLite file, opened (or made) at first use. Thread-safe.

    what      the cache's name in error messages, e.g. "the response cache"
    table     the table's name
    columns   the SQL definitions of its columns: the first is `key TEXT PRIMARY KEY`, the last holds the value

    Every use may raise UserError, when the file is something else or damaged, and StopRun, when the disk refuses.
    """

    path: str
    what: str
    table: str
    columns: str
    _db: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def get(self, key: str) -> Any:
        """The value kept under a key: bytes or text, as it was put; None when there is none."""
        row = self._execute(f"SELECT * FROM {self.table} WHERE key = ?", key)
        return row and row[-1]

    def put(self, key: str, *values: Any) -> None:
        """Keep a row: a value for each column after the key. A row that is there already stays as it is."""
        marks = ", ?" * len(values)
        self._execute(f"INSERT OR IGNORE INTO {self.table} VALUES (?{marks})", key, *values)

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _execute(self, sql: str, *values: Any) -> Any:
        """The first row of a statement's result, None without one; a statement that writes is one transaction."""
        try:
            with self._lock:
                self._db = self._db or self._open()
                return self._db.execute(sql, values).fetchone()
        except (sqlite3.OperationalError, OSError) as error:  # full, locked, or not ours to read or write
            raise StopRun(f"{self.what} {self.path} cannot be read or written: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"{self.what} {self.path} cannot be used: {error}; delete it.") from error

    def _open(self) -> sqlite3.Connection:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=30, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")  # losing the last rows to a power cut costs a cache nothing
            db.execute(f"CREATE TABLE IF NOT EXISTS {self.table} ({self.columns})")
        except sqlite3.Error:
            db.close()
            raise
        return db
