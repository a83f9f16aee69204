"""The journal file, `<bank>.journal`: a second copy of the records, from which a damaged database is made anew.

A line is a change: {seq, at, tick, reason, embedder, now}, with the rows after it, `now`: {table: rows (was_there,
*columns)}. It is written just before its transaction commits, under the write lock, so that the file has every
acknowledged change; after a kill it may be one change ahead. It is not fsynced, unlike the database. It has no vectors,
because texts can be embedded again.

A file that is written anew has the present rows in lines marked `whole`, between the earlier changes, without their
rows, and the last one.
"""

from __future__ import annotations

import json
import mmap
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.file_lock import FileLock, SharedLock
from core.jsonl import JsonLines, refused
from core.memory.store.changes import MADE, select
from core.memory.store.schema import TRACKED, SqlSession

TOGETHER = 500  # max. rows in a line of a rewritten file
ENTRY = ("seq", "at", "tick", "reason")  # the columns of the table `journal`
_ENTRIES = f"SELECT {', '.join(ENTRY)} FROM journal ORDER BY seq"
_HEAD = re.compile(rb'\{"seq": (\d+), "at": "([^"\\]*)"')
Last = tuple[int, str]  # (seq, at) of a last change; (0, ""): none


class JournalFile:
    """The journal file of a bank that is open for writing. While it is open, no other process can rebuild the bank.

    The file itself is open only during a write: Windows does not replace an open file.

    exclusive   to rebuild the bank: raises UserError if another process has it open
    """

    def __init__(self, bank: Path, *, exclusive: bool = False) -> None:
        self.path = path_of(bank)
        self._mode = stat.S_IMODE(bank.stat().st_mode) if bank.exists() else 0o644  # who may read that may read this
        self._end: tuple[int, int] | None = None  # (size, seq) after this process's last line
        self._before: int | None = None  # size before the line of the open transaction
        self._rewritten = False  # the open transaction has written a new file, beside the old one
        try:
            self._in_use = SharedLock(_hidden(bank, "open"), alone=exclusive)
        except BlockingIOError as error:
            raise UserError(f"the bank {bank} is to be replaced, and another process has it open: end that.") from error
        try:
            self._turn = FileLock(lock_of(bank))
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
        with closing(JsonLines(self.path, mode=self._mode)) as lines:
            if (lines.size(), earlier) != self._end:
                end = last(self.path)
                if end is not None and end[0] == line["seq"]:  # of a process that was killed before its commit
                    lines.drop_last()
                    end = last(self.path)
                if end is not None and end[0] > line["seq"]:
                    raise UserError(
                        f"{self.path} is at change {end[0]} and the bank at {earlier}: its file was replaced while it "
                        "was open. Close it; the next opening brings it up to its journal."
                    )
                if end is None or end[0] != earlier:
                    return False
            self._before = lines.size()
            lines.append(line)
            self._end = lines.size(), line["seq"]
        return True

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write the whole file anew, inside the transaction; `committed` puts it into the old one's place."""
        self._new.unlink(missing_ok=True)
        with closing(JsonLines(self._new, mode=self._mode)) as file:
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
            with closing(JsonLines(self.path, mode=self._mode)) as lines:
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


def path_of(bank: Path) -> Path:
    """Path of a bank's journal file."""
    return bank.with_name(bank.name + ".journal")


def lock_of(bank: Path) -> Path:
    """Path of the file with the lock of a bank's writers, which stays beside every bank that was opened to write."""
    return _hidden(bank, "turn")


def _hidden(bank: Path, ending: str) -> Path:
    """The path of a lock's file: hidden, so that it is neither copied nor deleted with the bank's files (`BANK*`)."""
    return bank.with_name(f".{bank.name}.{ending}")


def line_of(db: SqlSession, entry: tuple) -> dict[str, Any]:
    """The line of the latest change. entry: its journal row."""
    return _line(db, entry) | {"now": select(db, MADE, entry[:1])}


def whole(db: SqlSession) -> Iterator[dict[str, Any]]:
    """The lines of a rewritten file."""
    *earlier, entry = [(0,), *db.execute(_ENTRIES).fetchall()]
    for row in earlier[1:]:
        yield _line(db, row) | {"now": {}}
    if entry[0]:
        for table, (columns, _) in TRACKED.items():
            rows = db.execute(f"SELECT 1, {', '.join(columns)} FROM {table}")
            while some := rows.fetchmany(TOGETHER):
                yield {"seq": entry[0], "whole": True, "now": {table: some}}
        yield _line(db, entry) | {"now": {}}


def _line(db: SqlSession, entry: tuple) -> dict[str, Any]:
    embedder = db.execute("SELECT max(value) FROM meta WHERE key = 'embedder'").fetchone()[0]
    return dict(zip(ENTRY, entry)) | {"embedder": embedder}


def last(path: Path) -> Last | None:
    """The last change of a journal's complete lines; None if the last one is no change."""
    if not path.exists() or path.stat().st_size == 0:
        return 0, ""
    # A private map: some file systems have no shared ones.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as data:
        end = data.rfind(b"\n") + 1
        if end == 0:
            return 0, ""
        head = _HEAD.match(data[data.rfind(b"\n", 0, end - 1) + 1 : end][:200])
        return (int(head[1]), head[2].decode()) if head else None


def last_of(db: Any) -> Last:
    """The last change of a database."""
    return db.execute("SELECT seq, at FROM journal ORDER BY seq DESC LIMIT 1").fetchone() or (0, "")


def read(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of a journal file; None for one that is torn or no change."""
    if path.exists():
        with path.open("rb") as file:
            yield from map(_parsed, file)


def is_whole(line: dict[str, Any]) -> bool:
    """Whether a line has rows of a file that was written anew; those of version 0.1.0 say it by `undo`."""
    return "whole" in line or line.get("undo", ()) is None


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(data)
        named = is_whole(line) or [type(line[name]) for name in ENTRY] == [int, str, int, str]
        return line if named and type(line["seq"]) is int and isinstance(line["now"], dict) else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
