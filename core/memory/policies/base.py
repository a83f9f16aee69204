"""Retrieval policies (`retrieval=`): which records of the bank a task gets to see. The others are in policies/."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from core.errors import UserError
from core.memory.filter import Filter
from core.types import MemoryRecord, Scored

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

PRIOR = {"success": 0.7, "failure": 0.6}  # confidence of a record that nothing has rated yet


class Policy(Protocol):
    """Ranks with the bank's primitives (`nearest`, `lexical`, `tick`); reads only."""

    top_k: int

    def rank(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        """The top_k records for a query, best first; fewer, or none, where nothing is good enough."""
        ...


@dataclass(kw_only=True)
class Ranking:
    """What all policies share: how many, from where on, and among which records.

    top_k       records to retrieve; 0 retrieves nothing
    min_score   the right to abstain: leave out records whose similarity is below this; None takes the best however bad
    domain      only records of this domain
    tags        only records with all of these tags
    outcome     only records of a success, or only of a failure
    """

    top_k: int = 1
    min_score: float | None = None
    domain: str | None = None
    tags: list[str] = field(default_factory=list)
    outcome: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.top_k, int) or isinstance(self.top_k, bool) or self.top_k < 0:
            raise UserError(f"retrieval.top_k={self.top_k}: give a whole number of at least 0.")
        if self.outcome not in (None, "success", "failure"):
            raise UserError(f"retrieval.outcome={self.outcome}: give success, failure or null.")
        if isinstance(self.tags, str) or not all(isinstance(tag, str) for tag in self.tags):
            raise UserError(f"retrieval.tags={self.tags}: give a list of words.")

    def within(self, where: Filter | None) -> Filter | None:
        """The policy's filter and the caller's together; where both name a thing, the caller's holds. None: neither."""
        if where is None and self.domain is None and self.outcome is None and not self.tags:
            return None
        where = where or Filter()
        return replace(
            where,
            domain=self.domain if where.domain is None else where.domain,
            tags=tuple(dict.fromkeys((*self.tags, *where.tags))),
            outcome=self.outcome if where.outcome is None else where.outcome,
        )

    def good_enough(self, hits: list[Scored]) -> list[Scored]:
        """The hits whose similarity reaches min_score."""
        return [hit for hit in hits if self.min_score is None or hit.score >= self.min_score]


@dataclass(kw_only=True)
class Pooled(Ranking):
    """A ranking that looks at the nearest `pool` records and orders them anew; None looks at every record."""

    pool: int | None = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool is not None and self.pool < 1:
            raise UserError(f"retrieval.pool={self.pool}: give a whole number of at least 1, or null.")

    def candidates(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None, **how: str
    ) -> list[Scored]:
        """The records to choose from, with their cosine, nearest first; those below min_score are not among them."""
        size = len(bank) if self.pool is None else max(self.pool, top_k)
        return self.good_enough(bank.nearest(query, max(size, 1), exclude_task, self.within(where), **how))


def check_positive(policy: Any, *names: str) -> None:
    """Raises UserError where a key of a policy is not above 0."""
    for name in names:
        if not getattr(policy, name) > 0:
            raise UserError(f"retrieval.{name}={getattr(policy, name)}: give a number above 0.")


def confidence(record: MemoryRecord) -> float:
    """How far a record is trusted, in [0, 1]: as rated, or the prior of its outcome."""
    return PRIOR.get(record.outcome, min(PRIOR.values())) if record.confidence is None else record.confidence


def best(scored: list[Scored], top_k: int) -> list[Scored]:
    """The top_k by score. Rounded as the index rounds, ties in the order given, so that a run repeats exactly."""
    rounded = [replace(hit, score=round(hit.score, 6)) for hit in scored]
    return sorted(rounded, key=lambda hit: -hit.score)[:top_k]
