"""retrieval=convex: cosine and BM25, both in [0, 1], in a weighted sum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.errors import check_numbers
from core.memory.filter import Filter
from core.memory.policies.base import Pooled, best, record_key
from core.memory.policies.trust import feedback, warning_of
from core.memory.ports import Bank
from core.types import Scored


@dataclass(kw_only=True)
class Convex(Pooled):
    """(1 - words) cosine + words BM25 + marks feedback; BM25 is divided by the most that the query's words could give.

    Source: Bruch, Gai and Ingber 2023 (ACM TOIS 42, arXiv:2210.11934), who find a convex combination of normalised
    scores better than reciprocal rank fusion. The divisor is of the query alone, so that min_score, which is compared
    with the sum, means the same in every bank.

    words     weight of the words in [0, 1]
    marks     weight of (helpful - 2 harmful) / (helpful + harmful + 1), as in retrieval=trust; it is 0 without marks
    of_best   leave out records with less than this share of the best one's sum: a second lesson that is far behind the
              first is seldom about the same matter
    """

    words: float = 0.4
    marks: float = 0.3
    of_best: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "retrieval", "words", "of_best", least=0, most=1)

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        near = self.candidates(bank, query, top_k, exclude_task, where, unit="record")
        most = max(self.pool or len(bank), top_k, 1)
        by_words = bank.lexical(query, most, exclude_task, self.within(where), share=True)
        shares = {record_key(hit): hit.score for hit in by_words}
        known = {record_key(hit) for hit in near}
        # The cosine of a record outside the pool is not known, only that it is no larger than the pool's smallest.
        least = near[-1].score if near else 0.0
        further = [replace(hit, score=least) for hit in by_words if record_key(hit) not in known]
        fused = [
            replace(hit, score=self._sum(hit, shares.get(record_key(hit), 0.0)), warning=warning_of(hit.record))
            for hit in near + further
        ]
        ranked = best(self.good_enough(fused), top_k)
        return [hit for hit in ranked if max(hit.score, 0.0) >= self.of_best * ranked[0].score]

    def _sum(self, hit: Scored, share: float) -> float:
        return (1 - self.words) * hit.score + self.words * share + self.marks * feedback(hit.record)

    def reaches(self, hit: Scored) -> bool:
        """Whether the weighted sum reaches min_score."""
        return self.min_score is None or hit.score >= self.min_score
