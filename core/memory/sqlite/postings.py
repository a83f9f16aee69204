"""BM25 by a full-text index whose postings are held in memory: FTS5's scores, for many searches of the same records.

FTS5 scores each record with a word of the query by itself: a query of 64 words in 10 000 records takes 125 ms. Here it
takes 8 with the reading of 50 records, after a second in which the index is read.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from core.memory.store.schema import Damaged

if TYPE_CHECKING:
    import numpy as np

    Scores = tuple[np.ndarray, np.ndarray]  # int64 (n,), float64 (n,)

K1, B = 1.2, 0.75  # FTS5's
KEPT = 100_000  # words whose tokens are kept
LEAST_IDF = 1e-6  # FTS5's weight of a word that half of the records or more have
INSTANCES = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.instances USING fts5vocab(main, lexicon, instance)"
Rows = Callable[[str, tuple], list[tuple]]  # all rows of a query whose values are $1, $2, ...


def by_fts5(rows: Rows, words: list[str]) -> Scores:
    """Row ids and BM25 of the records with any of the words, best first, ties to the oldest; rounded to 9 digits."""
    import numpy as np

    expression = " OR ".join(f'"{word}"' for word in words)  # quoted: nothing in a text is an operator
    query = "SELECT rowid, -bm25(lexicon) FROM lexicon WHERE lexicon MATCH $1 ORDER BY rowid"
    found = rows(query, (expression,))
    return _ranked(np.array([row[0] for row in found], np.int64), np.array([row[1] for row in found], np.float64))


def in_memory() -> sqlite3.Connection:
    """An empty full-text index with the table of its words."""
    db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    db.execute("CREATE VIRTUAL TABLE lexicon USING fts5(query, items)")
    db.execute(INSTANCES)
    return db


def _tokens_of(words: list[str]) -> dict[str, tuple[str, ...]]:
    """What the index makes of each word: mostly one token, several of a name with underscores."""
    tokens: dict[str, tuple[str, ...]] = {word: (word.lower(),) for word in words if word.isascii() and word.isalnum()}
    if others := [word for word in words if word not in tokens]:
        tokens |= dict.fromkeys(others, ())
        with closing(in_memory()) as db:
            db.executemany("INSERT INTO lexicon (rowid, query) VALUES (?, ?)", enumerate(others))
            for place, token in db.execute("SELECT doc, term FROM instances ORDER BY doc, offset"):
                tokens[others[place]] += (token,)
    return tokens


def _n_tokens(size: bytes) -> int:
    """The number of tokens of a record: the sum over its columns, each a number in groups of 7 bits, highest first."""
    total = number = 0
    for byte in size:
        number = number << 7 | byte & 127
        if byte < 128:
            total, number = total + number, 0
    return total


def _ranked(rowids: np.ndarray, scores: np.ndarray) -> Scores:
    import numpy as np

    rounded = np.round(scores, 9)
    order = np.argsort(-rounded, kind="stable")
    return rowids[order], rounded[order]


def _idf(n_with: int, n: int) -> float:
    """FTS5's weight of a word that n_with of n records have."""
    return max(math.log((n - n_with + 0.5) / (n_with + 0.5)), 0.0) or LEAST_IDF


class Postings:
    """Which records have each word, with the score that it adds to theirs; 12 bytes a pair.

    rows   reads a database with the tables `lexicon` and `instances`, always in the same state
    bank   path of the bank, for what is said of its damage
    """

    def __init__(self, rows: Rows, bank: object) -> None:
        import numpy as np

        self._rows, self._bank = rows, bank
        known = rows("SELECT id, sz FROM lexicon_docsize ORDER BY id", ())
        self._rowids = np.array([row[0] for row in known], np.int64)
        words = rows("SELECT term, group_concat(doc) FROM instances GROUP BY term", ())
        self._numbers = {word: number for number, (word, _) in enumerate(words)}
        places = self._places(np.fromstring(",".join(docs for _, docs in words), dtype=np.int64, sep=","))
        lengths = np.bincount(places, minlength=len(self._rowids))
        if not np.array_equal(lengths, [_n_tokens(size) for _, size in known]):
            raise self._damaged()
        self._norms = K1 * (1 - B + B * lengths / (lengths.mean() if words else 1))
        of = np.repeat(np.arange(len(words)), [docs.count(",") + 1 for _, docs in words])
        pairs, counts = np.unique(of * max(len(lengths), 1) + places, return_counts=True)
        of, places = np.divmod(pairs, max(len(lengths), 1))
        n_with = np.bincount(of, minlength=len(words))
        self._idf = np.array([_idf(n, len(lengths)) for n in range(len(lengths) + 1)])
        self._ends, self._places_of = np.cumsum(n_with), places.astype(np.int32)
        self._added = self._adds(n_with[of], counts, places)
        self._tokens: dict[str, tuple[str, ...]] = {}
        self._phrases: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}

    def scores(self, words: list[str]) -> Scores:
        """As `by_fts5`."""
        import numpy as np

        if len(self._tokens) > KEPT:
            self._tokens, self._phrases = {}, {}
        if new := [word for word in words if word not in self._tokens]:
            self._tokens |= _tokens_of(new)
        found = [self._of(self._tokens[word]) for word in words]
        places, added = (np.concatenate(each) for each in zip(*found, strict=True))
        total = np.bincount(places, weights=added, minlength=len(self._rowids))
        hits = np.flatnonzero(total)
        return _ranked(self._rowids[hits], total[hits])

    def _adds(self, n_with: Any, counts: Any, places: np.ndarray) -> np.ndarray:
        """What a word adds to the scores of records that have it `counts` times, if n_with records have it."""
        return self._idf[n_with] * ((counts * (K1 + 1)) / (counts + self._norms[places]))

    def _of(self, tokens: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """(places of the records that have these tokens in this order, what each adds to their scores)."""
        if len(tokens) > 1:
            if tokens not in self._phrases:
                self._phrases[tokens] = self._of_phrase(tokens)
            return self._phrases[tokens]
        number = self._numbers.get(tokens[0], -1) if tokens else -1
        part = slice(self._ends[number - 1] if number > 0 else 0, self._ends[number] if number >= 0 else 0)
        return self._places_of[part], self._added[part]

    def _of_phrase(self, tokens: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        query = "SELECT doc, col, offset FROM instances WHERE term = $1"
        starts = [{(doc, col, at - n) for doc, col, at in self._rows(query, (t,))} for n, t in enumerate(tokens)]
        counts = Counter(doc for doc, _, _ in set.intersection(*starts))
        places = self._places(np.array(list(counts), dtype=np.int64))
        return places, self._adds(len(counts), np.array(list(counts.values())), places)

    def _places(self, rowids: np.ndarray) -> np.ndarray:
        """The places of these row ids. Raises Damaged if the index has none for one of them."""
        import numpy as np

        places = np.searchsorted(self._rowids, rowids)
        if len(rowids) and not np.array_equal(self._rowids.take(places, mode="clip"), rowids):
            raise self._damaged()
        return places

    def _damaged(self) -> Damaged:
        return Damaged(self._bank, "its full-text index does not hold the words that its records have")
