"""The journal file, `<bank>.journal`: a second copy of the records as JSON lines, to rebuild a damaged database from.

A line is a change: {seq, at, tick, reason, embedder, undo, now}, with the rows before (undo) and after it (now). It is
written just before its transaction commits, under SQLite's write lock. So the file has every acknowledged change, and
may have one that was not committed, which the next writer cuts off. It is not fsynced, unlike the database: lines lost
in a power failure are noticed, and the file is rewritten. It has no vectors, because texts can be embedded again.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.jsonl import JsonLines, refused
from core.memory.sqlite.migrations import completed
from core.memory.store.changes import FOUND, restore_rows, select
from core.memory.store.schema import TRACKED, SqlSession, placeholders

TOGETHER = 500  # max. rows in a line of a rewritten file


class JournalFile:
    """The journal file of a bank that is open for writing. While it is open, no other process can rebuild the bank.

    exclusive   to rebuild the bank: raises UserError if another process has it open
    """

    def __init__(self, bank: Path, *, exclusive: bool = False) -> None:
        self.path = path_of(bank)
        try:
            self._open(fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError as error:
            os.close(self._file)
            raise UserError(f"the bank {bank} is damaged and another process has it open: end that first.") from error

    @contextmanager
    def turn(self, wait_s: float | None = None) -> Iterator[None]:
        """Wait for this process's turn to write, before SQLite's own lock, whose waiters sleep too long.

        wait_s   seconds to wait, then BlockingIOError is raised; None: no limit
        """
        until = None if wait_s is None else time.monotonic() + wait_s
        while not self._taken(wait=until is None):
            if time.monotonic() > until:
                raise BlockingIOError(f"others are writing to {self.path}")
            time.sleep(0.002)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _taken(self, *, wait: bool) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def append(self, line: dict[str, Any]) -> bool:
        """Append a change, inside its transaction. False if earlier lines are missing: the file must be rewritten."""
        if not self.path.exists() or self.path.stat().st_ino != os.fstat(self._file).st_ino:  # it was rewritten
            self._reopen()
        earlier = line["seq"] - 1
        if (os.fstat(self._file).st_size, earlier) != self._end and self._last(line["seq"]) != earlier:
            return False
        self._lines = self._lines or JsonLines(self.path)
        self._lines.append(line)
        self._end = os.fstat(self._file).st_size, line["seq"]
        return True

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Replace the whole file atomically. Call inside the transaction."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        file = JsonLines(temporary)
        try:
            for line in lines:
                file.append(line)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(self.path)
        except OSError as error:
            raise refused(self.path, error) from error
        finally:
            file.close()
        self._reopen()

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
        os.close(self._file)

    def _reopen(self) -> None:
        self.close()
        self._open(fcntl.LOCK_SH)

    def _open(self, lock: int) -> None:
        self._lines: JsonLines | None = None  # opened during `turn`, since opening cuts off an unfinished line
        self._end: tuple[int, int] | None = None  # (size, seq) after this process's last line
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise refused(self.path, error) from error
        fcntl.flock(self._file, lock)

    def _last(self, seq: int) -> int:
        """Cut off an incomplete last line and uncommitted changes (from `seq` on); returns the last seq left, or 0."""
        while size := os.fstat(self._file).st_size:
            with mmap.mmap(self._file, 0, prot=mmap.PROT_READ) as data:
                start = data.rfind(b"\n", 0, size - 1) + 1
                line = _parsed(data[start:])
            if line is not None and line["seq"] < seq:
                return line["seq"]
            if line is not None and line.get("undo", ()) is None:
                return -1  # the file was rewritten by a change that was never committed
            os.ftruncate(self._file, start)
        return 0


def path_of(bank: Path) -> Path:
    """Path of a bank's journal file."""
    return bank.with_name(bank.name + ".journal")


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
