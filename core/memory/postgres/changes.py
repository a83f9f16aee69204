"""Changes in PostgreSQL, where they differ from SQLite: row-level security, inserts before the lock, bulk COPY."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from core.memory.postgres.connection import EVERYONE, SET_UNTIL_COMMIT, AtCommit, Connection
from core.memory.store.changes import Change, Embed, Items, check_status
from core.memory.store.schema import COLUMNS, placeholders, row_of
from core.types import MemoryRecord

MANY = 20  # number of records from which COPY is used instead of single inserts
BATCH = 5_000  # max. records of one COPY

ENTER_VECTOR = "INSERT INTO vectors OVERRIDING SYSTEM VALUE SELECT"  # into the row `vector_row` of its record
ENTER_ITEM = "INSERT INTO item_vectors SELECT vector_row, $2, $3, namespace FROM records WHERE rowid = $1"
_VECTOR = "INSERT INTO vectors (vector, namespace) VALUES ($1, $2)"
_PUT = (
    f"WITH r AS (INSERT INTO records ({', '.join(COLUMNS)}, vector_row) "
    f"VALUES ({placeholders(len(COLUMNS))}, {{row}}) ON CONFLICT DO NOTHING RETURNING rowid, namespace, vector_row)"
    "{vector} SELECT rowid FROM r"
)
_NEXT, _MINE = "nextval('vectors_rowid_seq')", "(SELECT currval('vectors_rowid_seq'))"
_VECTOR_PLACE = placeholders(1, after=len(COLUMNS))
_PUT_WITH = _PUT.format(row=_NEXT, vector=f", v AS ({ENTER_VECTOR} vector_row, {_VECTOR_PLACE}, namespace FROM r)")
_PUT_WITHOUT = _PUT.format(row=_NEXT, vector="")
_ITEM = f"INSERT INTO item_vectors VALUES ({_MINE}, $1, $2, $3)"
# After _VECTOR and _ITEM, whose rows are deleted again if the record exists already.
_TAKEN_BACK = f", v AS (DELETE FROM vectors WHERE rowid = {_MINE} AND NOT EXISTS (SELECT FROM r))"
_PUT_AFTER = _PUT.format(row=_MINE, vector=_TAKEN_BACK)
_TAKEN_BACK += f", i AS (DELETE FROM item_vectors WHERE record = {_MINE} AND NOT EXISTS (SELECT FROM r))"
_PUT_AFTER_ITEMS = _PUT.format(row=_MINE, vector=_TAKEN_BACK)


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

    def put(self, record: MemoryRecord, vector: bytes | None, items: Items = ()) -> bool:
        """`add` with given vectors. vector: None for an archived or superseded record without a vector."""
        check_status(record.status)
        self._db.before_lock(SET_UNTIL_COMMIT, (record.namespace,))
        query, values = self._putting(record, vector, items)
        self._db.set_namespace(record.namespace)
        row = self._db.execute(query, values).fetchone()
        if row is not None:
            self._db.total_changes += 1
            self.stores_items |= bool(items)
            if query is not _PUT_AFTER_ITEMS:
                self._put_items(row[0], items)
        self._db.set_namespace(self._namespace)
        return row is not None

    def put_last(self, rows: Iterable[tuple[MemoryRecord, bytes | None, Items]]) -> Callable[[], int]:
        """`put_all`, deferred to the commit if possible; the returned function gives the number after it."""
        rows = list(rows)
        if self._first or len(rows) != 1 or rows[0][2]:  # item vectors need `check_key` before the commit
            return super().put_last(rows)
        self.last, vector, _ = rows[0]
        check_status(self.last.status)
        set_namespace = SET_UNTIL_COMMIT, (self.last.namespace,)
        self.at_commit = [] if self._db.before_lock(*set_namespace) else [AtCommit(*set_namespace)]
        self.at_commit.append(AtCommit(*self._putting(self.last, vector)))
        return lambda: len(self.at_commit[-1].found)

    def put_all(self, rows: Iterable[tuple[MemoryRecord, bytes | None, Items]]) -> int:
        """`put` many records; returns how many were new."""
        rows, added = iter(rows), 0
        while some := list(islice(rows, BATCH)):
            added += sum(self.put(*row) for row in some) if len(some) < MANY else self._copy(some)
        return added

    def _put_items(self, rowid: int, vectors: Items) -> None:
        self.stores_items |= bool(vectors)
        self._db.executemany(ENTER_ITEM, [(rowid, *vector) for vector in vectors])

    def _putting(self, record: MemoryRecord, vector: bytes | None, items: Items = ()) -> tuple[str, tuple]:
        """(statement, values) to insert a record and its vector. Result: its row id; none if it exists.

        If the change does not hold the writers' lock yet, the vectors are inserted before it is taken: updating the
        HNSW graph takes longest. The session's namespace must be the record's.
        """
        values = tuple(row_of(record))
        if vector is None:
            return _PUT_WITHOUT, values
        if self._db.before_lock(_VECTOR, (vector, record.namespace)):
            for item in items:
                self._db.before_lock(_ITEM, (*item, record.namespace))
            return _PUT_AFTER_ITEMS if items else _PUT_AFTER, values
        return _PUT_WITH, (*values, vector)

    def _copy(self, rows: list[tuple[MemoryRecord, bytes | None, Items]]) -> int:
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
            ([*row_of(r), vector, n] for n, (r, vector, _) in enumerate(rows)),
            {"score": "float8", "confidence": "float8", "trust": "float8", "last_used": "float8"}
            | dict.fromkeys(("tick", "n_used", "n_used_success", "n_helpful", "n_harmful"), "int8")
            | {"n": "int4"},
            (*COLUMNS, "vector", "n"),
        )
        added = db.execute(
            f"WITH r AS (INSERT INTO records ({names}, vector_row) "
            f"SELECT {names}, nextval('vectors_rowid_seq') FROM incoming ORDER BY n "
            "ON CONFLICT DO NOTHING RETURNING rowid, id, namespace, vector_row), "
            "i AS (SELECT DISTINCT ON (r.rowid) r.*, vector FROM incoming JOIN r USING (namespace, id) "
            "ORDER BY r.rowid, n), "
            f"v AS ({ENTER_VECTOR} vector_row, vector, namespace FROM i WHERE vector IS NOT NULL) "
            "SELECT vector_row, id, namespace FROM r"
        ).fetchall()
        db.total_changes += len(added)
        new = {(id, namespace): row for row, id, namespace in added}
        first = {(r.id, r.namespace): (r.namespace, items) for r, _, items in reversed(rows)}
        items = [(new[key], *item, space) for key, (space, found) in first.items() if key in new for item in found]
        self.stores_items |= bool(items)
        db.executemany("INSERT INTO item_vectors VALUES ($1, $2, $3, $4)", items)
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
