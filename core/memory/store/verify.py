"""What the doctor looks at beside the database's pages: vectors, words, the journal's file, the index's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from core.memory.search import index_file
from core.memory.store import journal_file, writes
from core.memory.store.database import Store
from core.memory.store.schema import SELECT, to_record


def mend(store: Store, embed: Callable) -> Iterator[str]:
    """Check and mend each; yields a line for each."""
    total = store.count()
    missing = store.rows("SELECT count(*) FROM records r LEFT JOIN vectors v USING (rowid) WHERE v.vector IS NULL")[0][
        0
    ]
    if missing:
        store.embed_missing(embed)
    yield f"{total} records, " + (f"{missing} had no vector and have one now" if missing else "each with its vector")
    lost = _words(store)
    yield "the words of every record are indexed" + (f", {lost} of them anew" if lost else "")
    last = 0
    for line in journal_file.read(store.path):
        last = line["seq"]
    if last == store.rows("SELECT coalesce(max(seq), 0) FROM journal")[0][0]:
        yield f"the journal's file goes as far as the database: {last} changes"
    else:
        store.purge()
        yield "the journal's file did not fit the database and is written anew"
    for name in (".index", ".items.index"):
        path = store.path.with_name(store.path.name + name)
        if path.exists():
            whole = index_file.load(path, {"embedder": store.meta("embedder")}) is not None
            if not whole:
                path.unlink()
            yield (
                f"{path.name} is whole" if whole else f"{path.name} was damaged and is removed: it comes back by itself"
            )


def _words(store: Store) -> int:
    """Enter records into the full-text index that it lacks, or all of them where it is damaged; returns how many."""
    with store.transaction() as db:
        try:
            db.execute("INSERT INTO lexicon(lexicon) VALUES ('integrity-check')")
        except sqlite3.DatabaseError:
            db.execute("DROP TABLE lexicon")
            db.execute("CREATE VIRTUAL TABLE lexicon USING fts5(query, items)")
        query = f"SELECT r.rowid, {SELECT[7:]} WHERE r.rowid NOT IN (SELECT rowid FROM lexicon)"
        lost = db.execute(query).fetchall()
        for rowid, *row in lost:
            writes.index_words(db, rowid, to_record(tuple(row)))
        gone = db.execute("SELECT rowid FROM lexicon WHERE rowid NOT IN (SELECT rowid FROM records)").fetchall()
        db.executemany("DELETE FROM lexicon WHERE rowid = ?", gone)
    return len(lost)
