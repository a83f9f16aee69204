"""Opening, reading and writing a bank in a PostgreSQL schema, for one namespace or for all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

from core.errors import StopRun, UserError
from core.memory.postgres import setup
from core.memory.postgres.connection import DIALECT, EVERYONE, Connection
from core.memory.postgres.pool import Connections
from core.memory.store.contract import BankStore, Busy, Texts

BUSY_S = 60  # seconds that a writer waits for others
State = tuple[int, str | None]  # of the bank: last journal entry, journal entry of the last erasure
_STATE = "SELECT coalesce(max(seq), 0), (SELECT value FROM meta WHERE key = 'forgot') FROM journal"


class PostgresDatabase(BankStore):
    """The bank in the first schema on search_path (set in the URL; default public). Thread-safe.

    Reads use a connection of their own from a pool, so that they see the last committed state while another thread
    writes. A connection that breaks is replaced by the next call.
    """

    dialect = DIALECT
    path: str

    def __init__(self, url: str, settings: dict[str, Any], *, read_only: bool = False) -> None:
        self.path, self.namespace = url, EVERYONE
        self._shared = Connections(url, settings, read_only)
        try:
            with self.explaining(), self._shared.reading() as db:
                found = setup.version(db)
                self._shared.warn_of_role(db, has_bank=found is not None)
            if found is None and read_only:
                raise UserError(f"memory.path={url} holds no bank, and a frozen bank is only read.")
            if found in setup.OLDER and read_only:
                raise UserError(
                    f"the bank {url} is of an older version: let the owner of its tables open it to write once."
                )
            if found in (None, *setup.OLDER):
                with self.unjournaled(lock=setup.LOCK) as db:
                    setup.create(db)
            elif found != setup.SCHEMA:
                raise UserError(f"the bank {url} has schema {found}: this version reads {setup.SCHEMA}.")
        except BaseException:
            self.close()
            raise

    def of(self, namespace: str | None) -> Self:
        if namespace == EVERYONE:
            raise UserError(f"namespace={EVERYONE}: that means everyone; give another name.")
        other = copy(self)
        other.namespace = EVERYONE if namespace is None else namespace
        return other

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn psycopg's errors into Busy, UserError or StopRun with one sentence."""
        import psycopg

        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise Busy(f"others are writing to the bank {self.path}") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise UserError(f"the bank {self.path} is opened for reading only.") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise UserError(f"the bank {self.path}: the role may not do that: {_first_line(error)}.") from error
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            raise StopRun(f"the bank {self.path} cannot be reached or written: {_first_line(error)}.") from error

    @contextmanager
    def unjournaled(self, wait_s: float | None = None, *, lock: str = "") -> Iterator[Connection]:
        """lock: the lock to take, if there is no bank yet."""
        shared = self._shared
        shared.check_process()  # before a lock that another thread may have held at the fork
        if shared.writer == threading.get_ident():
            raise RuntimeError("a change is open already: changes cannot be nested")
        if not shared.lock.acquire(timeout=-1 if wait_s is None else wait_s):
            raise Busy(f"others are writing to the bank {self.path}")
        try:
            with self.explaining():
                db = shared.to_write()
                try:
                    db.begin(
                        self.namespace,
                        BUSY_S if wait_s is None else wait_s,
                        lock,
                        at_once=wait_s is not None or bool(lock),
                    )
                    shared.writer = threading.get_ident()
                    yield db
                    db.commit(durable=wait_s is None)
                except BaseException:
                    db.roll_back()
                    raise
        finally:
            shared.writer = None
            shared.lock.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """The connection for reads of this thread, restricted to the namespace of this view."""
        shared = self._shared
        with self.explaining():
            if shared.writer == threading.get_ident():
                db = shared.to_write()
                before = db.namespace
                db.set_namespace(self.namespace)
                yield db
                db.set_namespace(before)
            else:
                with shared.reading() as db:
                    db.set_namespace(self.namespace)
                    yield db

    def rows(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query, restricted to the namespace of this view."""
        with self.reading() as db:
            return db.execute(query, values).fetchall()

    def dim(self) -> int | None:
        if self._shared.dim is None:
            found = self.of(None).rows("SELECT vector_dims(vector) FROM keys LIMIT 1")
            self._shared.dim = found[0][0] if found else None
        return self._shared.dim

    @property
    def is_changing(self) -> bool:
        return self._shared.writer == threading.get_ident()

    def texts(self, namespace: str | None, known: State | None) -> Texts:
        """A row that is changed while this reads is read again by the next call."""
        view, query = self.of(namespace), "SELECT rowid, original_query, items FROM records"
        state: State = view.rows(_STATE)[0]
        if known is None or known[1] != state[1]:
            return Texts(state, None, view.rows(query))
        if known == state:
            return Texts(state, [], [])
        touched = "SELECT DISTINCT rowid FROM undo_records WHERE seq > $1"
        gone = [row[0] for row in view.rows(touched, known[:1])]
        return Texts(state, gone, view.rows(f"{query} WHERE rowid = ANY ($1)", (gone,)))

    def ensure_graphs(self, least: int) -> None:
        """Build missing HNSW graphs for kinds with at least `least` keys, if the role owns them."""
        with self.explaining(), self._shared.lock:
            setup.ensure_graphs(self._shared.to_write(), self.dim(), least)

    def size(self) -> int:
        """Size in bytes of all tables and their indexes."""
        names = ", ".join(f"'{name}'" for name in (*setup.TENANTS, "meta", "journal"))
        query = f"SELECT coalesce(sum(pg_total_relation_size(n::regclass)), 0) FROM unnest(ARRAY[{names}]) n"
        return int(self.rows(query)[0][0])

    def close(self) -> None:
        self._shared.close()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
