"""retrieval=hybrid: a weighted sum of similarity, confidence, success and recency."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from core.errors import check_choice, check_positive
from core.memory.policies.base import Reranking, confidence_of
from core.types import MemoryRecord, Scored

FAILURE_VALUE = -0.5  # of the success factor, in the source


@dataclass(kw_only=True)
class Hybrid(Reranking):
    """0.6 semantic + 0.2 confidence + 0.15 success + 0.05 recency.

    Source: github.com/hanw39/ReasoningBank-MCP, src/retrieval/strategies/hybrid_retrieval.py. Confidence is
    0.5 + 0.5 tanh(uses / 10), success is 1 and failure -0.5, recency halves every 30 days. The source writes the last
    term as -0.05 (1 - recency), which gives the same order, 0.05 lower. It compares the sum with a threshold of 0.85,
    which a fresh success reaches only with a similarity of 1 and a failure never. Here min_score is compared with the
    similarity, or with threshold_on=score with the sum, which a fresh success reaches with a similarity of 0.92.

    confidence     usage (as in the source) | rated: the record's own, or the prior of its outcome
    threshold_on   similarity | score: what min_score is compared with
    """

    semantic_weight: float = 0.6
    confidence_weight: float = 0.2
    success_weight: float = 0.15
    recency_weight: float = 0.05
    half_life_days: float = 30.0
    confidence: str = "usage"
    threshold_on: str = "similarity"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "retrieval", "half_life_days")
        check_choice(self, "retrieval", "confidence", ("usage", "rated"))
        check_choice(self, "retrieval", "threshold_on", ("similarity", "score"))

    def reaches(self, hit: Scored) -> bool:
        """As in Ranking; with threshold_on=score, whether the weighted sum reaches min_score."""
        return super().reaches(hit if self.threshold_on == "similarity" else replace(hit, similarity=None))

    def pick(self, scored: list[Scored], top_k: int) -> list[Scored]:
        """As in Reranking, with scores clipped to [0, 1]: other weights and negative cosines can exceed it."""
        return [replace(hit, score=self.relevance(hit.score)) for hit in super().pick(scored, top_k)]

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        usage = 0.5 + 0.5 * math.tanh(record.n_used / 10)
        return (
            self.semantic_weight * similarity
            + self.confidence_weight * (usage if self.confidence == "usage" else confidence_of(record))
            + self.success_weight * (1.0 if record.outcome == "success" else FAILURE_VALUE)
            + self.recency_weight * 0.5 ** (age_days / self.half_life_days)
        )
