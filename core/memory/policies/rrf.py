"""retrieval=rrf: the rankings by embedding and by words, fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.checks import check_positive
from core.memory.policies.base import Pooled, best
from core.memory.store.filter import Filter
from core.types import Scored

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


@dataclass(kw_only=True)
class RRF(Pooled):
    """Reciprocal rank fusion of cosine and BM25: the sum of 1 / (60 + rank) over both lists.

    Source: Cormack, Clarke and Buettcher 2009 (SIGIR), k = 60. min_score is compared with the cosine: where it is set,
    a record that only shares words with the task is left out.
    """

    k: float = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "retrieval", "k")

    def rank(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        near = self.candidates(bank, query, top_k, exclude_task, where, unit="record")
        by_words = bank.lexical(query, max(self.pool or len(bank), top_k, 1), exclude_task, self.within(where))
        if self.min_score is not None:
            known = {hit.record.id for hit in near}
            by_words = [hit for hit in by_words if hit.record.id in known]
        return best(self.fuse([near, by_words]), top_k)

    def fuse(self, rankings: list[list[Scored]]) -> list[Scored]:
        """Each record once, with its sum, in the order in which the records first appear."""
        sums: dict[str, float] = {}
        records = {}
        for ranking in rankings:
            for rank, hit in enumerate(ranking, 1):
                sums[hit.record.id] = sums.get(hit.record.id, 0.0) + 1 / (self.k + rank)
                records.setdefault(hit.record.id, hit.record)
        return [Scored(record=records[id], score=score) for id, score in sums.items()]
