"""Move a live table to a schema with a foreign key, and keep every row: a real SQLite database in memory.

The lesson that carries over: copy at most 50 rows at a time; rows whose parent is missing are kept by adding the
parent, never deleted; the index is made after the last copy; switch when all rows are there. Tables, columns, the
number of rows and the missing parents differ by variant. The agent gives numbers only: it has no way to send SQL.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import ClassVar

from envs.scenarios.base import JobService, offered, write_call

TABLES = [  # (table with the parents, table that is moved, column that points to the parent)
    ("customers", "orders", "customer_id"),
    ("authors", "books", "author_id"),
    ("hotels", "bookings", "hotel_id"),
    ("clinics", "visits", "clinic_id"),
    ("depots", "parcels", "depot_id"),
    ("schools", "pupils", "school_id"),
]
MOST_ROWS = 50  # of one copy: the live table is locked for so long
PARENTS = 12


@dataclass(kw_only=True)
class MigrationService(JobService):
    job = "migration"
    title = "Moving a live table to a new schema without losing rows"
    rules: ClassVar[dict[str, str]] = {
        "keep": "Every row must be kept: first call find_orphans and add the missing parents with add_parent, and "
        "never delete their rows. Switch only when every row is copied and the index is made.",
        "batch": "Copy at most 50 rows at a time, the ids 1 to 50, then 51 to 100 and so on, and make the index only "
        "after the last copy: else the live table is locked too long, and the second time the window is closed.",
    }
    _db: sqlite3.Connection | None = field(default=None, init=False, repr=False)
    _found: bool = field(default=False, init=False)  # the agent was told the missing parents
    _locks: int = field(default=0, init=False)

    @property
    def query(self) -> str:
        parents, rows, column = self._tables()
        return (
            f"In the database {self.word('database').title()}, move the table {rows} to {rows}_new, where {column} is "
            f"a foreign key to {parents}, without losing data."
        )

    def open(self) -> str:
        parents, rows, column = self._tables()
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.executescript(
            f"""PRAGMA foreign_keys = ON;
            CREATE TABLE {parents} (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
            CREATE TABLE {rows} (id INTEGER PRIMARY KEY, {column} INTEGER, note TEXT);
            CREATE TABLE {rows}_new (
                id INTEGER PRIMARY KEY, {column} INTEGER NOT NULL REFERENCES {parents}(id), note TEXT);"""
        )
        self._db.executemany(f"INSERT INTO {parents} VALUES (?, ?)", [(n + 1, self.word(n)) for n in range(PARENTS)])
        self._db.executemany(f"INSERT INTO {rows} VALUES (?, ?, ?)", self._data())
        count = len(self._data())
        return (
            f"{rows} has {count} rows, with the ids 1 to {count}. {rows}_new is empty and needs an index on {column}."
        )

    @offered
    def find_orphans(self) -> str:
        """lists the parents that are missing."""
        parents, rows, column = self._tables()
        missing = f"SELECT {column}, count(*) FROM {rows} WHERE {column} NOT IN (SELECT id FROM {parents}) GROUP BY 1"
        self._found = True
        lines = [f"- {column} {parent}, rows: {count}" for parent, count in self._db.execute(missing)]
        return "\n".join(["200 OK", *(lines or ["none is missing"])])

    @offered
    def add_parent(self, id: int) -> str:
        """adds a parent without a name."""
        return self._run(f"INSERT INTO {self._tables()[0]} VALUES (?, '')", id)

    @offered
    def delete_rows(self, parent: int) -> str:
        """deletes the rows of a parent from the table that is moved."""
        return self._run(f"DELETE FROM {self._tables()[1]} WHERE {self._tables()[2]} = ?", parent)

    @offered
    def copy_rows(self, first: int, last: int) -> str:
        """copies the rows with the ids from first to last."""
        if not 1 <= first <= last <= len(self._data()):
            return f"400 Bad Request: the ids go from 1 to {len(self._data())}."
        if last - first >= MOST_ROWS or self._indexed():
            self._locks += 1
            text = "503 Lock timeout: the live table was locked too long. Nothing was copied."
            return self.fail("batch", f"{text} The window is closed.") if self._locks > 1 else text
        rows = self._tables()[1]
        return self._run(f"INSERT INTO {rows}_new SELECT * FROM {rows} WHERE id BETWEEN ? AND ?", first, last)

    @offered
    def create_index(self) -> str:
        """makes the index of the new table."""
        return self._run(f"CREATE INDEX by_parent ON {self._tables()[1]}_new ({self._tables()[2]})")

    @offered
    def switch(self) -> str:
        """puts the new table in the old one's place; that is final."""
        kept = self._db.execute(f"SELECT * FROM {self._tables()[1]}_new ORDER BY id").fetchall()
        if kept == self._data() and self._indexed():
            return self.win("200 OK: the new table is live, and no row is lost.")
        lost = len(self._data()) - len(kept)
        return self.fail(
            "keep", f"409 Conflict: {lost} rows are missing, the index is {'' if self._indexed() else 'not '}there."
        )

    def walkthrough(self) -> list[str]:
        adds = [write_call("add_parent", id=parent) for parent in self._missing()]
        return [write_call("find_orphans"), *adds, *self._copies(), write_call("create_index"), write_call("switch")]

    def choices(self) -> list[str]:
        about = [
            call
            for parent in (self._missing() if self._found else [])
            for call in (write_call("add_parent", id=parent), write_call("delete_rows", parent=parent))
        ]
        whole = write_call("copy_rows", first=1, last=len(self._data()))
        after = [write_call("create_index"), write_call("switch")]
        return [write_call("find_orphans"), *about, *self._copies(), whole, *after]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _copies(self) -> list[str]:
        count = len(self._data())
        starts = range(1, count + 1, MOST_ROWS)
        return [write_call("copy_rows", first=n, last=min(n + MOST_ROWS - 1, count)) for n in starts]

    def _run(self, statement: str, *values: int) -> str:
        """Run one of the statements above: what SQLite says."""
        try:
            done = self._db.execute(statement, values)
        except (sqlite3.IntegrityError, sqlite3.OperationalError) as error:
            return f"409 Conflict: {error}. Nothing was changed."
        return f"200 OK: {max(done.rowcount, 0)} rows." if values else "200 OK"

    def _indexed(self) -> bool:
        return self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'by_parent'").fetchone()[0] == 1

    def _data(self) -> list[tuple[int, int, str]]:
        """The rows that must be there in the end. Some point to a missing parent."""
        count = self.draw(range(104, 147), "rows")
        orphans = {
            self.draw(range(MOST_ROWS * n, MOST_ROWS * (n + 1)), "orphan", n) + 1: parent
            for n, parent in enumerate(self._missing())
        }
        parents = range(1, PARENTS + 1)
        return [
            (n, orphans.get(n) or self.draw(parents, "parent", n), self.word("note", n)) for n in range(1, count + 1)
        ]

    def _missing(self) -> list[int]:
        first = self.draw(range(60, 80), "missing")
        return [first, first + self.draw(range(3, 15), "second")][: self.draw((1, 2), "missing parents")]

    def _tables(self) -> tuple[str, str, str]:
        return self.draw(TABLES, "tables")
