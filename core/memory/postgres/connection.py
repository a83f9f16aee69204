"""A connection to PostgreSQL: conversion of values, several statements in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from core.errors import UserError
from core.memory.store.schema import Dialect, storable

EVERYONE = "*"  # the namespace of a session that reads and writes all namespaces
ESCAPE = "\U000f0000"  # PostgreSQL has no NUL in texts: NUL is stored as ESCAPE + "0", ESCAPE itself as ESCAPE + "e"
LOCK = "'records'::regclass::oid::bigint"  # advisory lock of the bank's writers
WAIT_S = 10  # connect timeout in seconds, unless the URL sets one
GONE_S = 24  # seconds after which either end closes a connection whose other end is silent (no network, no power)
_OTHER_WAYS = "sort seqscan bitmapscan hashjoin mergejoin".split()
# With only the graph's index left, the plan does not depend on the values: it is made once, which saves a tenth of the
# time of a search.
_IN_ITS_ORDER = "SELECT set_config('plan_cache_mode', 'force_generic_plan', true), " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in _OTHER_WAYS
)
_IN_ANY_ORDER = [f"SET LOCAL enable_{way} TO DEFAULT" for way in _OTHER_WAYS] + ["SET LOCAL plan_cache_mode TO auto"]
_SET_NAMESPACE = "SELECT set_config('reasoningbank.namespace', $1, false)"
SET_UNTIL_COMMIT = "SELECT set_config('reasoningbank.namespace', $1, true)"
# One statement, because every statement under the lock delays all writers. `commit` waits for the disk after the lock
# is released; statements that write use cached plans, so that others do not wait for planning.
_TO_WRITE = _SET_NAMESPACE + (
    ", set_config('lock_timeout', $2, true), set_config('synchronous_commit', 'off', true), "
    "set_config('plan_cache_mode', 'auto', true)"
)
_KEYS = {"records": "rowid", "links": "namespace, md5(source), relation, md5(target)", "facts": "namespace, key"}
_PUT_KEY = "INSERT INTO keys SELECT key_row, $2, $3, $4, namespace FROM records WHERE rowid = $1 ON CONFLICT DO NOTHING"
DIALECT = Dialect(key_row="key_row", put_key=_PUT_KEY, differs="IS DISTINCT FROM", keys=_KEYS)  # keys.sql
_CHANGES = ("INSERT", "UPDATE", "DELETE")


def connect(url: str, settings: dict[str, Any], *, read_only: bool = False) -> Connection:
    """Open a connection. settings: of the session. Raises psycopg's errors, and UserError without pgvector."""
    try:
        import pgvector  # noqa: F401
        import psycopg
    except ImportError as error:
        raise UserError(
            f"the bank {url} needs psycopg and pgvector ({error}): pip install 'reasoningbank-harness[postgres]'."
        ) from error
    ours: dict[str, Any] = {f"keepalives_{name}": n for name, n in _asked_for(GONE_S).items()}
    ours["connect_timeout"] = WAIT_S
    ours["tcp_user_timeout"] = GONE_S * 1000
    given = {name: n for name, n in ours.items() if f"{name}=" not in url}
    pg = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor, **given)
    settings = {
        "plan_cache_mode": "force_custom_plan",
        "jit": "off",
        "client_encoding": "UTF8",
        "default_transaction_isolation": "read committed",
        "synchronous_commit": "on",  # an acknowledged lesson is on disk, whatever the server's default
        "max_parallel_workers_per_gather": 0,
        "idle_session_timeout": 0,  # else the server closes idle connections, and the queue's lock is lost
        "tcp_user_timeout": GONE_S * 1000,  # for the server: else it keeps the locks of a host that is gone for hours
    } | settings
    settings |= {f"tcp_keepalives_{name}": n for name, n in _asked_for(GONE_S).items()}
    settings |= {"default_transaction_read_only": "on"} if read_only else {}
    pg.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()).encode())
    pg.row_factory = _rows
    return Connection(pg)


def _asked_for(gone_s: int) -> dict[str, int]:
    """TCP keepalive settings: seconds of silence before the first probe, seconds between probes, number of probes."""
    return {"idle": gone_s // 3, "interval": gone_s // 6, "count": 4}


class Connection:
    """A SqlSession (core/memory/store/schema.py). Vectors are float32 bytes. Not thread-safe.

    vector      oid of the type `vector`
    namespace   the namespace that row-level security restricts the session to; EVERYONE: none
    """

    dialect = DIALECT

    def __init__(self, pg: Any) -> None:
        self.pg = pg
        self.total_changes = 0
        self._first: list[tuple[str, tuple]] = []  # statements to send before the next one
        self._last: list[tuple[str, tuple]] = []  # and with COMMIT
        self.vector = _adapt(pg)
        self.namespace = ""

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement; returns a cursor."""
        cursor = self.pg.cursor(binary=True)
        with self._begun():
            cursor.execute(query, _storable(values))
        return self._counted(cursor)

    def rows_by_graph(self, query: str, values: Sequence[Any]) -> list[tuple]:
        """All rows of a query that must use the graph's index.

        Without this the planner assumes that row-level security leaves hardly any rows, and reads and sorts them all.
        """
        from psycopg.pq import TransactionStatus

        with self._begun():
            pass
        inside = self.pg.info.transaction_status != TransactionStatus.IDLE  # the settings must end with the query
        with self.pg.pipeline():
            if not inside:
                self.pg.execute("BEGIN READ ONLY")
            self.pg.execute(_IN_ITS_ORDER)
            cursor = self.pg.cursor(binary=True)
            cursor.execute(query, _storable(values))
            for statement in _IN_ANY_ORDER if inside else ("COMMIT",):
                self.pg.execute(statement)
        return cursor.fetchall()

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""
        if rows := list(rows):
            cursor = self.pg.cursor(binary=True)
            with self._begun():
                cursor.executemany(query, list(map(_storable, rows)))
            self._counted(cursor)

    def set_namespace(self, namespace: str) -> None:
        """Restrict the session to a namespace (by row-level security) from now on; EVERYONE: to none."""
        if namespace != self.namespace:
            with self._begun():
                self.pg.execute(_SET_NAMESPACE, (namespace,))
            self.namespace = namespace

    def rows(self, query: str, values: Sequence[Any]) -> list[tuple]:
        """All rows of a query."""
        return self.execute(query, values).fetchall()

    def script(self, statements: str) -> None:
        """Run several statements without values."""
        with self._begun():
            pass
        self.pg.execute(statements)

    def copy(
        self, statement: str, rows: Iterable[Sequence[Any]], types: dict[str, str], columns: Sequence[str]
    ) -> None:
        """Send rows by COPY FROM STDIN. types: {column: type} of the columns that are not text."""
        cursor = self.pg.cursor(binary=True)
        with cursor.copy(statement) as copy:
            oids: dict[str, str | int] = {**types, "vector": self.vector}
            copy.set_types([oids.get(name, "text") for name in columns])
            for row in rows:
                copy.write_row(row)

    def begin(self, namespace: str, wait_s: float, lock: str = "", *, at_once: bool = False) -> None:
        """Begin a transaction and wait for the writers' lock; psycopg's LockNotAvailable after wait_s.

        lock      another lock, if there is no bank yet
        at_once   True: send this now; False: with the first statement, to save other writers a round trip
        """
        self._first = [
            ("BEGIN", ()),
            (_TO_WRITE, (namespace, f"{int(wait_s * 1000)}ms")),
            (f"SELECT pg_advisory_xact_lock({lock or LOCK})", ()),
        ]
        self.namespace = namespace
        if at_once:
            with self._begun():
                pass

    def before_lock(self, query: str, values: Sequence[Any]) -> bool:
        """Queue a statement to be sent before the writers' lock is taken; False if it is taken already."""
        if not self._first:
            return False
        self._first.insert(-1, (query, _storable(values)))
        return True

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Context of a statement: first sends the statements that `begin` has queued."""
        if not self._first:
            yield
            return
        first, self._first = self._first, []
        with self.pg.pipeline():
            for query, values in first:
                self.pg.execute(query, values)
            yield

    def at_commit(self, *statements: tuple[str, tuple]) -> None:
        """Queue statements to be sent in the same message as COMMIT."""
        self._last += [(query, _storable(values)) for query, values in statements]

    def commit(self, *, durable: bool = True) -> None:
        """Commit, if anything was sent since `begin`.

        The commit releases the writers' lock; with durable the disk is waited for after that, so that concurrent
        writers share the wait.
        """
        last, self._last = self._last, []
        if self._first:  # nothing was done
            self._first = []
            return
        with self.pg.pipeline():
            for query, values in last:
                self.pg.execute(query, values)
            self.pg.execute("COMMIT")
            if durable:  # a synchronous commit also flushes everything committed before it
                self.pg.execute("SELECT pg_logical_emit_message(true, 'reasoningbank', '')")

    def roll_back(self) -> None:
        """Roll back the transaction; does nothing if the connection is lost."""
        import psycopg

        self._first, self._last = [], []
        self.namespace = ""  # unknown: the rollback has reset it
        with suppress(psycopg.Error):
            self.pg.execute("ROLLBACK")

    def is_alive(self) -> bool:
        """Whether the server has not ended the connection, as far as it has said so; sends nothing."""
        import psycopg

        try:
            for _ in range(2):  # the first reads why the server ended it, the second that it did
                self.pg.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        return True

    def is_idle(self) -> bool:
        """Whether the connection is open and in no transaction; a failed statement of several leaves one open."""
        from psycopg.pq import TransactionStatus

        return self.pg.info.transaction_status == TransactionStatus.IDLE

    def close(self) -> None:
        self.pg.close()

    def _counted(self, cursor: Any) -> Any:
        if (cursor.statusmessage or "").startswith(_CHANGES):
            self.total_changes += max(cursor.rowcount, 0)
        return cursor


def _storable(values: Sequence[Any]) -> tuple:
    return tuple(map(storable, values))


def _escaped(text: str) -> str:
    if "\0" not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, f"{ESCAPE}e").replace("\0", f"{ESCAPE}0")


def _restored(value: Any) -> Any:
    return value.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}e", ESCAPE) if isinstance(value, str) else value


def _rows(cursor: Any) -> Callable[[Sequence[Any]], tuple]:
    """psycopg's row factory, which restores NULs in texts. Checking a row is faster than a loader for each text."""

    def row(values: Sequence[Any]) -> tuple:
        for value in values:
            if type(value) is str and ESCAPE in value:
                return tuple(map(_restored, values))
        return tuple(values)

    return row


def _adapt(pg: Any) -> int:
    """Register the conversion of texts (with NULs), numerics, and bytes as vectors; returns the oid of `vector`."""
    import numpy as np
    from pgvector import Vector
    from psycopg.adapt import Buffer, Dumper, Loader
    from psycopg.pq import Format
    from psycopg.types.numeric import NumericBinaryLoader
    from psycopg.types.string import StrBinaryDumper, StrDumper, StrDumperUnknown

    found = pg.execute("SELECT to_regtype('vector')::oid").fetchone()[0]
    if found is None:
        raise UserError(
            f"the database {pg.info.dbname} has no pgvector: a superuser must run CREATE EXTENSION vector in it once."
        )

    class Text(StrDumper):
        def dump(self, obj: str) -> Buffer | None:
            return super().dump(_escaped(obj))

    class CopiedText(StrBinaryDumper):
        def dump(self, obj: str) -> Buffer | None:
            return super().dump(_escaped(obj))

    class UnknownText(StrDumperUnknown):
        def dump(self, obj: str) -> Buffer | None:
            return super().dump(_escaped(obj))

    class Number(NumericBinaryLoader):
        def load(self, data: Buffer) -> Any:
            value = super().load(data)
            return int(value) if value == value.to_integral_value() else float(value)

    class VectorDumper(Dumper):
        format, oid = Format.BINARY, found

        def dump(self, obj: bytes) -> Buffer | None:
            return Vector(np.frombuffer(obj, dtype=np.float32)).to_binary()

    class VectorLoader(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> bytes:
            return Vector.from_binary(data).to_numpy().tobytes()

    pg.adapters.register_dumper(str, CopiedText)
    pg.adapters.register_dumper(str, Text)
    pg.adapters.register_dumper(str, UnknownText)  # psycopg uses the last one registered
    pg.adapters.register_loader("numeric", Number)
    pg.adapters.register_dumper(bytes, VectorDumper)
    pg.adapters.register_loader(found, VectorLoader)
    return found
