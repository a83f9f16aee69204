"""What earlier users of a record said about it, fading with age."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.memory.clock import ages
from core.memory.filter import Filter
from core.memory.policies.base import Pooled, best, check_positive
from core.types import MemoryRecord, Scored

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

FAILED = "learned from a failed attempt: what to avoid, not what to do"
HARMFUL = "marked harmful more than helpful"


@dataclass(kw_only=True)
class Trust(Pooled):
    """similarity + 0.3 trust; trust = (helpful - 2 harmful) / (helpful + harmful + 1) max(0.1, 1 - age/90) + bonus.

    The counters are those of ACE (Zhang et al. 2025, arXiv:2510.04618), whose playbook counts `helpful` and `harmful`
    for each entry; harm that counts twice, the linear decay down to 0.1 at 90 days and a bonus for the first 7 days are
    habits of the playbook memories built on it, which have no paper. That trust is added to the similarity with a
    weight, and how large the bonus is, are this project's choice: trust alone would rank without looking at the task.

    fresh_bonus   added to the trust of a record younger than fresh_days: it had no time to earn any
    warn          records from failures, and those with more harm than help, carry a warning into the prompt
    min_trust     leave out records whose lineage (`MemoryRecord.trust`) is trusted less than this
    """

    trust_weight: float = 0.3
    decay_days: float = 90.0
    least_decay: float = 0.1
    fresh_days: float = 7.0
    fresh_bonus: float = 0.1
    ticks_per_day: float = 1.0
    warn: bool = True
    min_trust: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "decay_days", "ticks_per_day")

    def rank(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        age = ages(bank, self.ticks_per_day)
        scored = [
            replace(hit, score=self.score(hit.record, hit.score, age(hit.record)), warning=self.warning(hit.record))
            for hit in self.candidates(bank, query, top_k, exclude_task, where)
            if hit.record.trust >= self.min_trust
        ]
        return best(scored, top_k)

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        """What one record is ranked by."""
        return similarity + self.trust_weight * self.trust(record, age_days)

    def trust(self, record: MemoryRecord, age_days: float) -> float:
        """In (-2, 1 + fresh_bonus)."""
        decay = max(self.least_decay, 1 - age_days / self.decay_days)
        return verdict(record) * decay + (self.fresh_bonus if age_days < self.fresh_days else 0.0)

    def warning(self, record: MemoryRecord) -> str:
        """The warning that a negative record carries; "" for the others."""
        if not self.warn:
            return ""
        return HARMFUL if verdict(record) < 0 else FAILED if record.outcome == "failure" else ""


def verdict(record: MemoryRecord) -> float:
    """(helpful - 2 harmful) / (helpful + harmful + 1): 0 without feedback."""
    helpful, harmful = record.n_helpful, record.n_harmful
    return (helpful - 2 * harmful) / (helpful + harmful + 1)
