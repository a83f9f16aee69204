"""Confidence of a record: initial value, changes by use and feedback, decay."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import check_numbers, check_positive
from core.memory.ports import ConfidenceRule
from core.types import MemoryRecord


@dataclass(kw_only=True)
class Confidence(ConfidenceRule):
    """The rule of agentic-flow's ReasoningBank: a prior times the judge's confidence, then a step at each use.

    prior_success, prior_failure   prior of a new record, by its outcome; multiplied by the judge's confidence, if any
    gain, loss                     added after a use in an attempt judged a success, subtracted after a failure
    helpful, harmful               added when a record is marked helpful, subtracted when it is marked harmful
    half_life_days                 half-life in days without use, on the bank's clock; null: no decay
    """

    prior_success: float = 0.7
    prior_failure: float = 0.6
    gain: float = 0.05
    loss: float = 0.025
    helpful: float = 0.05
    harmful: float = 0.1
    half_life_days: float | None = 90.0

    def __post_init__(self) -> None:
        shares = ("prior_success", "prior_failure", "gain", "loss", "helpful", "harmful")
        check_numbers(self, "confidence", *shares, least=0, most=1)
        check_positive(self, "confidence", "half_life_days")

    def prior(self, outcome: str, judge_confidence: float | None) -> float:
        """The confidence of a new record."""
        prior = self.prior_success if outcome == "success" else self.prior_failure
        return _clamp(prior * (1.0 if judge_confidence is None else judge_confidence))

    def of(self, record: MemoryRecord) -> float:
        """The stored confidence, which is as of the record's last use; the prior for a record without one."""
        return self.prior(record.outcome, None) if record.confidence is None else record.confidence

    def now(self, record: MemoryRecord, idle_days: float) -> float:
        """The confidence after idle_days without use."""
        if self.half_life_days is None:
            return self.of(record)
        return self.of(record) * 0.5 ** (max(idle_days, 0.0) / self.half_life_days)

    def after_use(self, record: MemoryRecord, idle_days: float, label: str | None) -> float:
        """The confidence after a use in an attempt judged `label`: success, failure, or None (not judged)."""
        step = {"success": self.gain, "failure": -self.loss}.get(label or "", 0.0)
        return _clamp(self.now(record, idle_days) + step)

    def after_mark(self, record: MemoryRecord, helpful: bool) -> float:
        """The stored confidence after the record is marked helpful or harmful."""
        return _clamp(self.of(record) + (self.helpful if helpful else -self.harmful))


def _clamp(value: float) -> float:
    # Rounded, so that the last bits do not depend on the order in which the same steps were added.
    return round(min(max(value, 0.0), 1.0), 9)
