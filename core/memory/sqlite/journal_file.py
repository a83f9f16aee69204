"""The journal file, `<bank>.journal`: a second copy of the records as JSON lines, to rebuild a damaged database from.

A line is a change: {seq, at, tick, reason, embedder, undo, now}, with the rows before (undo) and after it (now). It is
written just before its transaction commits, under SQLite's write lock. So the file has every acknowledged change, and
may have one that was not committed, which the next writer cuts off. It is not fsynced, unlike the database: lines lost
in a power failure are noticed, and the file is rewritten. It has no vectors, because texts can be embedded again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.file_lock import FileLock, SharedLock
from core.jsonl import JsonLines, refused
from core.memory.sqlite.migrations import completed
from core.memory.store.changes import FOUND, restore_rows, select
from core.memory.store.schema import TRACKED, SqlSession, placeholders

TOGETHER = 500  # max. rows in a line of a rewritten file


class JournalFile:
    """The journal file of a bank that is open for writing. While it is open, no other process can rebuild the bank.

    The file itself is open only during a write: Windows does not replace an open file.

    exclusive   to rebuild the bank: raises UserError if another process has it open
    """

    def __init__(self, bank: Path, *, exclusive: bool = False) -> None:
        self.path = path_of(bank)
        self._end: tuple[int, int] | None = None  # (size, seq) after this process's last line
        try:
            self._in_use = SharedLock(_hidden(bank, "open"), alone=exclusive)
        except BlockingIOError as error:
            raise UserError(f"the bank {bank} is damaged and another process has it open: end that first.") from error
        try:
            self._turn = FileLock(_hidden(bank, "turn"))
        except BaseException:
            self._in_use.close()
            raise

    @contextmanager
    def turn(self, wait_s: float | None = None) -> Iterator[None]:
        """Wait for this store's turn to write, before SQLite's own lock, whose waiters sleep too long.

        wait_s   seconds to wait, then BlockingIOError is raised; None: no limit
        """
        if not self._turn.take(wait_s):
            raise BlockingIOError(f"others are writing to {self.path}")
        try:
            yield
        finally:
            self._turn.release()

    def append(self, line: dict[str, Any]) -> bool:
        """Append a change, inside its transaction. False if earlier lines are missing: the file must be rewritten."""
        earlier = line["seq"] - 1
        with closing(JsonLines(self.path)) as lines:
            if (lines.size(), earlier) != self._end and _last(lines, line["seq"]) != earlier:
                return False
            lines.append(line)
            self._end = lines.size(), line["seq"]
        return True

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Replace the whole file atomically. Call inside the transaction."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        with closing(JsonLines(temporary)) as file:
            for line in lines:
                file.append(line)
            file.sync()
        try:
            temporary.replace(self.path)
        except OSError as error:
            raise refused(self.path, error) from error
        self._end = None

    def close(self) -> None:
        self._turn.close()
        self._in_use.close()


def _last(lines: JsonLines, seq: int) -> int:
    """Cut off uncommitted changes (from `seq` on); returns the last seq left, or 0."""
    while data := lines.last():
        line = _parsed(data)
        if line is not None and line["seq"] < seq:
            return line["seq"]
        if line is not None and line.get("undo", ()) is None:
            return -1  # the file was rewritten by a change that was never committed
        lines.drop_last()
    return 0


def path_of(bank: Path) -> Path:
    """Path of a bank's journal file."""
    return bank.with_name(bank.name + ".journal")


def _hidden(bank: Path, ending: str) -> Path:
    """The path of a lock's file: hidden, so that it is neither copied nor deleted with the bank's files (`BANK*`)."""
    return bank.with_name(f".{bank.name}.{ending}")


def line_of(db: SqlSession, entry: tuple) -> dict[str, Any]:
    """The line of a change, without `now`. entry: its journal row (seq, at, tick, reason)."""
    embedder = db.execute("SELECT max(value) FROM meta WHERE key = 'embedder'").fetchone()[0]
    line = dict(zip(("seq", "at", "tick", "reason"), entry))
    return line | {"embedder": embedder, "undo": select(db, FOUND, entry[:1])}


def whole(db: SqlSession) -> Iterator[dict[str, Any]]:
    """The lines of a rewritten file: each change with `undo` only, then the current rows."""
    line = {"seq": 0, "embedder": None}
    for entry in db.execute("SELECT seq, at, tick, reason FROM journal ORDER BY seq"):
        line = line_of(db, entry)
        yield line
    for table, (columns, _) in TRACKED.items():
        rows = db.execute(f"SELECT 1, {', '.join(columns)} FROM {table}")
        while some := rows.fetchmany(TOGETHER):
            yield line | {"undo": None, "now": {table: some}}


def replay(db: SqlSession, line: dict[str, Any]) -> None:
    """Write a line's rows into tables that have no triggers yet."""
    if line["undo"] is not None:  # else the line has current rows, not a change
        entry = [line[name] for name in ("seq", "at", "tick", "reason")]
        db.execute("INSERT OR REPLACE INTO journal VALUES ($1, $2, $3, $4)", entry)
        for table, (columns, _) in TRACKED.items():
            db.execute(f"DELETE FROM undo_{table} WHERE seq = $1", entry[:1])
            for row in line["undo"].get(table, ()):
                row = completed(table, row, columns)
                names = ", ".join(columns[: len(row) - 1])
                insert = f"INSERT INTO undo_{table} (seq, was_there, {names}) VALUES ({placeholders(len(row) + 1)})"
                db.execute(insert, (entry[0], *row))
    if line["embedder"] is not None:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('embedder', $1)", (line["embedder"],))
    now = line.get("now", {})
    restore_rows(db, {table: [completed(table, row, TRACKED[table][0]) for row in rows] for table, rows in now.items()})


def read(bank: Path) -> Iterator[dict[str, Any]]:
    """The lines of a bank's journal file, without damaged ones and an incomplete last one."""
    if path_of(bank).exists():
        with path_of(bank).open("rb") as file:
            yield from (line for data in file if (line := _parsed(data)) is not None)


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Parse a line; None if it is incomplete or damaged."""
    try:
        line = json.loads(data)
        return line if data.endswith(b"\n") and isinstance(line["seq"], int) else None
    except (ValueError, LookupError, TypeError):
        return None
