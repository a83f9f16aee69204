"""retrieval=lexical: BM25, without embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from core.memory.filter import Filter
from core.memory.policies.base import Ranking
from core.memory.ports import Bank
from core.types import Scored


@dataclass(kw_only=True)
class Lexical(Ranking):
    """BM25 (Robertson and Zaragoza 2009) over query and items, k1 = 1.2 and b = 0.75 (core/memory/lexical.py).

    The task is not embedded. min_score is compared with the BM25 score, whose scale depends on the bank.
    """

    by_meaning: ClassVar[bool] = False
    by_words: ClassVar[bool] = True

    def relevance(self, score: float) -> float:
        """s / (1 + s), because BM25 has no upper limit; the order stays the same."""
        return score / (1 + score)

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        return self.good_enough(bank.lexical(query, top_k, exclude_task, self.within(where)))
