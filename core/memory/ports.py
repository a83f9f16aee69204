"""Between a bank and what is plugged into it: what a plug-in may ask of its bank, and what the bank calls of a plug-in.

Retrieval policies, hygiene and consolidation know these protocols and not the bank, which knows them and not its
plug-ins. A plug-in of one's own inherits its protocol (or a class that does, such as `policies.base.Ranking`) and
overrides what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from core.memory.filter import Filter
from core.memory.moment import Moment
from core.memory.records import EpisodeFeedback
from core.models.embedding import Embedder
from core.types import MemoryRecord, Scored, Usage

SAME = "same"  # retrieval.domain: the task's own
Did = Sequence[tuple[str, str]]  # (action, observation) of each step of the attempts that a record was made from


class OpenChange(Protocol):
    """What a plug-in may do inside `with bank.change(reason) as change` (core/memory/store/changes.py)."""

    def add(self, record: MemoryRecord) -> bool: ...

    def update(self, id: str, **fields: Any) -> None: ...

    def count(self, ids: Any, fields_of: Any) -> None: ...

    def link(self, source: str, relation: str, target: str, note: str = "") -> bool: ...

    def fact(self, key: str, value: str | None) -> None: ...

    def drop_vectors(self, id: str) -> None: ...


class Bank(Protocol):
    """What a plug-in may ask of one namespace of an open bank. Only inside `change` is anything written.

    provenance   what is noted on each record that this run adds: {run, models}
    hygiene      what looks at a record before it is stored; None: nothing does
    """

    namespace: str
    read_only: bool
    embedder: Embedder
    provenance: dict[str, Any]
    hygiene: Hygiene | None

    def retrieve(self, query: str, top_k: int | None = None, exclude_task: str | None = None) -> list[Scored]:
        """What the bank's policy shows a task, best first."""

    def nearest(
        self,
        query: Any,
        k: int,
        exclude_task: str | None = None,
        where: Filter | None = None,
        unit: str | None = None,
        key: str | None = None,
    ) -> list[Scored]:
        """The k records with the highest cosine to a query, a text or its unit vector, none from exclude_task."""

    def lexical(
        self, query: str, k: int, exclude_task: str | None = None, where: Filter | None = None, everyone: bool = False
    ) -> list[Scored]:
        """The k records that match the words of a text best, by BM25."""

    def neighbours(self, id: str, k: int) -> list[Scored]:
        """The k records nearest to a record's query, itself left out."""

    def get(self, id: str) -> MemoryRecord | None:
        """The record of an id; None when there is none."""

    def records(self, namespace: str | None = None, status: str | None = None) -> list[MemoryRecord]:
        """Every record, everyone's, oldest first; of one namespace and status where they are given."""

    def recent(self, n: int, *, everyone: bool = False) -> list[MemoryRecord]:
        """The last n records, newest first."""

    def links(self, id: str | None = None) -> list[tuple[str, str, str, str]]:
        """(source, relation, target, note) of all links, or of those from or to a record."""

    def fact(self, key: str) -> str | None:
        """A fact about the namespace that a change has set; None when there is none."""

    def moment(self) -> Moment:
        """The present on the bank's clock."""

    def tick(self) -> int:
        """The highest tick of any record, whosever: where the stream stands."""

    def dim(self) -> int | None:
        """Numbers in an embedding; None while the bank is empty."""

    def __len__(self) -> int:
        """How many records there are, everyone's."""

    def change(self, reason: str, wait_s: float | None = None) -> AbstractContextManager[OpenChange]:
        """One transaction with one journal entry, all or nothing."""

    def erase(self, change: OpenChange, ids: tuple[str, ...]) -> None:
        """Delete records for good inside a change, and remember their ids alone."""

    def alone(self, at: str) -> AbstractContextManager[bool]:
        """Whether no other process does meanwhile what `at` names; True where that cannot be known."""


class Policy(Protocol):
    """retrieval=: ranks records with the searches of the bank (`nearest`, `lexical`) and its clock; only reads.

    domain      of the records it takes, "same": of the task's own
    min_score   a record below it is left out; None: however low
    by_places   whether a score follows from places in a list, which min_score shortens
    """

    top_k: int
    domain: Any = None
    min_score: float | None = None
    by_places: ClassVar[bool] = False

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        """The top_k records for a query, best first; fewer, or none, where the rest is not good enough."""
        ...

    def good_enough(self, hits: list[Scored]) -> list[Scored]:
        """The hits that reach min_score."""
        return hits

    def relevance(self, score: float) -> float:
        """A score of this policy on a scale from 0 to 1, for who is shown it."""
        return score


class Hygiene(Protocol):
    """memory.hygiene: looks at a record before it is stored.

    provenance   whether `screen` is given what the attempts did
    """

    provenance: bool = False

    def screen(
        self, record: MemoryRecord, bank: Bank, shown: Sequence[str] | None = None, did: Did | None = None
    ) -> MemoryRecord:
        """The record as it may be stored.

        shown   ids of the records that its task had retrieved; None: not known
        did     None: not known
        """
        ...

    def accomplices(self, record: MemoryRecord, bank: Bank) -> list[str]:
        """The stored records that are to be quarantined together with this one, which was screened."""
        return []

    def usage(self, bank: Bank) -> Usage | None:
        """What models that it asked have cost in this run; None: it asks none."""
        return None


class ConfidenceRule(Protocol):
    """How the confidence of a record changes (core/memory/consolidation/confidence.py)."""

    def after_use(self, record: MemoryRecord, idle_days: float, label: str | None) -> float: ...

    def after_mark(self, record: MemoryRecord, helpful: bool) -> float: ...


class Consolidates(Protocol):
    """memory.consolidate: what a finished episode teaches a bank beyond its record.

    confidence       how a record's changes with its uses; None: the bank keeps none
    ticks_per_day    tasks of the stream that count as a day
    counts_within    whether `count` does its work inside the change that adds the records; else `learn` does it later
    """

    confidence: ConfidenceRule | None = None
    ticks_per_day: float = 1.0
    counts_within: ClassVar[bool] = False

    def learn(self, bank: Bank, feedback: EpisodeFeedback | None) -> None:
        """Count an episode and run what is due; None: only what is due, as after a crash."""
        ...

    def count(self, bank: Bank, change: OpenChange, feedback: EpisodeFeedback) -> None:
        """Count an episode within a change."""

    def usage(self, bank: Bank) -> Usage | None:
        """What models that it asked have cost in this run; None: it asks none."""
        return None

    def close(self) -> None:
        """Wait for what runs in the background."""
