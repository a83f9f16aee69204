"""What is done to a bank in PostgreSQL where that differs from SQLite: other tenants' records, and many at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from core.memory.store.changes import Change, Items, check_status
from core.memory.store.schema import FIELDS, to_column
from core.types import MemoryRecord

MANY = 20  # records from which they are copied into the table rather than inserted one by one
BATCH = 5_000  # of one COPY


class PostgresChange(Change):
    """A Change whose session is held to one namespace: that of the change, or of the record that is put."""

    def put(self, record: MemoryRecord, vector: bytes | None, items: Items = ()) -> bool:
        """`add` with the vectors at hand; None for one that is set aside and has none."""
        check_status(record.status)
        self._db.see(record.namespace)
        try:
            return super().put(record, vector, items)
        finally:
            self._db.see(self._namespace)

    def put_all(self, rows: Iterable[tuple[MemoryRecord, bytes | None, Items]]) -> int:
        """`put` many; returns how many were new."""
        rows, added = iter(rows), 0
        while some := list(islice(rows, BATCH)):
            added += sum(self.put(*row) for row in some) if len(some) < MANY else self._copy(some)
        return added

    def _copy(self, rows: list[tuple[MemoryRecord, bytes | None, Items]]) -> int:
        from core.memory.postgres.connection import EVERYONE

        db, names = self._db, ", ".join(FIELDS)
        for record, *_ in rows:
            check_status(record.status)
        db.see(EVERYONE)
        columns = f"SELECT {names}, NULL::vector AS vector, 0 AS n FROM records LIMIT 0".replace("last_used", "0.0::float8 AS last_used")
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS incoming ON COMMIT DELETE ROWS AS {columns}")
        db.execute("DELETE FROM incoming")
        db.copy(
            f"COPY incoming ({names}, vector, n) FROM STDIN WITH (FORMAT BINARY)",
            ([*(to_column(name, getattr(r, name)) for name in FIELDS), vector, n] for n, (r, vector, _) in enumerate(rows)),
            {"score": "float8", "confidence": "float8", "trust": "float8", "last_used": "float8"}
            | dict.fromkeys(("tick", "n_used", "n_used_success", "n_helpful", "n_harmful"), "int8")
            | {"n": "int4"},
            (*FIELDS, "vector", "n"),
        )
        new = dict(
            ((id, namespace), rowid)
            for rowid, id, namespace in db.execute(
                f"INSERT INTO records ({names}) SELECT {names} FROM incoming ORDER BY n "
                "ON CONFLICT DO NOTHING RETURNING rowid, id, namespace"
            ).fetchall()
        )
        db.execute(
            "INSERT INTO vectors SELECT DISTINCT ON (r.rowid) r.rowid, i.vector, r.namespace FROM incoming i "
            "JOIN records r USING (namespace, id) WHERE i.vector IS NOT NULL AND r.rowid = ANY (?) ORDER BY r.rowid, n",
            (list(new.values()),),
        )
        first = {(r.id, r.namespace): (r.namespace, items) for r, _, items in reversed(rows)}
        items = [(new[key], *item, space) for key, (space, found) in first.items() if key in new for item in found]
        db.executemany("INSERT INTO item_vectors VALUES (?, ?, ?, ?)", items)
        db.see(self._namespace)
        return len(new)

    def _erase_words(self) -> None:
        """The words went with their row."""


