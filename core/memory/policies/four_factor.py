"""Similarity, recency and reliability, less what has been said already."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.errors import UserError
from core.memory.clock import ages
from core.memory.filter import Filter
from core.memory.policies.base import Pooled, check_positive, confidence
from core.types import MemoryRecord, Scored

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

RELIABILITY: dict[str, Callable[[MemoryRecord], float]] = {
    "confidence": lambda record: min(max(confidence(record), 0.0), 1.0),
    "confidence_usage": lambda record: min(confidence(record) * math.sqrt(record.n_used / 10), 1.0),
    "usage": lambda record: (1 + record.n_used) / (2 + record.n_used),  # sigmoid(log(1 + uses)), written out
}


@dataclass(kw_only=True)
class FourFactor(Pooled):
    """0.65 similarity + 0.15 exp(-age/45) + 0.20 reliability - 0.10 (greatest similarity to a record already picked).

    Source: the ReasoningBank module of agentic-flow (github.com/ruvnet/agentic-flow, reasoningbank.yaml and
    core/retrieve.ts: reliability min(confidence, 1), H = 45); its guide: min(confidence sqrt(uses/10), 1), H = 30;
    a later port has sigmoid(log(1 + uses)). All call H a half-life though it divides in exp(-age/H).
    The records are picked greedily by maximal marginal relevance (Carbonell and Goldstein 1998), as published; the code
    of agentic-flow passes the 0.10 as the relevance's weight, which leaves 0.90 for the penalty, and sorts nothing when
    there are no more records than asked for.

    reliability   confidence | confidence_usage | usage
    age_scale_days   H in exp(-age/H)
    """

    similarity_weight: float = 0.65
    recency_weight: float = 0.15
    reliability_weight: float = 0.20
    diversity_weight: float = 0.10
    age_scale_days: float = 45.0
    ticks_per_day: float = 1.0
    reliability: str = "confidence"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "age_scale_days", "ticks_per_day")
        if self.reliability not in RELIABILITY:
            raise UserError(f"retrieval.reliability={self.reliability}: give {', '.join(RELIABILITY)}.")

    def rank(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        age = ages(bank, self.ticks_per_day)
        pool = self.candidates(bank, query, top_k, exclude_task, where)
        return self.pick(
            [replace(hit, score=self.score(hit.record, hit.score, age(hit.record))) for hit in pool], top_k
        )

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        """Three of the four factors, for one record alone."""
        return (
            self.similarity_weight * similarity
            + self.recency_weight * math.exp(-age_days / self.age_scale_days)
            + self.reliability_weight * RELIABILITY[self.reliability](record)
        )

    def pick(self, scored: list[Scored], top_k: int) -> list[Scored]:
        """The fourth factor: one after the other, the best score less its penalty; ties go to the first."""
        import numpy as np

        if not scored:
            return []
        vectors = np.array([hit.record.query_embedding for hit in scored], dtype=np.float32)
        base = np.round([hit.score for hit in scored], 6)
        likeness, left, picked = np.zeros(len(scored)), np.ones(len(scored), dtype=bool), []
        while left.any() and len(picked) < top_k:
            net = np.round(base - self.diversity_weight * likeness, 6)
            place = int(np.argmax(np.where(left, net, -np.inf)))
            picked.append(replace(scored[place], score=float(net[place])))
            left[place] = False
            likeness = np.maximum(likeness, vectors @ vectors[place])
        return picked
