"""Connections to PostgreSQL: values as the bank has them, several statements in one message, a writer and readers."""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from struct import pack
from sys import byteorder
from typing import Any

from core.errors import UserError
from core.memory.store.schema import Dialect, storable

EVERYONE = "*"  # the namespace of a session that reads and writes those of all
ESCAPE = "\U000f0000"  # PostgreSQL takes no NUL in a text: it is stored as this and "0", this itself as this and "e"
LOCK = "'records'::regclass::oid::bigint"  # of who writes to a bank
WAIT_S = 10  # for a server that does not answer, unless the URL says otherwise
GONE_S = 24  # after which either end gives up another that is silent: its cable was pulled, its power is gone
_OTHER_WAYS = "sort seqscan bitmapscan hashjoin mergejoin".split()
# With one way left, no value would change the plan: it is made once, and saves a tenth of a search.
_IN_ITS_ORDER = "SELECT set_config('plan_cache_mode', 'force_generic_plan', true), " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in _OTHER_WAYS
)
_IN_ANY_ORDER = [f"SET LOCAL enable_{way} TO DEFAULT" for way in _OTHER_WAYS] + ["SET LOCAL plan_cache_mode TO auto"]
_SEE = "SELECT set_config('reasoningbank.namespace', $1, false)"
SEE_UNTIL_COMMIT = "SELECT set_config('reasoningbank.namespace', $1, true)"
# In one statement, as each takes its time from every writer. `commit` waits for the disk, without the lock; what writes
# is planned once, not while others wait.
_TO_WRITE = _SEE + (
    ", set_config('lock_timeout', $2, true), set_config('synchronous_commit', 'off', true), "
    "set_config('plan_cache_mode', 'auto', true)"
)
DIALECT = Dialect(vector_row="r.vector_row", differs="IS DISTINCT FROM", names_conflicts=True)
_CHANGES = ("INSERT", "UPDATE", "DELETE")


def connect(url: str, settings: dict[str, Any], *, read_only: bool = False) -> Connection:
    """Open a connection. settings: of the session. Raises psycopg's errors, and UserError without pgvector."""
    try:
        import psycopg
    except ImportError as error:
        raise UserError(
            f"the bank {url} needs psycopg, which is missing ({error}): pip install 'reasoningbank-harness[postgres]'."
        ) from error
    ours = {"connect_timeout": WAIT_S} | {f"keepalives_{name}": n for name, n in _asked_for(GONE_S).items()}
    ours["tcp_user_timeout"] = GONE_S * 1000
    given = {name: n for name, n in ours.items() if f"{name}=" not in url}
    pg = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor, **given)
    settings = {
        "plan_cache_mode": "force_custom_plan",
        "jit": "off",
        "client_encoding": "UTF8",
        "default_transaction_isolation": "read committed",
        "synchronous_commit": "on",  # an acknowledged lesson is on the disk, whatever the server's default
        "max_parallel_workers_per_gather": 0,
        "idle_session_timeout": 0,  # else the server ends a connection that rests, with the queue's lock
        "tcp_user_timeout": GONE_S * 1000,  # the server's: else it would hold the lock of a host that is gone for hours
    } | settings
    settings |= {f"tcp_keepalives_{name}": n for name, n in _asked_for(GONE_S).items()}
    settings |= {"default_transaction_read_only": "on"} if read_only else {}
    pg.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
    pg.row_factory = _rows
    return Connection(pg)


def _asked_for(gone_s: int) -> dict[str, int]:
    """TCP's keepalives, in seconds: when a silent end is asked whether it is there, and how often."""
    return {"idle": gone_s // 3, "interval": gone_s // 6, "count": 4}


@dataclass
class Late:
    """A statement that is sent together with the commit. found: the rows that it gave, known after it."""

    query: str
    values: tuple = ()
    found: list[tuple] = field(default_factory=list)


class Connection:
    """A session with the database; see core/memory/store/schema.py. A vector is its float32 bytes. Not thread-safe."""

    dialect = DIALECT

    def __init__(self, pg: Any) -> None:
        self.pg = pg
        self.total_changes = 0
        self._first: list[tuple[str, tuple]] = []  # statements that are to be sent before the next one
        self.vector = _adapt(pg)  # the number of its type
        self.sees = ""  # the namespace that the session is held to

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement; returns a cursor."""
        cursor = self.pg.cursor(binary=True)
        with self._begun():
            cursor.execute(query, _storable(values))
        return self._counted(cursor)

    def rows_by_graph(self, query: str, values: Sequence[Any]) -> list[tuple]:
        """All rows of a query that is to walk the graph's index in its order.

        The planner takes row-level security to leave next to no rows, and would rather read and sort them all.
        """
        from psycopg.pq import TransactionStatus

        with self._begun():
            pass
        inside = self.pg.info.transaction_status != TransactionStatus.IDLE  # the settings are to end with the query
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

    def see(self, namespace: str) -> None:
        """Read and write this namespace from now on, EVERYONE for all; row-level security holds the session to it."""
        if namespace != self.sees:
            with self._begun():
                self.pg.execute(_SEE, (namespace,))
            self.sees = namespace

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
        """Send rows by a COPY FROM STDIN. types: of those columns that are no texts."""
        cursor = self.pg.cursor(binary=True)
        with cursor.copy(statement) as copy:
            types = types | {"vector": self.vector}
            copy.set_types([types.get(name, "text") for name in columns])
            for row in rows:
                copy.write_row(row)

    def begin(self, namespace: str, wait_s: float, lock: str = "", *, at_once: bool = False) -> None:
        """Begin a transaction and wait for this connection's turn to write: psycopg's LockNotAvailable after wait_s.

        That is sent together with the first statement, so that others do not wait for the way between the two, or
        with at_once.

        lock   what it waits for, where there is no bank yet
        """
        self._first = [
            ("BEGIN", ()),
            (_TO_WRITE, (namespace, f"{int(wait_s * 1000)}ms")),
            (f"SELECT pg_advisory_xact_lock({lock or LOCK})", ()),
        ]
        self.sees = namespace
        if at_once:
            with self._begun():
                pass

    def before_lock(self, query: str, values: Sequence[Any]) -> bool:
        """Let a statement be sent before the turn to write is waited for; False where that is had already."""
        if not self._first:
            return False
        self._first.insert(-1, (query, _storable(values)))
        return True

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Around a statement: sends what `begin` has left to be sent before it."""
        if not self._first:
            yield
            return
        first, self._first = self._first, []
        with self.pg.pipeline():
            for query, values in first:
                self.pg.execute(query, values)
            yield

    def commit(self, *statements: Late, durable: bool = True) -> None:
        """Run some last statements and commit, which lets others write; then wait for the disk, together with them.

        All of it is one message, what `begin` has left to be sent too.
        """
        first, self._first = self._first, []
        if first and not statements:  # nothing was done
            return
        with self.pg.pipeline():
            for query, values in first:
                self.pg.execute(query, values)
            asked = [self.pg.execute(one.query, _storable(one.values), binary=True) for one in statements]
            self.pg.execute("COMMIT")
            if durable:  # a commit of anything brings all that was committed before it to the disk
                self.pg.execute("SELECT pg_logical_emit_message(true, 'reasoningbank', '')")
        for one, cursor in zip(statements, asked):
            one.found = cursor.fetchall() if cursor.description else []

    def roll_back(self) -> None:
        """Undo what was done since `begin`, as far as the connection still stands."""
        import psycopg

        self._first = []
        self.sees = ""  # a setting of the transaction went with it
        with suppress(psycopg.Error):
            self.pg.execute("ROLLBACK")

    def is_idle(self) -> bool:
        """Whether it stands, and is in no transaction: a statement of several that failed leaves one."""
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
    """psycopg's row factory: texts with their NULs. One look at a row takes less than a loader called for each text."""

    def row(values: Sequence[Any]) -> tuple:
        for value in values:
            if type(value) is str and ESCAPE in value:
                return tuple(map(_restored, values))
        return tuple(values)

    return row


def _adapt(pg: Any) -> int:
    """Texts with their NULs, numbers of either kind, and bytes as vectors, whose type is returned: no other bytes."""
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
            return pack(">HH", len(obj) // 4, 0) + _swapped(obj)

    class VectorLoader(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> bytes:
            return _swapped(bytes(data)[4:])

    pg.adapters.register_dumper(str, CopiedText)
    pg.adapters.register_dumper(str, Text)
    pg.adapters.register_dumper(str, UnknownText)  # the last is the one that is taken
    pg.adapters.register_loader("numeric", Number)
    pg.adapters.register_dumper(bytes, VectorDumper)
    pg.adapters.register_loader(found, VectorLoader)
    return found


def _swapped(data: bytes) -> bytes:
    """float32 numbers from this machine's order of bytes to the network's, or back."""
    numbers = array("f", data)
    if byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


KEPT_IDLE = 4  # connections that stay open for the next to read
READERS = 16  # connections that read at once; a server has 100 for all processes, unless its owner wants more


class Connections:
    """Those of an open bank and of its tenants' views of it: one that writes, and as many as read, up to READERS."""

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
