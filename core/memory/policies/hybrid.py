"""Similarity, confidence, success and recency as one sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.errors import UserError
from core.memory.clock import ages
from core.memory.filter import Filter
from core.memory.policies.base import Pooled, best, check_positive, confidence
from core.types import MemoryRecord, Scored

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


@dataclass(kw_only=True)
class Hybrid(Pooled):
    """0.6 semantic + 0.2 confidence + 0.15 success + 0.05 recency.

    Source: github.com/hanw39/ReasoningBank-MCP, src/retrieval/strategies/hybrid_retrieval.py. Confidence is
    0.5 + 0.5 tanh(uses / 10), success is 1 and failure -0.5, recency halves every 30 days. It writes the last term as
    -0.05 (1 - recency): the same order, 0.05 lower. Its threshold of 0.85 was held against the sum, which a fresh
    success reached only with a similarity of 1 and a failure never; here min_score is held against the similarity.

    confidence   usage (the source's) | rated: the record's own, or the prior of its outcome
    """

    semantic_weight: float = 0.6
    confidence_weight: float = 0.2
    success_weight: float = 0.15
    recency_weight: float = 0.05
    failure_value: float = -0.5
    half_life_days: float = 30.0
    ticks_per_day: float = 1.0
    confidence: str = "usage"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "half_life_days", "ticks_per_day")
        if self.confidence not in ("usage", "rated"):
            raise UserError(f"retrieval.confidence={self.confidence}: give usage or rated.")

    def rank(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        age = ages(bank, self.ticks_per_day)
        pool = self.candidates(bank, query, top_k, exclude_task, where)
        return best([replace(hit, score=self.score(hit.record, hit.score, age(hit.record))) for hit in pool], top_k)

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        """The sum for one record."""
        used = 0.5 + 0.5 * math.tanh(record.n_used / 10)
        return (
            self.semantic_weight * similarity
            + self.confidence_weight * (used if self.confidence == "usage" else confidence(record))
            + self.success_weight * (1.0 if record.outcome == "success" else self.failure_value)
            + self.recency_weight * 0.5 ** (age_days / self.half_life_days)
        )
