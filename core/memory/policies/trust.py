"""retrieval=trust: similarity plus trust from helpful and harmful marks, which decays with age."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.memory.policies.base import Reranking, best
from core.types import MemoryRecord, Scored

FAILED = "from a failed attempt"
HARMFUL = "marked harmful more than helpful"
# Playbook memories built on ACE: what feedback says fades linearly over 90 days, down to a tenth; 7 days are fresh.
DECAY_DAYS, LEAST_DECAY, FRESH_DAYS = 90.0, 0.1, 7.0
FRESH_BONUS = 0.1  # trust of a fresh record, which had no time to earn marks; this project's choice


@dataclass(kw_only=True)
class Trust(Reranking):
    """similarity + 0.3 trust; trust = (helpful - 2 harmful) / (helpful + harmful + 1) max(0.1, 1 - age/90) + bonus.

    The counters are those of ACE (Zhang et al. 2025, arXiv:2510.04618), whose playbook counts `helpful` and `harmful`
    for each entry. That harm counts twice, that trust decays linearly down to 0.1 at 90 days, and that the first 7 days
    give a bonus is common in the playbook memories built on it, which have no paper. That trust is added to the
    similarity with a weight, and the size of the bonus, are this project's choice: trust alone ignores the task.

    trust_weight   weight of the trust beside the similarity
    warn           records from failures, and those with negative trust, get a warning in the prompt
    min_trust      leave out records with less than this trust by lineage (`MemoryRecord.trust`)
    """

    trust_weight: float = 0.3
    warn: bool = True
    min_trust: float = 0.0

    def pick(self, scored: list[Scored], top_k: int) -> list[Scored]:
        trusted = [hit for hit in scored if hit.record.trust >= self.min_trust]
        return [replace(hit, warning=warning_of(hit.record) if self.warn else "") for hit in best(trusted, top_k)]

    def score(self, record: MemoryRecord, similarity: float, age_days: float) -> float:
        return similarity + self.trust_weight * self.trust(record, age_days)

    def trust(self, record: MemoryRecord, age_days: float) -> float:
        """A record's trust from its marks, in (-2, 1 + FRESH_BONUS)."""
        return feedback(record) * decay(age_days) + (FRESH_BONUS if age_days < FRESH_DAYS else 0.0)


def decay(age_days: float) -> float:
    """max(0.1, 1 - age/90)"""
    return max(LEAST_DECAY, 1 - age_days / DECAY_DAYS)


def warning_of(record: MemoryRecord) -> str:
    """The warning shown with a record that is from a failure or has negative trust; "" for others."""
    return HARMFUL if feedback(record) < 0 else FAILED if record.outcome == "failure" else ""


def feedback(record: MemoryRecord) -> float:
    """(helpful - 2 harmful) / (helpful + harmful + 1): 0 without feedback."""
    helpful, harmful = record.n_helpful, record.n_harmful
    return (helpful - 2 * harmful) / (helpful + harmful + 1)
