"""The connections of an open bank: one that writes, and as many as read at once, up to READERS."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from core.memory.postgres.connection import Connection, connect

KEPT_IDLE = 4  # connections that stay open for the next to read
READERS = 16  # connections that read at once; a server has 100 for all processes, unless its owner wants more


class Connections:
    """The connections of a store and of its tenants' views of it."""

    def __init__(self, url: str, settings: dict[str, Any], read_only: bool) -> None:
        self.url, self.read_only = url, read_only
        self.dim: int | None = None
        self.lock = threading.Lock()
        self.writer: int | None = None  # the thread that has a transaction open
        self._settings = settings
        self._db: Connection | None = None
        self._idle: list[Connection] = []
        self._idle_lock = threading.Lock()
        self._reader = threading.BoundedSemaphore(READERS)
        self._closed = False

    def connect(self) -> Connection:
        return connect(self.url, self._settings, read_only=self.read_only)

    def to_write(self) -> Connection:
        """The connection that writes; the caller has the lock."""
        if self._db is None or self._db.pg.closed:
            self._db = self.connect()
        return self._db

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with, while fewer than READERS do; a thread must not ask for a second one meanwhile."""
        with self._reader:
            db = self._take() or self.connect()
            try:
                yield db
            finally:
                with self._idle_lock:  # else many that end at once would all find room
                    keep = not self._closed and len(self._idle) < KEPT_IDLE and db.is_idle()
                    if keep:
                        self._idle.append(db)
                if not keep:
                    db.close()

    def _take(self) -> Connection | None:
        with suppress(IndexError):
            return self._idle.pop()
        return None

    def warn_of_superuser(self, db: Connection) -> None:
        """Row-level security does not hold for some roles."""
        query = "SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)"
        for (name,) in db.execute(query).fetchall():
            logging.getLogger(__name__).warning(
                f"the bank {self.url}: the role {name} is above row-level security, so nothing in the database keeps "
                "tenants apart: use another (docs/shared_bank.md)."
            )

    def close(self) -> None:
        with self.lock, self._idle_lock:
            self._closed = True
            for db in [*self._idle, *filter(None, [self._db])]:
                db.close()
            self._idle.clear()
