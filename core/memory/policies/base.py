"""Base classes of the retrieval policies (`retrieval=`), which choose the records of the bank that a task is shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from core.errors import UserError, check_choice, check_numbers, check_positive
from core.memory.filter import PRIOR, Filter
from core.memory.ports import OTHER, SAME, SEEN, Bank, Policy
from core.types import Lesson, MemoryRecord, Scored


@dataclass(kw_only=True)
class Ranking(Policy):
    """Base class of all policies, with the settings that they share. A subclass defines `rank`.

    top_k       number of records to retrieve; 0 retrieves nothing
    min_score   leave out records whose similarity is below this; None: no limit
    domain      only records of this domain, or of one in a list; "same": the task's domain (`memory.domain`); "seen":
                the types that the stream had before; "other": every domain but the task's
    tags        only records with all of these tags
    outcome     success | failure: only records of this outcome; None: of both
    per_source  at most so many of the top_k are of one source; the next ones of others follow. Records of unknown
                source are not limited. None: no limit
    source      what identifies a source: task | namespace | a key of the records' provenance, e.g. run
    when        task | step | stuck: when the loop asks: once for each task, also after each step, or only where the
                agent is stuck (workflows/reasoningbank.py); None: task. A server is asked by its client
    min_confidence   leave out records with less confidence; one without any has the prior of its outcome

    What a bank that serves agents adds to the ranking (core/memory/ranking.py):

    other_languages_by_words   a query in a language that the embedder does not read is ranked by words, as in
                               retrieval=lexical, and no min_score applies to it
    ignore_preamble            a query of 500 characters or more is ranked by the sentences that are not in the queries
                               of several of the nearest records, and ties by words
    corrections_first          a record that corrects an older one (a link that deduplication makes) is placed before
                               it, and of records with the same score the newer first
    """

    top_k: int = 1
    min_score: float | None = None
    domain: str | list[str] | None = None
    tags: list[str] = field(default_factory=list)
    outcome: str | None = None
    min_confidence: float | None = None
    per_source: int | None = None
    source: str = "task"
    when: str | None = None
    other_languages_by_words: bool = False
    ignore_preamble: bool = False
    corrections_first: bool = False

    def __post_init__(self) -> None:
        check_numbers(self, "retrieval", "top_k", least=0, whole=True)
        check_numbers(self, "retrieval", "min_confidence", least=0, most=1)
        check_numbers(self, "retrieval", "per_source", least=1, whole=True)
        check_choice(self, "retrieval", "outcome", ("success", "failure", None))
        check_choice(self, "retrieval", "when", (None, "task", "step", "stuck"))
        names = self.domain if isinstance(self.domain, list) else [self.domain or ""]
        if not names or not all(isinstance(name, str) for name in names):
            raise UserError(f"retrieval.domain={self.domain}: give a name, a list of names, same, seen or other.")
        if isinstance(self.tags, str) or not all(isinstance(tag, str) for tag in self.tags):
            raise UserError(f"retrieval.tags={self.tags}: give a list of words.")

    def within(self, where: Filter | None) -> Filter:
        """The policy's filter joined with the caller's; where both set a field, the caller's wins, but tags add up."""
        where = where or Filter()
        domain = tuple(self.domain) if isinstance(self.domain, list) else self.domain
        domain = None if domain in (SAME, SEEN, OTHER) else domain  # the bank has put what they mean into `where`
        return replace(
            where,
            domain=domain if where.domain is None else where.domain,
            tags=tuple(dict.fromkeys((*self.tags, *where.tags))),
            outcome=self.outcome if where.outcome is None else where.outcome,
            min_confidence=self.min_confidence if where.min_confidence is None else where.min_confidence,
        )

    def reaches(self, hit: Scored) -> bool:
        """Whether a hit's similarity, or its score if it has none (found by words), reaches min_score."""
        held = hit.score if hit.similarity is None else hit.similarity
        return self.min_score is None or held >= self.min_score

    def good_enough(self, hits: list[Scored]) -> list[Scored]:
        """The hits that reach min_score."""
        return hits if self.min_score is None else [hit for hit in hits if self.reaches(hit)]

    def relevance(self, score: float) -> float:
        """A score of this policy scaled to [0, 1], for display."""
        return min(max(score, 0.0), 1.0)


@dataclass(kw_only=True)
class Pooled(Ranking):
    """A policy that ranks the nearest `pool` records by its own score. pool None: all records."""

    pool: int | None = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "retrieval", "pool", least=1, whole=True)

    def candidates(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None, **how: str
    ) -> list[Scored]:
        """The pool: hits with their cosine as score, nearest first. how: unit or key for `bank.nearest`."""
        size = len(bank) if self.pool is None else max(self.pool, top_k)
        return bank.nearest(query, max(size, 1), exclude_task, self.within(where), **how)


@dataclass(kw_only=True)
class Reranking(Pooled):
    """A policy that ranks the pool by a score of each record, which a subclass defines.

    ticks_per_day   tasks of the stream that count as a day, if the bank's clock is the stream
    """

    ticks_per_day: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "retrieval", "ticks_per_day")

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        moment, a_day = bank.moment(), self.ticks_per_day
        pool = self.candidates(bank, query, top_k, exclude_task, where)
        scores = (round(self.score(hit.record, hit.score, moment.age_days(hit.record, a_day)), 6) for hit in pool)
        scored = [Scored(record=h.record, score=score, similarity=h.similarity) for h, score in zip(pool, scores)]
        return self.pick(self.good_enough(scored), top_k)

    def pick(self, scored: list[Scored], top_k: int) -> list[Scored]:
        """The top_k of the scored records, best first."""
        return best(scored, top_k)


def confidence_of(record: MemoryRecord) -> float:
    """A record's confidence in [0, 1], or the prior of its outcome if it has none."""
    return PRIOR.get(record.outcome, min(PRIOR.values())) if record.confidence is None else record.confidence


def best(scored: list[Scored], top_k: int) -> list[Scored]:
    """The top_k by score, rounded to 6 digits like cosines; ties keep their order, so that a run repeats exactly."""
    ranked = sorted(scored, key=lambda hit: -round(hit.score, 6))[:top_k]
    return [replace(hit, score=round(hit.score, 6)) for hit in ranked]


def record_key(hit: Scored) -> tuple[str, str]:
    """(namespace, id), because ids are unique only within a namespace and a search may cover all of them."""
    return hit.record.namespace, hit.record.id


def rewritten(hit: Scored, items: tuple[Lesson, ...]) -> Scored:
    """The hit with these lessons in place of those of the bank: an episode records them, as nobody else has them."""
    return replace(hit, record=replace(hit.record, items=items), rewritten=True)
