"""A second copy of what a bank holds: `<bank>.journal`, one JSON line a change, to rebuild a destroyed database from.

A line is {seq, at, tick, reason, undo, redo}. It is written just before its transaction commits, while SQLite's write
lock keeps other processes out: so the file lacks nothing that was acknowledged and may hold one change too many, which
the next writer cuts off. It is not fsynced: the database is, and what a power failure takes from here is made up for.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.errors import StopRun, UserError
from core.memory.store.schema import SELECT, to_dict, to_record


class JournalFile:
    """The journal of a bank that is open for writing. While it is open no other process may rebuild the bank."""

    def __init__(self, bank: Path) -> None:
        self.path = path_of(bank)
        self._open()

    def append(self, line: dict[str, Any]) -> bool:
        """Add a change, in place of those of its number or later, which were never committed.

        False when changes before it are missing: the file must be rewritten. Call inside the transaction.
        """
        try:
            if self.path.stat().st_ino != os.fstat(self._file).st_ino:  # another process rewrote it
                self._reopen()
        except FileNotFoundError:
            self._reopen()
        size = os.fstat(self._file).st_size
        if (size, line["seq"] - 1) != self._last:
            size, last = self._cut(size, line["seq"])
            if last != line["seq"] - 1:
                return False
        data = encode(line)
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.ftruncate(self._file, size)
                raise StopRun(f"{self.path} cannot be written: the disk takes no more.")
        except OSError as error:
            os.ftruncate(self._file, size)
            raise StopRun(f"{self.path} cannot be written: {error.strerror}.") from error
        self._last = (size + len(data), line["seq"])
        return True

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Replace the whole file, or nothing of it. Call inside the transaction."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            with temporary.open("wb") as file:
                for line in lines:
                    file.write(encode(line))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            raise StopRun(f"{self.path} cannot be written: {error.strerror}.") from error
        self._reopen()

    def queue(self) -> None:
        """Wait for this process's turn to write. SQLite's lock is what counts, but who waits for it sleeps too long."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def leave(self) -> None:
        """The end of the turn."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise StopRun(f"{self.path} cannot be written: {error.strerror}.") from error
        fcntl.flock(self._file, fcntl.LOCK_SH)
        self._last: tuple[int, int] | None = None  # (size, seq) after this process's last line

    def _reopen(self) -> None:
        os.close(self._file)
        self._open()

    def _cut(self, size: int, seq: int) -> tuple[int, int]:
        """Cut off a torn line and the changes from `seq` on; returns (size, seq of the last change, 0 for none)."""
        while size:
            start, line = self._last_line(size)
            try:
                last = json.loads(line)["seq"] if line.endswith(b"\n") else seq
            except (ValueError, KeyError, TypeError):
                last = seq
            if last < seq:
                return size, last
            os.ftruncate(self._file, start)
            size = start
        return 0, 0

    def _last_line(self, size: int) -> tuple[int, bytes]:
        """(place, bytes) of the last line of the first `size` bytes."""
        length = 4096
        while True:
            start = max(0, size - length)
            data = os.pread(self._file, size - start, start)
            newline = data.rfind(b"\n", 0, len(data) - 1)
            if newline >= 0 or start == 0:
                return start + newline + 1, data[newline + 1 :]
            length *= 4


def path_of(bank: Path) -> Path:
    """Where the journal of a bank lies."""
    return bank.with_name(bank.name + ".journal")


def encode(line: dict[str, Any]) -> bytes:
    """A line as it stands in the file."""
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def whole(db: Any) -> Iterator[dict[str, Any]]:
    """The lines of a journal made anew: the history, each change with its undo alone, then what there is now."""
    seq, at, tick, reason = 0, "", 0, ""
    for seq, at, tick, reason, undo in db.execute("SELECT seq, at, tick, reason, undo FROM journal ORDER BY seq"):
        yield {"seq": seq, "at": at, "tick": tick, "reason": reason, "undo": json.loads(undo), "redo": []}
    now = {"seq": seq, "at": at, "tick": tick, "reason": reason, "undo": None}
    rows = db.execute(f"{SELECT[:7]}r.rowid, {SELECT[7:]} ORDER BY r.rowid")
    while some := rows.fetchmany(500):
        yield now | {"redo": [["put", to_dict(to_record(row[1:])), row[0]] for row in some]}
    facts = db.execute("SELECT key, value FROM meta")
    links = db.execute("SELECT source, relation, target, note FROM links")
    yield now | {"redo": [*(["link", *link] for link in links), *(["fact", *fact] for fact in facts)]}


def read(bank: Path) -> Iterator[dict[str, Any]]:
    """The lines of a bank's journal; those that are damaged are left out, as is a torn last one."""
    path = path_of(bank)
    if not path.exists():
        return
    with path.open("rb") as file:
        for data in file:
            try:
                line = json.loads(data)
                if data.endswith(b"\n") and isinstance(line["seq"], int):
                    yield line
            except (ValueError, KeyError, TypeError):
                continue


def keep_others_out(bank: Path) -> int:
    """Lock the journal for a rebuild, until the returned descriptor is closed. UserError if the bank is in use."""
    file = os.open(path_of(bank), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise UserError(f"the bank {bank} is damaged and another process has it open: end that first.") from error
    return file
