"""What a bank's database and its journal file tell each other: the one that lacks something gets it from the other.

The file is never cut down to a database that has lost its last changes: with a damaged or missing -wal SQLite drops
them without a word. Nor is a database rebuilt from lines of another bank.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.jsonl import refused
from core.memory.sqlite import index as index_file
from core.memory.sqlite import journal_file
from core.memory.sqlite.migrations import drop_triggers
from core.memory.sqlite.session import SqliteSession
from core.memory.sqlite.setup import DIALECT, create, finish
from core.memory.store.changes import restore_rows
from core.memory.store.keys import pass_keys

SKIPPED = "lost: this change was damaged in the journal's file"
_UNUSABLE = (sqlite3.DatabaseError, LookupError, TypeError, ValueError)  # valid JSON all the same


def differs(db: Any, path: Path) -> bool:
    """Whether the journal's file does not end where the database does, or is damaged at some place. A cheap look."""
    found = journal_file.glance(path)
    n, last = _changes(db)
    return not found.intact or found.last != last or found.n not in (None, n)


def compared(db: Any, path: Path) -> tuple[int, bool]:
    """(changes that the journal's file is ahead of the database, whether it is damaged), for one who only reads.

    Beside a writer it may be one change ahead for a moment, and its last line incomplete.
    """
    n, last = _changes(db)
    found = journal_file.glance(path)
    return found.last - _changes(db)[1], not found.intact or found.last < last or (found.n is not None and found.n < n)


def _changes(db: Any) -> tuple[int, int]:
    """(number of changes, the last one) in the database."""
    return db.execute("SELECT count(*), coalesce(max(seq), 0) FROM journal").fetchone()


def bring_up(db: SqliteSession, path: Path) -> tuple[list[str], bool]:
    """Bring into the database what only the journal's file has. Call inside a transaction, with triggers.

    Returns (a sentence on each difference found, whether the file must be rewritten now).
    """
    found, file = journal_file.scan(path), journal_file.path_of(path)
    mine = {row[0]: row for row in db.execute("SELECT seq, at, tick, reason FROM journal")}
    have, said = max(mine, default=0), []
    common = [seq for seq, entry in mine.items() if seq in found.entries and entry[-1] != SKIPPED]
    if any(found.entries[seq] != mine[seq] for seq in common):
        return [f"{file.name} is of another bank, or of another state of it: it is kept as {keep_aside(file)}"], True
    if found.damaged:
        lines = ", ".join(map(str, found.damaged[:5])) + (" ..." if len(found.damaged) > 5 else "")
        said.append(f"{file.name} was damaged in line {lines}: it is kept as {keep_aside(file)} and written anew")
    if found.seq > have:
        lost = _replace(db, path) if found.base > have and not found.damaged else _redo(db, path, have)
        db.execute("INSERT INTO meta VALUES ('unembedded', '1') ON CONFLICT DO NOTHING")
        pass_keys(db, None)
        n = found.seq - have
        text = f"it lacked {'the last change' if n == 1 else f'the last {n} changes'} of its journal, now brought back "
        text += "from there (a writer was killed, or the file beside it that ends in -wal was lost or damaged)"
        text += f"; {lost} of them could not be read and are lost" if lost else ""
        if found.damaged and found.damaged[-1] > found.last_intact:
            text += "; what stood after them cannot be read, and is lost if it was acknowledged"
        said.append(text)
    elif missing := mine.keys() - found.entries.keys():
        said.append(f"{file.name} lacked {len(missing)} of its {len(mine)} changes: it is written anew")
        return said, True
    return said, bool(found.damaged)


def _redo(db: SqliteSession, path: Path, have: int) -> int:
    """Make the changes after `have` again, as changes: the triggers do the rest. Returns how many could not be."""
    lines = sorted((line for line in journal_file.read(path) if line["seq"] > have), key=lambda line: line["seq"])
    lost = 0
    for line in lines:
        if line["undo"] is not None and line["seq"] <= have:  # it is there twice
            continue
        for seq in range(have + 1, line["seq"]):
            db.execute("INSERT INTO journal VALUES ($1, $2, 0, $3)", (seq, line.get("at", ""), SKIPPED))
            lost += 1
        have = max(have, line["seq"])
        try:
            db.execute("SAVEPOINT line")
            journal_file.redo(db, line)
        except _UNUSABLE:
            db.execute("ROLLBACK TO line")
            line, lost = line | {"reason": SKIPPED}, lost + 1
        if line["undo"] is not None:
            db.execute("INSERT INTO journal VALUES ($1, $2, $3, $4)", [line[column] for column in journal_file.ENTRY])
    return lost


def _replace(db: SqliteSession, path: Path) -> int:
    """Take all rows from the file, which was rewritten after the database's state: as after a `forget`."""
    drop_triggers(db.db)
    empty_tracked(db)
    for line in journal_file.read(path):
        journal_file.replay(db, line)
    for table, row in (("keys", "origin"), ("lineage", "record")):
        known = "SELECT rowid FROM records UNION ALL SELECT rowid FROM undo_records"
        db.execute(f"DELETE FROM {table} WHERE {row} NOT IN ({known})")
    db.execute("DELETE FROM keys WHERE kind <> 'query'")
    db.execute("INSERT INTO touched (record, found) SELECT rowid, 1 FROM records")
    db.execute("INSERT OR REPLACE INTO meta SELECT 'forgot', CAST(max(seq) AS TEXT) FROM journal")
    create(db.db)
    finish(db.db)
    index_file.remove(path)
    return 0


def mend_links_and_facts(db: SqliteSession, path: Path) -> int:
    """Take the links and facts, which have no checksums, from the journal's file; returns how many differed.

    The file must be whole and end where the database does. Call inside a transaction.
    """
    differ = 0
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        create(copy)
        for line in journal_file.read(path):
            journal_file.redo(SqliteSession(copy), line)
        for table in ("links", "facts"):
            columns, n_key = DIALECT.tracked[table]
            query = f"SELECT 1, {', '.join(columns)} FROM {table}"
            right, here = set(copy.execute(query).fetchall()), set(db.execute(query).fetchall())
            gone = [(0, *row[1 : n_key + 1]) for row in here - right]
            restore_rows(db, {table: [*gone, *(right - here)]})
            db.execute(f"DELETE FROM undo_{table} WHERE seq > (SELECT coalesce(max(seq), 0) FROM journal)")
            differ += len({row[1 : n_key + 1] for row in here ^ right})
    return differ


def empty_tracked(db: SqliteSession) -> None:
    """Empty the tables whose rows the journal's file has, too."""
    db.execute("DELETE FROM journal")
    for table in DIALECT.tracked:
        db.execute(f"DELETE FROM {table}")
        db.execute(f"DELETE FROM undo_{table}")


def keep_aside(path: Path) -> str:
    """Keep a damaged file under another name beside it, too; returns that name."""
    aside = aside_of(path)
    try:
        shutil.copyfile(path, aside)
    except OSError as error:
        raise refused(aside, error) from error
    return aside.name


def aside_of(path: Path) -> Path:
    """Where a damaged file is kept: beside it, with the time in its name."""
    return path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
