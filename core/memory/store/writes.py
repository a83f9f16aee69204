"""The statements that change a bank's tables, each inside the transaction that its caller holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from core.memory.store.schema import FIELDS, INSERT, SELECT, lexical_text, to_column, to_record, to_row
from core.types import MemoryRecord


def now() -> str:
    """Wall clock, ISO, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def insert(
    db: Any, record: MemoryRecord, vector: bytes | None, items: list[bytes], rowid: int | None = None
) -> int | None:
    """Add a record with its vectors (float32 bytes), in its old place where a rowid is given.

    Returns its rowid; None when its id is there already.
    """
    cursor = db.execute(INSERT, [rowid, *to_row(record)])
    if cursor.rowcount != 1:
        return None
    if rowid is not None:
        db.execute(
            "INSERT INTO touched (record, found) VALUES (?, 1)", (rowid,)
        )  # an index would not look behind its last
    rowid = cursor.lastrowid
    if vector is not None:
        db.execute("INSERT INTO vectors VALUES (?, ?)", (rowid, vector))
    put_items(db, rowid, items)
    index_words(db, rowid, record)
    return rowid


def put_items(db: Any, rowid: int, items: list[bytes]) -> None:
    """Store the vectors of a record's items."""
    if items:
        rows = [(rowid, place, vector) for place, vector in enumerate(items)]
        db.executemany("INSERT OR REPLACE INTO item_vectors VALUES (?, ?, ?)", rows)


def index_words(db: Any, rowid: int, record: MemoryRecord) -> None:
    """Enter a record into the full-text index."""
    texts = [to_column("text", text) for text in (record.original_query, lexical_text(record.items))]
    db.execute("INSERT INTO lexicon (rowid, query, items) VALUES (?, ?, ?)", (rowid, *texts))


def find(db: Any, id: str) -> tuple[int, MemoryRecord] | None:
    """(rowid, record) of an id, as this transaction sees it."""
    row = db.execute(f"{SELECT[:7]}r.rowid, {SELECT[7:]} WHERE r.id = ?", (id,)).fetchone()
    return (row[0], to_record(row[1:])) if row else None


def update(db: Any, rowid: int, fields: dict[str, Any]) -> None:
    """Set some fields of a record; new items need put_items and index_words afterwards."""
    names = [name for name in FIELDS if name in fields]
    marks = ", ".join(f"{name} = ?" for name in names)
    db.execute(f"UPDATE records SET {marks} WHERE rowid = ?", [*(to_column(n, fields[n]) for n in names), rowid])


def delete(db: Any, rowid: int) -> None:
    """Remove a record; the triggers remove its vectors and words. Its links stay: they name ids."""
    db.execute("DELETE FROM records WHERE rowid = ?", (rowid,))


def put_link(db: Any, source: str, relation: str, target: str, note: str) -> bool:
    """Add a link; False when it is there already."""
    row = (source, relation, target, to_column("note", note))
    return db.execute("INSERT INTO links VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row).rowcount == 1


def drop_link(db: Any, source: str, relation: str, target: str) -> str | None:
    """Remove a link and return its note; None when there was none."""
    query = "DELETE FROM links WHERE source = ? AND relation = ? AND target = ? RETURNING note"
    row = db.execute(query, (source, relation, target)).fetchone()
    return row[0] if row else None


def drop_links(db: Any, id: str) -> None:
    """Remove every link from or to a record."""
    db.execute("DELETE FROM links WHERE ? IN (source, target)", (id,))


def set_fact(db: Any, key: str, value: str | None) -> str | None:
    """Set a fact about the bank, or remove it with None; returns what it was."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    db.execute("DELETE FROM meta WHERE key = ?", (key,))
    if value is not None:
        db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))
    return row[0] if row else None


def enter(db: Any, reason: str, undo: str) -> tuple[int, str, int]:
    """Add a journal entry; returns its (seq, at, tick)."""
    at, tick = now(), db.execute("SELECT coalesce(max(tick), 0) FROM records").fetchone()[0]
    cursor = db.execute("INSERT INTO journal (at, tick, reason, undo) VALUES (?, ?, ?, ?)", (at, tick, reason, undo))
    return cursor.lastrowid, at, tick


def strike(db: Any, ids: set[str]) -> None:
    """Take what the journal could restore of some records out of it."""
    for seq, undo in db.execute("SELECT seq, undo FROM journal").fetchall():
        if not any(id in undo for id in ids):
            continue
        steps = [step for step in json.loads(undo) if not _tells(step, ids)]
        db.execute("UPDATE journal SET undo = ? WHERE seq = ?", (json.dumps(steps, separators=(",", ":")), seq))


def drop_jobs(db: Any, ids: set[str]) -> None:
    """Delete the finished jobs that made some records: their results hold titles and descriptions."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone():
        return
    for job, result in db.execute("SELECT id, result FROM jobs WHERE state = 'completed'").fetchall():
        if json.loads(result).get("memory_id") in ids:
            db.execute("DELETE FROM jobs WHERE id = ?", (job,))


def _tells(step: list, ids: set[str]) -> bool:
    kind, *rest = step
    if kind == "restore":
        return rest[1]["id"] in ids
    return (kind == "update" and rest[0] in ids) or (kind == "link" and (rest[0] in ids or rest[2] in ids))


def vectors(db: Any, rowid: int) -> tuple[bytes | None, list[bytes]]:
    """The (query vector, item vectors) that are stored for a record."""
    row = db.execute("SELECT vector FROM vectors WHERE rowid = ?", (rowid,)).fetchone()
    items = db.execute("SELECT vector FROM item_vectors WHERE record = ? ORDER BY place", (rowid,)).fetchall()
    return (row[0] if row else None), [item[0] for item in items]
