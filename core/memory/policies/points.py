"""retrieval=points: points for common words, marks and recent use, decaying with age; without embeddings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from core.errors import check_positive
from core.memory.filter import Filter
from core.memory.policies.base import Ranking, best
from core.memory.policies.trust import decay, feedback, warning_of
from core.memory.ports import Bank
from core.normal_form import folded
from core.types import MemoryRecord, Scored

LONG_ENOUGH, LONGEST = 4, 40  # min. and max. number of letters of a prefix that counts as the word
MAX_WORDS = 64  # max. words of a query
# The terms of the README's sum: points for a match in title, content and each tag, for marks, recent use and trust.
TITLE_EXACT, TITLE_PARTIAL, CONTENT_MATCH, TAG_MATCH = 10.0, 5.0, 3.0, 2.0
PER_HELPFUL, RECENT_USE, RECENT_DAYS, TRUST_WEIGHT = 1.0, 3.0, 7.0, 5.0
EMPTY_WORDS = frozenset(  # stop words
    "a about an and are as at be by can could do does for from had has have how i if in into is it its me my no not of "
    "on or our should so that the their them then there these they this to use using was we were what when where which "
    "who why will with would you your".split()
)


@dataclass(kw_only=True)
class Points(Ranking):
    """(10 exact title or 5 partial + 3 content + 2 a tag + 1 a helpful mark + 3 recent + 5 trust) max(0.1, 1 - age/90).

    Source: the README of mcp-learning-memory 0.2.1 ("Scoring Algorithm"); for users of that server. Where the README is
    not specific, this is our reading:

    - Case is ignored. A text matches a query if it contains the whole query or shares a word with it. A prefix of 4
      letters or more matches the word (auth, authentication). Stop words such as "how" and "the" count only within the
      whole query. Ties in points are broken by the number of common words.
    - An exact title earns 10 points instead of 5, not in addition. In a record with several lessons each term counts
      once, for any lesson that matches. Descriptions count as content.
    - A record that matches in neither title, content nor tags is not returned, whatever its marks.
    - Recent means used within 7 days. A record that was never used counts as used when it was added, which is the
      README's bonus for fresh insights. Its "full score" for 7 days is left out: the formula decays from day 0.
    - Trust is (helpful - 2 harmful) / (helpful + harmful + 1). A negative sum decays like any other, so harm fades.
    - Age is in fractional days, by the bank's clock, since the record was added.

    The task is not embedded. min_score is compared with the points. Reads every record of the namespace.

    warn   records with negative trust, and those from failures, get a warning in the prompt
    """

    ticks_per_day: float = 1.0
    warn: bool = True

    by_meaning: ClassVar[bool] = False
    by_words: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "retrieval", "ticks_per_day")

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        import numpy as np

        if (dim := bank.dim()) is None:
            return []
        everything = np.zeros(dim, dtype=np.float32)  # a zero vector: equally near to all records
        hits = bank.nearest(everything, max(len(bank), 1), exclude_task, self.within(where), unit="record", key="query")
        moment, a_day, asked = bank.moment(), self.ticks_per_day, Asked(query)
        found = []
        for record in (hit.record for hit in hits):
            if match := self.match(asked, record):
                age, idle = moment.age_days(record, a_day), moment.idle_days(record, a_day)
                points = self.points(record, match, age, idle)
                hit = Scored(record=record, score=points, warning=warning_of(record) if self.warn else "")
                found.append((asked.n_shared(f"{record.text}\n{' '.join(record.tags)}"), hit))
        by_words = [hit for _, hit in sorted(found, key=lambda pair: -pair[0])]
        return self.good_enough(best(by_words, top_k))

    def match(self, asked: Asked, record: MemoryRecord) -> float:
        """Points for matches in a record's titles, content and tags; 0: no match."""
        titles = [item.title for item in record.items]
        if asked.whole and asked.whole in map(folded, titles):
            title = TITLE_EXACT
        else:
            title = TITLE_PARTIAL * any(map(asked.matches, titles))
        content = any(asked.matches(f"{item.description}\n{item.content}") for item in record.items)
        return title + CONTENT_MATCH * content + TAG_MATCH * sum(map(asked.matches, record.tags))

    def points(self, record: MemoryRecord, match: float, age_days: float, idle_days: float) -> float:
        """Total points of a matching record, after decay. idle_days: days since its last use."""
        total = (
            match
            + PER_HELPFUL * record.n_helpful
            + RECENT_USE * (idle_days < RECENT_DAYS)
            + TRUST_WEIGHT * feedback(record)
        )
        return total * decay(age_days)


class Asked:
    """A query and its words without stop words."""

    def __init__(self, query: str) -> None:
        self.whole = folded(query)
        words = [word for word in dict.fromkeys(re.findall(r"\w+", self.whole)) if word not in EMPTY_WORDS]
        self._words = [re.compile(_like(word)) for word in words[:MAX_WORDS]]
        self._any = re.compile("|".join(word.pattern for word in self._words) or r"(?!)")

    def matches(self, text: str) -> bool:
        """Whether a text contains the query, or shares a word with it."""
        text = folded(text)
        return (self.whole != "" and self.whole in text) or self._any.search(text) is not None

    def n_shared(self, text: str) -> int:
        """Number of the query's words that occur in a text."""
        text = folded(text)
        return sum(word.search(text) is not None for word in self._words)


def _like(word: str) -> str:
    """Pattern that matches a word, words that start with it, and prefixes of it (LONG_ENOUGH)."""
    if len(word) < LONG_ENOUGH:
        return rf"\b{word}\b"
    begins = "".join(rf"|{word[:n]}\b" for n in range(LONG_ENOUGH, min(len(word), LONGEST)))
    return rf"\b(?:{word}{begins})"
