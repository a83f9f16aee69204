"""Changes in PostgreSQL, where they differ from SQLite: row-level security, inserts before the lock, bulk COPY."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from core.memory.postgres.connection import EVERYONE, SET_UNTIL_COMMIT, AtCommit, Connection
from core.memory.store.changes import Change, Embed, check_status
from core.memory.store.keys import Keys
from core.memory.store.schema import COLUMNS, placeholders, row_of
from core.types import MemoryRecord

MANY = 20  # number of records from which COPY is used instead of single inserts
BATCH = 5_000  # max. records of one COPY

# A new record's keys come first, with a number of their own, and are taken back if the record exists already.
_PUT_KEY = "INSERT INTO keys SELECT n, $1, $2, $3, $4 FROM {}('key_rows') n"
_FIRST_KEY, _FURTHER_KEY = _PUT_KEY.format("nextval"), _PUT_KEY.format("currval")
_MINE = "(SELECT currval('key_rows'))"
_PUT = (
    f"WITH r AS (INSERT INTO records ({', '.join(COLUMNS)}, key_row) VALUES ({placeholders(len(COLUMNS))}, {_MINE}) "
    "ON CONFLICT DO NOTHING RETURNING rowid), "
    f"k AS (DELETE FROM keys WHERE origin = {_MINE} AND NOT EXISTS (SELECT FROM r)) SELECT rowid FROM r"
)


class PostgresChange(Change):
    """A Change whose session is restricted to one namespace: that of the change, or of the record being put.

    first       whether the bank has no vector yet
    last        a record whose insert is sent in the same message as COMMIT, to save other writers a round trip
    at_commit   the statements of that insert
    """

    _db: Connection

    def __init__(
        self, db: Connection, reason: str, namespace: str, embed: Embed, bank: object, *, first: bool = False
    ) -> None:
        super().__init__(db, reason, namespace, embed, bank)
        self._first = first
        self.last: MemoryRecord | None = None
        self.at_commit: list[AtCommit] = []

    def put(self, record: MemoryRecord, keys: Keys) -> bool:
        """`add` with given keys."""
        check_status(record.status)
        self._db.before_lock(SET_UNTIL_COMMIT, (record.namespace,))
        *first, put = self._putting(record, keys)
        self._db.set_namespace(record.namespace)
        for statement in first:
            self._db.execute(*statement)
        row = self._db.execute(*put).fetchone()
        self._db.total_changes += 0 if row is None else 1
        self._db.set_namespace(self._namespace)
        return row is not None

    def put_last(self, rows: Iterable[tuple[MemoryRecord, Keys]]) -> Callable[[], int]:
        """`put_all`, deferred to the commit if possible; the returned function gives the number after it."""
        rows = list(rows)
        if self._first or len(rows) != 1:
            return super().put_last(rows)
        self.last, keys = rows[0]
        check_status(self.last.status)
        set_namespace = SET_UNTIL_COMMIT, (self.last.namespace,)
        self.at_commit = [] if self._db.before_lock(*set_namespace) else [AtCommit(*set_namespace)]
        self.at_commit += [AtCommit(*statement) for statement in self._putting(self.last, keys)]
        return lambda: len(self.at_commit[-1].found)

    def put_all(self, rows: Iterable[tuple[MemoryRecord, Keys]]) -> int:
        """`put` many records; returns how many were new."""
        rows, added = iter(rows), 0
        while some := list(islice(rows, BATCH)):
            added += sum(self.put(*row) for row in some) if len(some) < MANY else self._copy(some)
        return added

    def _putting(self, record: MemoryRecord, keys: Keys) -> list[tuple[str, tuple]]:
        """The statements (query, values) that insert a record; the last gives its row id, none if it exists.

        If the change does not hold the writers' lock yet, the keys are inserted before it is taken: updating the HNSW
        graph takes longest. The session's namespace must be the record's.
        """
        entered = [
            (_FURTHER_KEY if number else _FIRST_KEY, (*key, record.namespace)) for number, key in enumerate(keys)
        ]
        if all(self._db.before_lock(*statement) for statement in entered):
            entered = []
        return [*entered, (_PUT, tuple(row_of(record)))]

    def _copy(self, rows: list[tuple[MemoryRecord, Keys]]) -> int:
        db, names = self._db, ", ".join(COLUMNS)
        for record, *_ in rows:
            check_status(record.status)
        db.set_namespace(EVERYONE)
        columns = f"SELECT {names}, NULL::vector AS vector, 0 AS n FROM records LIMIT 0".replace(
            "last_used", "0.0::float8 AS last_used"
        )
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS incoming ON COMMIT DELETE ROWS AS {columns}")
        db.execute("DELETE FROM incoming")
        db.copy(
            "COPY incoming FROM STDIN WITH (FORMAT BINARY)",
            ([*row_of(record), first[2], n] for n, (record, (first, *_)) in enumerate(rows)),  # first: the query's
            {"score": "float8", "confidence": "float8", "trust": "float8", "last_used": "float8"}
            | dict.fromkeys(("tick", "n_used", "n_used_success", "n_helpful", "n_harmful"), "int8")
            | {"n": "int4"},
            (*COLUMNS, "vector", "n"),
        )
        added = db.execute(
            f"WITH r AS (INSERT INTO records ({names}, key_row) "
            f"SELECT {names}, nextval('key_rows') FROM incoming ORDER BY n "
            "ON CONFLICT DO NOTHING RETURNING rowid, id, namespace, key_row), "
            "i AS (SELECT DISTINCT ON (r.rowid) r.*, vector FROM incoming JOIN r USING (namespace, id) "
            "ORDER BY r.rowid, n), "
            "k AS (INSERT INTO keys SELECT key_row, 'query', -1, vector, namespace FROM i) "
            "SELECT key_row, id, namespace FROM r"
        ).fetchall()
        db.total_changes += len(added)
        new = {(id, namespace): row for row, id, namespace in added}
        first = {(r.id, r.namespace): (r.namespace, further) for r, (_, *further) in reversed(rows)}
        further = [(new[one], *key, space) for one, (space, keys) in first.items() if one in new for key in keys]
        db.executemany("INSERT INTO keys VALUES ($1, $2, $3, $4, $5)", further)
        db.set_namespace(self._namespace)
        return len(new)

    def roll_back(self, seq: int, *, everyone: bool = False) -> int:
        """Restore all rows of the namespace as they were after entry `seq`; returns how many changes are undone.

        everyone   restore the rows of all namespaces
        """
        self._db.set_namespace(EVERYONE if everyone else self._namespace)
        undone = super().roll_back(seq, everyone=everyone)
        self._db.set_namespace(self._namespace)
        return undone
