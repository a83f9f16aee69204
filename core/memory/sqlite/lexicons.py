"""Full-text indexes of single namespaces, where several share a bank's file.

BM25 weighs a word by how many records have it. In the file's own index these are everyone's records, so that the scores
of one tenant would tell which words stand in the lessons of another. Each is a cache in memory, made at a first search.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from core.memory.sqlite.database import SqliteDatabase

KEPT = 64  # namespaces whose indexes are kept
State = tuple[int, int, str | None]  # sync position: (max rowid, max seq in `touched`, journal entry of last erasure)
_SCORED = (
    "SELECT rowid, round(-bm25(lexicon), 9) AS score FROM lexicon WHERE lexicon MATCH ? ORDER BY score DESC, rowid"
)


def _connect() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    db.execute("CREATE VIRTUAL TABLE lexicon USING fts5(query, items)")
    return db


@dataclass
class _Lexicon:
    """The index of a namespace, and the state of the bank that it is synced to."""

    db: sqlite3.Connection = field(default_factory=_connect)
    state: State = (0, 0, None)


class Lexicons:
    """The indexes of the last KEPT namespaces that were searched. Thread-safe."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._of: OrderedDict[str, _Lexicon] = OrderedDict()

    def scores(self, namespace: str, expression: str) -> list[tuple[int, float]]:
        """(rowid, BM25) of the records of any status that match, best first, ties to the oldest.

        Must be called inside a read transaction of the database.
        """
        with self._lock:
            lexicon = self._of.pop(namespace, None) or _Lexicon()
            lexicon = self._synced(lexicon, namespace)
            found = lexicon.db.execute(_SCORED, (expression,)).fetchall()
            if not self._database.is_changing:  # what an open change has done may not stay
                self._of[namespace] = lexicon
            if len(self._of) > KEPT:
                self._of.popitem(last=False)[1].db.close()
            return found

    def _synced(self, lexicon: _Lexicon, namespace: str) -> _Lexicon:
        rows, old = self._database.rows, lexicon.state
        upto = rows(
            "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0), "
            "(SELECT value FROM meta WHERE key = 'forgot')"
        )[0]
        if upto[2] != old[2]:  # after a forget or erase made anew, so that the words are really gone
            lexicon.db.close()
            lexicon, old = _Lexicon(), (0, 0, upto[2])
        words = "SELECT rowid, query, items FROM words WHERE rowid IN (SELECT rowid FROM records WHERE"
        if old[0] == 0:
            new = rows(f"{words} namespace = $1)", (namespace,))
        else:  # +: by row id, of which few are new, and not by the namespace's index
            changed = "(SELECT record FROM touched WHERE seq > $2 AND found)"
            gone = rows("SELECT DISTINCT record FROM touched WHERE seq > $1 AND found", (old[1],))
            lexicon.db.executemany("DELETE FROM lexicon WHERE rowid = ?", gone)
            new = rows(
                f"{words} +namespace = $1 AND rowid IN (SELECT rowid FROM records WHERE rowid > $3 "
                f"UNION SELECT record FROM {changed}))",
                (namespace, old[1], old[0]),
            )
        lexicon.db.executemany("INSERT OR REPLACE INTO lexicon (rowid, query, items) VALUES (?, ?, ?)", new)
        lexicon.state = upto
        return lexicon
