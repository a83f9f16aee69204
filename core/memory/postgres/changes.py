"""Changes in PostgreSQL, where they differ from SQLite: row-level security, inserts before the lock, bulk COPY."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from core.memory.postgres.connection import EVERYONE, SET_UNTIL_COMMIT, Connection
from core.memory.store.changes import Change, check_status
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
    """A Change whose session is restricted to one namespace: that of the change, or of the record being put."""

    _db: Connection

    def put(self, record: MemoryRecord, keys: Keys) -> bool:
        """`add` with given keys.

        If the change does not hold the writers' lock yet, the keys are inserted before it is taken: updating the HNSW
        graph takes longest.
        """
        check_status(record.status)
        self._db.before_lock(SET_UNTIL_COMMIT, (record.namespace,))
        entered = [
            (_FURTHER_KEY if number else _FIRST_KEY, (*key, record.namespace)) for number, key in enumerate(keys)
        ]
        late = [statement for statement in entered if not self._db.before_lock(*statement)]
        self._db.set_namespace(record.namespace)
        for statement in late:
            self._db.execute(*statement)
        row = self._db.execute(_PUT, row_of(record)).fetchone()
        self._db.total_changes += 0 if row is None else 1
        self._db.set_namespace(self._namespace)
        return row is not None

    def put_all(self, rows: Iterable[tuple[MemoryRecord, Keys]]) -> int:
        """`put` many records; returns how many were new."""
        rows, added = iter(rows), 0
        while some := list(islice(rows, BATCH)):
            added += sum(self.put(*row) for row in some) if len(some) < MANY else self._copy(some)
        return added

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
