"""retrieval=rrf: reciprocal rank fusion of the rankings by embedding and by words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from core.errors import check_positive
from core.memory.filter import Filter
from core.memory.policies.base import Pooled, best, record_key
from core.memory.ports import Bank
from core.types import Scored


@dataclass(kw_only=True)
class RRF(Pooled):
    """Reciprocal rank fusion of cosine and BM25: the sum of 1 / (60 + rank) over both lists.

    Source: Cormack, Clarke and Buettcher 2009 (SIGIR), k = 60. min_score is compared with the cosine: if it is set, a
    record found only by words is left out.
    """

    rank_based: ClassVar[bool] = True

    k: float = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "retrieval", "k")

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        near = self.good_enough(self.candidates(bank, query, top_k, exclude_task, where, unit="record"))
        by_words = bank.lexical(query, max(self.pool or len(bank), top_k, 1), exclude_task, self.within(where))
        if self.min_score is not None:
            known = {record_key(hit) for hit in near}
            by_words = [hit for hit in by_words if record_key(hit) in known]
        return best(self.fuse([near, by_words]), top_k)

    def reaches(self, hit: Scored) -> bool:
        """As in Ranking; a record found only by words never reaches min_score."""
        return self.min_score is None or (hit.similarity is not None and super().reaches(hit))

    def relevance(self, score: float) -> float:
        """The score divided by that of a record that is first in both lists."""
        return super().relevance(score * (self.k + 1) / 2)

    def fuse(self, rankings: list[list[Scored]]) -> list[Scored]:
        """Each record once, with its fused score, in the order of first appearance."""
        sums: dict[tuple[str, str], float] = {}
        first: dict[tuple[str, str], Scored] = {}
        for ranking in rankings:
            for rank, hit in enumerate(ranking, 1):
                key = record_key(hit)
                sums[key] = sums.get(key, 0.0) + 1 / (self.k + rank)
                first.setdefault(key, hit)
        return [replace(first[key], score=score) for key, score in sums.items()]
