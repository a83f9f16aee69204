"""Search by words: BM25 in memory over the records of one namespace, the same for every database and every script.

BM25 (Robertson and Zaragoza 2009) with k1 = 1.2 and b = 0.75; a word that n of N records have weighs
ln(1 + (N - n + 0.5) / (n + 0.5)), as in Lucene. N, n and the mean length are those of the namespace,
so that no tenant's scores tell which words another one's lessons hold. An index is made at the first search, and each
later search adds what has changed since. (bm25s computes all scores beforehand, so it takes no additions.)
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from core.memory.filter import Filter
from core.memory.store.contract import BankStore, Search
from core.memory.store.hits import Hit, best_of_each, in_order
from core.memory.store.schema import Damaged
from core.normal_form import normal_form

if TYPE_CHECKING:
    import numpy as np

K1, B = 1.2, 0.75
FEW = 100  # texts: a smaller bank says little of which words are rare
KEPT = 64  # indexes kept in memory
MOST_GONE = 0.2  # share of removed texts from which an index is made anew
MOST_WORDS = 64  # of a query
AT_ONCE = 1_000  # matches whose visibility is looked up at once
PART = 4  # characters of the parts of a word: inflected forms of a word share some of them
# Scripts that put no blanks between words, whose words are pairs of characters; and Hangul, which adds particles.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PAIRED = f"{_UNSPACED}\uac00-\ud7af"
_MARKS = "\u0900-\u0963\u0966-\u0dff"  # written with letters, but for Python no part of a word
_TERM = re.compile(rf"[{_PAIRED}]+|(?:[^\W_{_PAIRED}]|[{_MARKS}])+")
_IS_PAIRED, _HAS_UNSPACED = re.compile(f"[{_PAIRED}]"), re.compile(f"[{_UNSPACED}]")
_ACCENTS = re.compile("[\u0300-\u036f]")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case without accents, repeated as they stand there."""
    text = normal_form(text).lower()
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFD", text))
        text = unicodedata.normalize("NFC", text)
    return _TERM.findall(text)


def terms(words: Iterable[str], *, parts: bool = False) -> list[str]:
    """What is compared of words: themselves, or in some scripts their pairs. parts: also parts of four characters."""
    found = []
    for word in words:
        if _IS_PAIRED.match(word):
            found += _pieces(word, 2) or [word]
        else:
            found += [word, *(_pieces(word, PART) if parts and len(word) > PART else ())]
    return found


def _pieces(word: str, size: int) -> list[str]:
    return [word[at : at + size] for at in range(len(word) - size + 1)]


def has_no_blanks(text: str) -> bool:
    """Whether a text holds a script without blanks between words."""
    return _HAS_UNSPACED.search(text) is not None


class Lexicon:
    """The texts of one namespace by their words. parts: and by the parts of their words, as `terms`."""

    def __init__(self, *, parts: bool = False) -> None:
        self.parts = parts
        self.state: Any = None  # of the bank, as `BankStore.texts` gives it
        self._places: dict[int, int] = {}  # of each text that is there, by its row id
        self._rowids, self._lengths = array("q"), array("d")  # by place; a removed text has no length
        self._postings: dict[str, tuple[array, array]] = {}  # by word: places of the texts that have it, and how often

    def put(self, rowid: int, text: str) -> None:
        """Add a text, or replace the one with this row id."""
        self.remove(rowid)
        place = self._places[rowid] = len(self._rowids)
        counts = Counter(terms(words_of(text), parts=self.parts))
        self._rowids.append(rowid)
        self._lengths.append(counts.total())
        for word, n in counts.items():
            places, times = self._postings.setdefault(word, (array("i"), array("i")))
            places.append(place)
            times.append(n)

    def remove(self, rowid: int) -> None:
        """Remove a text, if it is there. Its words go when the index is made anew (`share_gone`)."""
        if (place := self._places.pop(rowid, None)) is not None:
            self._lengths[place] = -1.0

    def share_gone(self) -> float:
        return 1 - len(self._places) / max(len(self._rowids), 1)

    def scores(self, query: str, *, share: bool = False) -> list[tuple[int, float]]:
        """(row id, BM25) of the texts with any of the query's words, best first, ties to the oldest; to 9 digits.

        share   BM25 as a share, in [0, 1], of what the query's words, those that no text has too, could give at most;
                words are as rare as among FEW texts at least
        """
        import numpy as np

        lengths = np.array(self._lengths)
        there = lengths >= 0
        norms = K1 * (1 - B + B * lengths / max(lengths[there].mean(), 1.0)) if len(self._places) else lengths
        total, most = np.zeros(len(lengths)), 0.0
        n_texts = max(len(self._places), FEW) if share else len(self._places)
        words = list(dict.fromkeys(words_of(query)))[:MOST_WORDS]
        for word in dict.fromkeys(terms(words, parts=self.parts)):
            places, times = self._of(word, there)
            n = len(places)
            idf = np.log(1 + (n_texts - n + 0.5) / (n + 0.5))
            most += idf * (K1 + 1)
            total[places] += idf * (times * (K1 + 1)) / (times + norms[places])
        found = np.flatnonzero(total)
        rowids, scores = (
            np.frombuffer(self._rowids, np.int64)[found],
            np.round(total[found] / (most if share else 1.0), 9),
        )
        order = np.lexsort((rowids, -scores))
        return list(zip(rowids[order].tolist(), scores[order].tolist(), strict=True))

    def _of(self, word: str, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        places, times = (np.array(each, np.int32) for each in self._postings.get(word, (array("i"), array("i"))))
        kept = there[places]
        return places[kept], times[kept]


class WordSearch:
    """Search by words in a bank: the indexes of the last KEPT namespaces that were searched. Thread-safe."""

    def __init__(self, store: BankStore, search: Search) -> None:
        self._store, self._search, self._lock = store, search, threading.Lock()
        self._known: OrderedDict[tuple[str | None, bool], Lexicon] = OrderedDict()

    def best(
        self,
        query: str,
        k: int,
        where: Filter,
        exclude_task: str | None,
        *,
        parts: bool = False,
        share: bool = False,
    ) -> list[Hit]:
        """The k records with any of the query's words, best BM25 first, ties to the oldest. Others as in `Search`.

        The words of a merged or superseded record find the one that its keys lead to. share: as in `Lexicon.scores`.
        """
        space = None if where.everyone else where.named
        with self._lock:
            scores = self._synced(space, parts).scores(query, share=share)
        found: list[Hit] = []
        start, size = 0, 2 * k  # most often these are enough
        while len(found) < k and start < len(scores):
            part = [(rowid, -1, score) for rowid, score in scores[start : start + size]]
            found = best_of_each([*found, *self._search.those(part, where, exclude_task)])
            start, size = start + size, max(2 * size, AT_ONCE)
        return in_order(found)[:k]

    def _synced(self, space: str | None, parts: bool) -> Lexicon:
        lexicon, is_changing = self._known.get((space, parts)), self._store.is_changing
        if lexicon is None or is_changing or lexicon.share_gone() > MOST_GONE:
            lexicon = Lexicon(parts=parts)
        state, gone, texts = self._store.texts(space, lexicon.state)
        if gone is None:  # nothing of what was deleted for good may stay
            lexicon, gone = Lexicon(parts=parts), ()
        for rowid in gone:
            lexicon.remove(rowid)
        for rowid, query, items in texts:
            lexicon.put(rowid, f"{query} {self._said(rowid, items)}")
        lexicon.state = state
        if not is_changing:  # what an open change has done may not stay
            self._known[space, parts] = lexicon
            self._known.move_to_end((space, parts))
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return lexicon

    def _said(self, rowid: int, items: str) -> str:
        try:
            return " ".join(f"{each['title']} {each['description']} {each['content']}" for each in json.loads(items))
        except (ValueError, LookupError, TypeError) as error:
            raise Damaged(self._store.path, f"the lessons in row {rowid} cannot be read: {error}") from error
