"""Search by words: the full-text index of a bank's file, and those of single namespaces where several share it.

BM25 weighs a word by how many records have it. In the file's own index these are everyone's records, so that the scores
of one tenant would tell which words stand in the lessons of another. Theirs are caches in memory, made at a first
search.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from core.memory.sqlite.database import SqliteDatabase
from core.memory.sqlite.postings import Postings, Rows, by_fts5, in_memory
from core.memory.sqlite.session import SqliteSession

if TYPE_CHECKING:
    from core.memory.sqlite.postings import Scores

KEPT = 64  # namespaces whose indexes are kept
OFTEN = 8  # searches of an unchanged index after which its postings are read into memory, which takes about as long
MOST = 50_000  # max. records of a bank whose postings are kept: 2 kB each, twice if it has several namespaces
State = tuple[int, int, str | None]  # sync position: (max rowid, max seq in `touched`, journal entry of last erasure)
STATE = (
    "SELECT coalesce((SELECT max(rowid) FROM records), 0), coalesce((SELECT max(seq) FROM touched), 0), "
    "(SELECT value FROM meta WHERE key = 'forgot')"
)


class _Lexicon:
    """A full-text index, the state of the bank that it is synced to, and its postings once it is searched often.

    rows   reads the index
    """

    def __init__(self, database: SqliteDatabase, rows: Rows) -> None:
        self._database, self.rows = database, rows
        self.state: State = (0, 0, None)
        self._searches, self._postings = 0, None

    def synced_to(self, state: State) -> None:
        if state != self.state:
            self.state, self._searches, self._postings = state, 0, None

    def scores(self, words: list[str]) -> Scores:
        self._searches += 1
        if self._postings is None and self._searches >= OFTEN and self._database.count() <= MOST:
            self._postings = Postings(self.rows, self._database.path)
        return by_fts5(self.rows, words) if self._postings is None else self._postings.scores(words)


class _OfNamespace(_Lexicon):
    """The index of a namespace, in memory."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.db = in_memory()
        super().__init__(database, lambda query, values: SqliteSession(self.db).execute(query, values).fetchall())


class Lexicons:
    """The index of a bank's file, and those of the last KEPT namespaces that were searched. Thread-safe."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._of: OrderedDict[str, _OfNamespace] = OrderedDict()
        self._of_file = _Lexicon(database, database.rows)

    def scores(self, namespace: str | None, words: list[str]) -> Scores:
        """Row ids and BM25 of the records of any status with any of the words, best first, ties to the oldest.

        Must be called inside a read transaction of the database.

        namespace   whose records are searched and counted; None: all
        """
        with self._lock:
            if namespace is None:
                return self._scores_of_file(words)
            lexicon = self._synced(self._of.pop(namespace, None) or _OfNamespace(self._database), namespace)
            found = lexicon.scores(words)
            if not self._database.is_changing:  # what an open change has done may not stay
                self._of[namespace] = lexicon
            if len(self._of) > KEPT:
                self._of.popitem(last=False)[1].db.close()
            return found

    def _scores_of_file(self, words: list[str]) -> Scores:
        if self._database.is_changing:  # what an open change has done may not stay
            return by_fts5(self._database.rows, words)
        self._of_file.synced_to(self._database.rows(STATE)[0])
        return self._of_file.scores(words)

    def _synced(self, lexicon: _OfNamespace, namespace: str) -> _OfNamespace:
        rows, old = self._database.rows, lexicon.state
        upto: State = rows(STATE)[0]
        if upto[2] != old[2]:  # after a forget or erase made anew, so that the words are really gone
            lexicon.db.close()
            lexicon, old = _OfNamespace(self._database), (0, 0, upto[2])
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
        lexicon.synced_to(upto)
        return lexicon
