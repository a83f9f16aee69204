"""retrieval=four_factor: similarity, recency and reliability, less the similarity to records already picked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from core.errors import check_choice, check_positive
from core.memory.policies.base import Reranking, confidence_of
from core.types import MemoryRecord, Scored

RELIABILITY: dict[str, Callable[[MemoryRecord], float]] = {
    "confidence": lambda record: min(max(confidence_of(record), 0.0), 1.0),
    "confidence_usage": lambda record: min(confidence_of(record) * math.sqrt(record.n_used / 10), 1.0),
    "usage": lambda record: (1 + record.n_used) / (2 + record.n_used),  # equals sigmoid(log(1 + uses))
}


@dataclass(kw_only=True)
class FourFactor(Reranking):
    """0.65 similarity + 0.15 exp(-age/45) + 0.20 reliability - 0.10 (greatest similarity to a record already picked).

    Source: the ReasoningBank module of agentic-flow (github.com/ruvnet/agentic-flow, reasoningbank.yaml and
    core/retrieve.ts), where reliability is min(confidence, 1) and H = 45. Its guide has H = 30 and
    min(confidence sqrt(uses/10), 1), a later port sigmoid(log(1 + uses)). All three call H a half-life, although it is
    none in exp(-age/H). The records are picked by maximal marginal relevance (Carbonell and Goldstein 1998), as
    published. The code of agentic-flow differs: it passes the 0.10 as the weight of the relevance, which leaves 0.90
    for the penalty, and it does not sort if there are at most top_k records.

    reliability      confidence | confidence_usage | usage
    age_scale_days   H in exp(-age/H)
    """

    similarity_weight: float = 0.65
    recency_weight: float = 0.15
    reliability_weight: float = 0.20
    diversity_weight: float = 0.10
    age_scale_days: float = 45.0
    reliability: str = "confidence"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "retrieval", "age_scale_days")
        check_choice(self, "retrieval", "reliability", tuple(RELIABILITY))

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        """The three factors that depend on a single record: similarity, recency, reliability."""
        return (
            self.similarity_weight * similarity
            + self.recency_weight * math.exp(-age_days / self.age_scale_days)
            + self.reliability_weight * RELIABILITY[self.reliability](record)
        )

    def pick(self, scored: list[Scored], top_k: int) -> list[Scored]:
        """The fourth factor: picks one by one the record with the highest score less penalty; ties to the first."""
        import numpy as np

        if not scored:
            return []
        vectors = np.array([hit.record.query_embedding for hit in scored], dtype=np.float32)
        base = np.round([hit.score for hit in scored], 6)
        penalty, left, picked = np.zeros(len(scored)), np.ones(len(scored), dtype=bool), []
        while left.any() and len(picked) < top_k:
            net = np.round(base - self.diversity_weight * penalty, 6)
            place = int(np.argmax(np.where(left, net, -np.inf)))
            picked.append(replace(scored[place], score=float(net[place])))
            left[place] = False
            penalty = np.maximum(penalty, vectors @ vectors[place])
        return picked
