"""A bank's database brought up to its journal's file, or filled from it; a file that does not fit is written anew.

The file is never cut down to a database that has lost its last changes: with a damaged or missing -wal SQLite drops
them without a word. Nor are changes of another bank made.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.jsonl import refused
from core.memory.sqlite import index as index_file
from core.memory.sqlite import journal_file
from core.memory.sqlite.session import SqliteSession
from core.memory.store.changes import restore_rows
from core.memory.store.keys import pass_all_keys
from core.memory.store.schema import TRACKED

LOST = "lost: this change could not be read in the journal's file"
_UNUSABLE = (sqlite3.DatabaseError, LookupError, TypeError, ValueError)  # valid JSON all the same


def bring_up(db: SqliteSession, bank: Path) -> tuple[str | None, bool]:
    """Make the changes that only the journal's file has. Call inside a transaction, with triggers.

    Returns (a sentence on the difference, None: there was none; whether the file must be rewritten now).
    """
    file = journal_file.path_of(bank)
    mine, theirs = journal_file.last_of(db), journal_file.last(file)
    is_backup = db.execute("DELETE FROM meta WHERE key = 'backup'").rowcount == 1
    if mine == theirs:
        return None, False
    if is_backup and file.exists():
        kept = keep_aside(file)
        return f"a backup was put in the bank's place, and stays as it is: {file.name}, of before, is {kept} now", True
    entries, base, torn = {0: ""}, 0, 0
    for line in journal_file.read(file):
        if line is None:
            torn += 1
        elif journal_file.is_whole(line):
            base = max(base, line["seq"])
        else:
            entries[line["seq"]] = line["at"]
    ahead = max(entries) - mine[0]
    if ahead > 0 and entries.get(mine[0], mine[1]) == mine[1]:
        lost = fill(db, journal_file.read(file), mine[0] if base <= mine[0] else 0)
        if base > mine[0]:  # all rows are from the file, also fewer than there were, as after a `forget`
            index_file.remove(bank)
        text = (
            f"it lacked {'the last change' if ahead == 1 else f'the last {ahead} changes'} of its journal, now brought "
        )
        text += "back from there (a writer was killed, or the file beside it that ends in -wal was lost or damaged)"
        text += (
            f"; {lost} of them could not be read and are lost: the file is kept as {keep_aside(file)}" if lost else ""
        )
        return text, bool(lost)
    if not file.exists() or file.stat().st_size == 0:
        return (
            "there was no journal beside it, which is written anew: if it was copied while it was in use, "
            "what its -wal file held is missing",
            True,
        )
    there = "cannot be read" if theirs is None or torn else f"ends with change {theirs[0]} of {theirs[1]}"
    return (
        f"{file.name} {there}, the bank with change {mine[0]}: it is kept as {keep_aside(file)} and written anew",
        True,
    )


def fill(db: SqliteSession, lines: Iterable[dict[str, Any] | None], after: int) -> int:
    """Make the changes of a journal's lines after `after` again, as changes: the triggers do the rest.

    After 0 the database is emptied first. Returns how many of the changes could not be read.
    """
    if after == 0:
        _empty(db)
    have, lost, base = after, 0, 0
    for line in lines:
        if line is None or line["seq"] <= after:
            continue
        if journal_file.is_whole(line):
            base = line["seq"]
            lost += not _apply(db, line)
            continue
        if base and line["seq"] > base:
            base = _begin_undo(db, base)
        for seq in range(have + 1, line["seq"]):
            db.execute("INSERT INTO journal VALUES ($1, $2, 0, $3)", (seq, line["at"], LOST))
            lost += 1
        have = max(have, line["seq"])
        made = _apply(db, line)
        lost += not made
        entry = [(line if made else line | {"reason": LOST})[column] for column in journal_file.ENTRY]
        db.execute("INSERT OR IGNORE INTO journal VALUES ($1, $2, $3, $4)", entry)
    if base:
        _begin_undo(db, base)
    if after == 0:
        known = "SELECT rowid FROM records UNION ALL SELECT rowid FROM undo_records"
        db.execute(f"DELETE FROM keys WHERE kind <> 'query' OR origin NOT IN ({known})")
        db.execute("INSERT OR REPLACE INTO meta SELECT 'forgot', CAST(coalesce(max(seq), 0) AS TEXT) FROM journal")
    db.execute("INSERT OR IGNORE INTO meta VALUES ('unembedded', '1')")
    pass_all_keys(db, None)
    return lost


def _apply(db: SqliteSession, line: dict[str, Any]) -> bool:
    """Write the rows after a change, and the embedder's name; False if they cannot be written."""
    db.execute("SAVEPOINT line")
    try:
        restore_rows(db, {table: rows for table, rows in line["now"].items() if table in TRACKED})
        if line.get("embedder") is not None:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('embedder', $1)", (line["embedder"],))
    except _UNUSABLE:
        db.execute("ROLLBACK TO line")
        return False
    finally:
        db.execute("RELEASE line")
    return True


def _empty(db: SqliteSession) -> None:
    for table in TRACKED:
        db.execute(f"DELETE FROM {table}")
        db.execute(f"DELETE FROM undo_{table}")
    db.execute("DELETE FROM journal")


def _begin_undo(db: SqliteSession, base: int) -> int:
    """What was before the rows of a rewritten file is not known: no change up to that can be undone. Returns 0."""
    for table in TRACKED:
        db.execute(f"DELETE FROM undo_{table}")
    db.execute("INSERT OR REPLACE INTO meta VALUES ('undo_from', $1)", (str(base),))
    return 0


def keep_aside(path: Path) -> str:
    """Keep a file under another name beside it, too; returns that name."""
    aside = aside_of(path)
    try:
        shutil.copyfile(path, aside)
    except OSError as error:
        raise refused(aside, error) from error
    return aside.name


def aside_of(path: Path) -> Path:
    """Where a damaged file is kept: beside it, with the time in its name."""
    return path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
