"""The connections of an open bank to PostgreSQL: one writer and many readers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from core.errors import UserError
from core.memory.postgres.connection import Connection, connect
from core.memory.store.contract import Busy

KEPT_IDLE = 4  # idle connections that stay open for later reads
READERS = 16  # max. connections that read at once; a server allows 100 for all processes by default
READER_S = 60  # seconds that a read waits for one of them


class Connections:
    """The connections of an open bank, shared by its views (`of`): one that writes, and up to READERS that read.

    psycopg_pool is not used: where the server refuses it waits for its timeout (30 s) and cannot say why, a server that
    was restarted fails one call even with its check, which is a round trip (30 us; `is_alive`: 0.2 us), and each bank
    would have three threads more.
    """

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
        self._process = os.getpid()

    def check_process(self) -> None:
        """UserError in a process that was forked since: two processes on one connection read each other's rows."""
        if os.getpid() != self._process:
            raise UserError(f"the bank {self.url} was opened before this process was forked: open it here anew.")

    def connect(self) -> Connection:
        return connect(self.url, self._settings, read_only=self.read_only)

    def to_write(self) -> Connection:
        """The connection that writes. The caller must hold `lock`."""
        self.check_process()
        if self._db is not None and not (self.writer or self._db.is_alive()):
            self._db.close()
            self._db = None
        self._db = self._db or self.connect()
        return self._db

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reads; waits while READERS are in use, then Busy. A thread may hold only one."""
        self.check_process()
        if not self._reader.acquire(timeout=READER_S):
            raise Busy(f"{READERS} others are reading the bank {self.url}, and none has ended in {READER_S} s")
        try:
            db = self._take() or self.connect()
            try:
                yield db
            finally:
                with self._idle_lock:  # so that at most KEPT_IDLE are kept
                    keep = not self._closed and len(self._idle) < KEPT_IDLE and db.is_idle()
                    if keep:
                        self._idle.append(db)
                if not keep:
                    db.close()
        finally:
            self._reader.release()

    def _take(self) -> Connection | None:
        with suppress(IndexError):
            while not (db := self._idle.pop()).is_alive():
                db.close()
            return db
        return None

    def warn_of_role(self, db: Connection, *, has_bank: bool) -> None:
        """Log a warning if row-level security does not hold for the role, or protects nothing.

        The latter if it is bound and may act as the tables' owner, as in a bank of before schema 5.
        """
        bypasses = "SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)"
        said = {bypasses: "bypasses row-level security, so nothing in the database keeps tenants apart: use another"}
        owner = "(SELECT relowner FROM pg_class WHERE oid = 'members'::regclass)"
        acts = f"SELECT role FROM members WHERE role = session_user AND pg_has_role(role, {owner}, 'MEMBER') LIMIT 1"
        if has_bank:
            said[acts] = "is bound to a tenant, which protects nothing, as it may act as the owner of the bank's tables"
        for query, what in said.items():
            for (name,) in db.execute(query).fetchall():
                logging.getLogger(__name__).warning(f"the bank {self.url}: the role {name} {what} (docs/memory.md).")

    def close(self) -> None:
        if os.getpid() != self._process:  # it would end the session of the process that opened it
            return
        with self.lock, self._idle_lock:
            self._closed = True
            for db in [*self._idle, *filter(None, [self._db])]:
                db.close()
            self._idle.clear()
