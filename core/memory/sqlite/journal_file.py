"""The journal file, `<bank>.journal`: a second copy of the records as JSON lines, to repair a damaged database from.

A line is a change: {seq, at, tick, reason, embedder, undo, now, crc32}, with the rows before (undo) and after it (now),
and last the CRC-32 of all that stands before it; lines of before the checksums have none. It is written just before its
transaction commits, under SQLite's write lock, so that the file has every acknowledged change; after a kill it may be
one change ahead. It is not fsynced, unlike the database: lines lost in a power failure are noticed, and the file is
rewritten. It has no vectors, because texts can be embedded again. What it has beyond the database is brought into that
(recovery.py), never cut off, but for the one change that a killed process had not committed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from core.checksum import KEY, checked, is_sealed, sealed
from core.errors import UserError
from core.file_lock import FileLock, SharedLock
from core.jsonl import JsonLines, refused
from core.memory.sqlite.migrations import completed
from core.memory.sqlite.setup import DIALECT
from core.memory.store.changes import FOUND, restore_rows, select
from core.memory.store.schema import SqlSession, placeholders

TOGETHER = 500  # max. rows in a line of a rewritten file
ENTRY = ("seq", "at", "tick", "reason")  # the columns of the table `journal`
_KEYS = {*ENTRY, "embedder", "undo", "now", KEY}
_SEQ = re.compile(rb'\{"seq": (\d+),')
CHECKED = 2**20  # bytes: a smaller file is checked line by line at every opening, a larger one by `doctor`


class JournalFile:
    """The journal file of a bank that is open for writing. While it is open, no other process can rebuild the bank.

    The file itself is open only during a write: Windows does not replace an open file.

    exclusive   to rebuild the bank: raises UserError if another process has it open
    """

    def __init__(self, bank: Path, *, exclusive: bool = False) -> None:
        self.path = path_of(bank)
        self._end: tuple[int, int] | None = None  # (size, seq) after this process's last line
        self._before: int | None = None  # size before the line of the open transaction
        self._rewritten = False  # the open transaction has written a new file, beside the old one
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
        """Append a change, inside its transaction. False if earlier lines are missing: the file must be rewritten.

        UserError if it is more than one change ahead: the database was replaced under an open bank.
        """
        earlier = line["seq"] - 1
        with closing(_Lines(self.path)) as lines:
            if (lines.size(), earlier) != self._end:
                last = _seq_of(lines.last())
                if last == line["seq"]:  # of a process that was killed before its commit
                    lines.drop_last()
                    last = _seq_of(lines.last())
                if last is not None and last > line["seq"]:
                    raise UserError(
                        f"{self.path} is at change {last} and the bank at {earlier}: its file was replaced while it "
                        "was open. Close it; the next opening brings it up to its journal."
                    )
                if last != earlier:
                    return False
            self._before = lines.size()
            lines.append(line)
            self._end = lines.size(), line["seq"]
        return True

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write the whole file anew, inside the transaction; `committed` puts it into the old one's place."""
        self._new.unlink(missing_ok=True)
        with closing(_Lines(self._new)) as file:
            for line in lines:
                file.append(line)
            file.sync()
        self._rewritten = True

    def committed(self) -> None:
        """The transaction is committed: keep what it has written."""
        rewritten, self._before, self._rewritten = self._rewritten, None, False
        if rewritten:
            self._end = None
            try:
                self._new.replace(self.path)
            except OSError as error:
                raise refused(self.path, error) from error

    def take_back(self) -> None:
        """The transaction was rolled back: remove what it has written."""
        before, rewritten, self._before, self._rewritten = self._before, self._rewritten, None, False
        if before is not None:
            self._end = None
            with closing(_Lines(self.path)) as lines:
                if lines.size() > before:
                    lines.drop_last()
        if rewritten:
            self._new.unlink(missing_ok=True)

    @property
    def _new(self) -> Path:
        return self.path.with_name(self.path.name + ".tmp")

    def close(self) -> None:
        self._turn.close()
        self._in_use.close()


class _Lines(JsonLines):
    """The file's lines, each with its checksum."""

    def _line(self, row: dict[str, Any]) -> bytes:
        return sealed(super()._line(row), 0)[0]


@dataclass
class Scan:
    """What a journal file holds, but for the rows.

    entries    {seq: row of the table `journal`} of its intact lines
    seq        its last change; 0: none
    base       the change with which it was last rewritten: its rows were written down then; 0: never
    damaged    numbers of its damaged lines, from 1; an incomplete last one and one that is there twice count
    unchecked  number of lines of before the checksums
    last_intact  number of its last line that can be read
    """

    entries: dict[int, tuple] = field(default_factory=dict)
    seq: int = 0
    base: int = 0
    damaged: list[int] = field(default_factory=list)
    unchecked: int = 0
    last_intact: int = 0


def path_of(bank: Path) -> Path:
    """Path of a bank's journal file."""
    return bank.with_name(bank.name + ".journal")


def _hidden(bank: Path, ending: str) -> Path:
    """The path of a lock's file: hidden, so that it is neither copied nor deleted with the bank's files (`BANK*`)."""
    return bank.with_name(f".{bank.name}.{ending}")


def line_of(db: SqlSession, entry: tuple) -> dict[str, Any]:
    """The line of a change, without `now`. entry: its journal row (seq, at, tick, reason)."""
    embedder = db.execute("SELECT max(value) FROM meta WHERE key = 'embedder'").fetchone()[0]
    return dict(zip(ENTRY, entry)) | {"embedder": embedder, "undo": select(db, FOUND, entry[:1])}


def whole(db: SqlSession) -> Iterator[dict[str, Any]]:
    """The lines of a rewritten file: each change with `undo` only, then the current rows."""
    line = {"seq": 0, "embedder": None}
    for entry in db.execute("SELECT seq, at, tick, reason FROM journal ORDER BY seq"):
        line = line_of(db, entry)
        yield line
    for table, (columns, _) in DIALECT.tracked.items():
        rows = db.execute(f"SELECT 1, {', '.join(columns)} FROM {table}")
        while some := rows.fetchmany(TOGETHER):
            yield line | {"undo": None, "now": {table: some}}


def replay(db: SqlSession, line: dict[str, Any]) -> None:
    """Write a line's rows into tables that have no triggers yet."""
    if line["undo"] is not None:  # else the line has current rows, not a change
        entry = [line[name] for name in ENTRY]
        db.execute("INSERT OR REPLACE INTO journal VALUES ($1, $2, $3, $4)", entry)
        for table, (columns, _) in DIALECT.tracked.items():
            db.execute(f"DELETE FROM undo_{table} WHERE seq = $1", entry[:1])
            for row in line["undo"].get(table, ()):
                row = completed(table, row, columns)
                names = ", ".join(columns[: len(row) - 1])
                insert = f"INSERT INTO undo_{table} (seq, was_there, {names}) VALUES ({placeholders(len(row) + 1)})"
                db.execute(insert, (entry[0], *row))
    redo(db, line)


def redo(db: SqlSession, line: dict[str, Any]) -> None:
    """Write the rows after a change, and the embedder's name."""
    if line["embedder"] is not None:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('embedder', $1)", (line["embedder"],))
    now = line.get("now", {})
    restore_rows(
        db, {table: [completed(table, row, DIALECT.tracked[table][0]) for row in rows] for table, rows in now.items()}
    )


def scan(bank: Path) -> Scan:
    """Read a bank's whole journal file."""
    found = Scan()
    for number, line in enumerate(_read(bank), 1):
        if line is None:
            found.damaged.append(number)
            continue
        again = line["undo"] is not None and line["seq"] in found.entries
        if again or line["seq"] < found.seq:  # out of order: lines were exchanged
            found.damaged.append(number)
        found.last_intact = number
        found.seq = max(found.seq, line["seq"])
        found.unchecked += KEY not in line
        if line["undo"] is None:
            found.base = max(found.base, line["seq"])
        else:
            found.entries[line["seq"]] = tuple(line[name] for name in ENTRY)
    return found


def read(bank: Path) -> Iterator[dict[str, Any]]:
    """The intact lines of a bank's journal file."""
    return (line for line in _read(bank) if line is not None)


def _read(bank: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of a bank's journal file; None for a damaged one."""
    if path_of(bank).exists():
        with path_of(bank).open("rb") as file:
            yield from map(_parsed, file)


@dataclass(frozen=True)
class Glance:
    """What a cheap look at a journal file tells.

    last    its last change, of the intact lines; 0: none
    intact  whether no damaged line was seen, and none that is out of order. Of a large file two parts are looked at
    n       number of its changes; None: of a large file
    """

    last: int = 0
    intact: bool = True
    n: int | None = 0


def glance(bank: Path) -> Glance:
    """Look at a bank's journal file."""
    if not path_of(bank).exists():
        return Glance()
    with path_of(bank).open("rb") as file:
        size = file.seek(0, 2)
        if size <= CHECKED:
            file.seek(0)
            if (seqs := _checked(file)) is not None:
                return Glance(max(seqs, default=0), n=len(set(seqs)))
        else:
            file.seek(random.randrange(size - CHECKED))
            part: list[bytes] = []
            if file.readline(CHECKED // 2).endswith(b"\n"):  # else it lies within a long line
                part = file.readlines(CHECKED // 2)
            if _checked(part) is not None and (seqs := _checked(_last_lines(file, size))):
                return Glance(seqs[-1], n=None)
    return Glance(scan(bank).seq, intact=False, n=None)


def _last_lines(file: BinaryIO, size: int) -> list[bytes]:
    """The whole lines in the last part of a file: CHECKED // 2 bytes of it, or as many as the last line has."""
    window = CHECKED // 2
    while window < size:
        file.seek(size - window)
        file.readline()  # the rest of a line
        if file.tell() < size:
            return file.readlines()
        window *= 4
    file.seek(0)
    return file.readlines()


def _checked(lines: Iterable[bytes]) -> list[int] | None:
    """The changes of some lines; None if one does not fit its checksum or is not in order."""
    seqs: list[int] = []
    for line in lines:
        seq = _SEQ.match(line)
        if seq is None or not _is_intact(line) or (seqs and int(seq[1]) < seqs[-1]):
            return None
        seqs.append(int(seq[1]))
    return seqs


def _is_intact(data: bytes) -> bool:
    """Whether a line fits its checksum; one that has none must be read for that."""
    return checked(data, 0)[0] if is_sealed(data) else _parsed(data) is not None


def _seq_of(data: bytes) -> int | None:
    """The change of a line; 0: there is no line; None: it is damaged."""
    line = _parsed(data) if data else {"seq": 0}
    return None if line is None else line["seq"]


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Parse a line; None if it is incomplete or damaged."""
    has_checksum = is_sealed(data)
    if not data.endswith(b"\n") or (has_checksum and not checked(data, 0)[0]):
        return None
    try:
        line = json.loads(data)
        if line.keys() - _KEYS or (KEY in line) != has_checksum:
            return None
        dated = line["undo"] is None or [type(line[name]) for name in ENTRY] == [int, str, int, str]
        return line if isinstance(line["seq"], int) and dated else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
