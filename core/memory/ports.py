"""Protocols between the bank and its plug-ins: retrieval policies, hygiene and consolidation.

Plug-ins depend only on these protocols, and so does the bank: neither imports the other. To write a plug-in, inherit
from its protocol (or from a class that does, such as `policies.base.Ranking`) and override what you need.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from core.memory.filter import Filter
from core.memory.moment import Moment
from core.memory.protocol import Steps
from core.memory.records import EpisodeFeedback
from core.models.embedding import Embedder
from core.types import MemoryRecord, Scored, Usage

REVISES = "revises"  # of a link: its source is newer and says nearly the same as its target; see corrections_first
CORRECTS = "differs in "  # how the note of such a link begins
SAME = "same"  # retrieval.domain: the domain of the task that searches
OTHER = "other"  # retrieval.domain: every domain of the bank but that of the task that searches
SEEN = "seen"  # retrieval.domain: the types of the other tasks that the stream had before it

CORRUPTER = "corrupter"  # the role of a model that makes lessons false: retrieval=corrupt, by=model


class OpenChange(Protocol):
    """What a plug-in may do inside `with bank.change(reason) as change` (core/memory/store/changes.py)."""

    def add(self, record: MemoryRecord) -> bool: ...

    def update(self, id: str, **fields: Any) -> None: ...

    def update_usage(self, ids: Any, fields_of: Any) -> None: ...

    def link(self, source: str, relation: str, target: str, note: str = "") -> bool: ...

    def fact(self, key: str, value: str | None) -> None: ...

    def erase(self, ids: Collection[str]) -> None: ...  # a plug-in calls `OpenBank.erase`, which also keeps the ids


class Bank(Protocol):
    """The bank as a policy and a write filter see it: one namespace of it, which they only read.

    What each does is told where it is written: core/memory/bank.py, retrieval.py and contents.py.
    """

    namespace: str
    read_only: bool
    embedder: Embedder
    policy: Policy
    provenance: dict[str, Any]
    counts: Counter[str]

    def retrieve(self, query: str, top_k: int | None = None, exclude_task: str | None = None) -> list[Scored]: ...

    def nearest(
        self,
        query: Any,
        k: int,
        exclude_task: str | None = None,
        where: Filter | None = None,
        unit: str | None = None,
        key: str | None = None,
    ) -> list[Scored]: ...

    def lexical(
        self, query: str, k: int, exclude_task: str | None = None, where: Filter | None = None, **how: bool
    ) -> list[Scored]: ...

    def get(self, id: str) -> MemoryRecord | None: ...

    def records(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]: ...

    def titles(self) -> list[tuple[str, str]]: ...

    def recent(self, n: int, *, everyone: bool = False) -> list[MemoryRecord]: ...

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]: ...

    def corrections(self, ids: list[str]) -> set[tuple[str, str]]: ...

    def fact(self, key: str) -> str | None: ...

    def statuses(self) -> dict[str, int]: ...

    def moment(self) -> Moment: ...

    def tick(self) -> int: ...

    def dim(self) -> int | None: ...

    def __len__(self) -> int: ...

    def say_unread(self) -> None: ...


class OpenBank(Bank, Protocol):
    """The bank as consolidation sees it, which also changes it."""

    hygiene: Hygiene | None

    def change(self, reason: str, wait_s: float | None = None) -> AbstractContextManager[OpenChange]: ...

    def erase(self, change: OpenChange, ids: tuple[str, ...]) -> None: ...

    def try_lock(self, name: str) -> AbstractContextManager[bool]: ...


class Policy(Protocol):
    """A retrieval policy (`retrieval=`): ranks records by the bank's searches (`nearest`, `lexical`); only reads.

    domain       domain of the records to search; "same": that of the task
    min_score    records with a lower score are left out; None: no limit
    of_best      records with less than this share of the best one's score are left out
    rank_based   scores depend on ranks (as in RRF), so filtering by min_score changes them
    by_meaning   records are ranked by embeddings, which say nothing in a language that the embedder does not read
    by_words     records are ranked by words, which stand without blanks in some scripts
    key          what of the records a query is compared with, instead of memory.key; None: as that
    per_source   at most so many of the retrieved records are of one source; None: no limit
    source       what identifies a source: task | namespace | a key of the records' provenance

    other_languages_by_words, ignore_preamble, corrections_first: see `policies.base.Ranking`.
    """

    top_k: int
    domain: Any = None
    min_score: float | None = None
    of_best: float = 0.0
    key: str | None = None
    per_source: int | None = None
    source: str = "task"
    other_languages_by_words: bool = False
    ignore_preamble: bool = False
    corrections_first: bool = False
    rank_based: ClassVar[bool] = False
    by_meaning: ClassVar[bool] = True
    by_words: ClassVar[bool] = False

    @abstractmethod
    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        """The top_k records for a query, best first; fewer, or none, if the others do not reach min_score."""
        ...

    def within(self, where: Filter | None) -> Filter:
        """The policy's own filter joined with the caller's."""
        return where or Filter()

    def good_enough(self, hits: list[Scored]) -> list[Scored]:
        """The hits that reach min_score."""
        return hits

    def relevance(self, score: float) -> float:
        """A score of this policy scaled to [0, 1], for display."""
        return score

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        """The score by which a record is ranked, without what depends on other records; here its similarity."""
        return similarity


class Hygiene(Protocol):
    """A write filter (`memory.hygiene`): checks records before they are stored (memory poisoning, personal data).

    provenance   whether lessons are compared with their attempts. Named after the config key of Guard; not the
                 dictionary `Bank.provenance`
    """

    provenance: bool | str = False

    @property
    def reads_attempts(self) -> bool:
        """Whether `screen` is given the attempts' steps."""
        return bool(self.provenance)

    def screen(
        self, record: MemoryRecord, bank: Bank, shown: Sequence[str] | None = None, did: Steps | None = None
    ) -> MemoryRecord:
        """The record to store: cleaned, or with another status, such as quarantined.

        shown   ids of the records that the task's prompt showed; None: not known
        did     steps of the attempts that the record was made from; None: not known
        """
        ...

    def usage(self, bank: Bank) -> Usage | None:
        """Cost of the model calls that the filter made in this run; None: it calls no model."""
        return None


class ConfidenceRule(Protocol):
    """The rule by which a record's confidence changes (core/memory/consolidation/confidence.py)."""

    def after_use(self, record: MemoryRecord, idle_days: float, label: str | None) -> float: ...

    def after_mark(self, record: MemoryRecord, helpful: bool) -> float: ...


class Consolidates(Protocol):
    """Updates the stored records after each episode (`memory.consolidate`).

    confidence       rule for a record's confidence; None: the bank keeps no confidence
    ticks_per_day    tasks of the stream that count as a day
    counts_within    True: usage is counted in the same transaction as the add; False: later, by `learn`
    """

    confidence: ConfidenceRule | None = None
    ticks_per_day: float = 1.0
    counts_within: ClassVar[bool] = False

    def learn(self, bank: OpenBank, feedback: EpisodeFeedback | None) -> None:
        """Count an episode and run the rounds that are due; None: only these rounds, as after a crash."""
        ...

    def count(self, bank: OpenBank, change: OpenChange, feedback: EpisodeFeedback) -> None:
        """Count an episode inside an open change."""

    def usage(self, bank: OpenBank) -> Usage | None:
        """Cost of the model calls that consolidation made in this run; None: it calls no model."""
        return None

    def close(self) -> None:
        """Wait for rounds that run in the background."""
