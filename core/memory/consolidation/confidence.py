"""Confidence: where it starts, what use and feedback do to it, how it fades."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import UserError
from core.types import MemoryRecord


@dataclass(kw_only=True)
class Confidence:
    """The arithmetic of agentic-flow's ReasoningBank (prior x the judge's confidence; a step at each use).

    prior_success, prior_failure   of a new record, by its outcome; times the judge's confidence where it gives one
    gain, loss                     added after a use in an attempt judged a success, taken away after a failure
    helpful, harmful               added and taken away when a record is marked
    half_life_days                 without use, half of it is gone after so many days of the bank's clock; null: never
    """

    prior_success: float = 0.7
    prior_failure: float = 0.6
    gain: float = 0.05
    loss: float = 0.025
    helpful: float = 0.05
    harmful: float = 0.1
    half_life_days: float | None = 90.0

    def __post_init__(self) -> None:
        for name in ("prior_success", "prior_failure", "gain", "loss", "helpful", "harmful"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"confidence.{name}={getattr(self, name)}: give a number from 0 to 1.")
        if self.half_life_days is not None and self.half_life_days <= 0:
            raise UserError(f"confidence.half_life_days={self.half_life_days}: give days above 0, or null.")

    def prior(self, outcome: str, judge_confidence: float | None) -> float:
        """The confidence of a new record."""
        prior = self.prior_success if outcome == "success" else self.prior_failure
        return _clamp(prior * (1.0 if judge_confidence is None else judge_confidence))

    def of(self, record: MemoryRecord) -> float:
        """The stored confidence, as it was when the record was last used; for an unrated record the prior."""
        return self.prior(record.outcome, None) if record.confidence is None else record.confidence

    def now(self, record: MemoryRecord, idle_days: float) -> float:
        """The confidence after idle_days without use."""
        if self.half_life_days is None:
            return self.of(record)
        return self.of(record) * 0.5 ** (max(idle_days, 0.0) / self.half_life_days)

    def after_use(self, record: MemoryRecord, idle_days: float, label: str | None) -> float:
        """The confidence after a use in an attempt judged `label`: success, failure, or None (nobody judged)."""
        step = {"success": self.gain, "failure": -self.loss}.get(label or "", 0.0)
        return _clamp(self.now(record, idle_days) + step)

    def after_mark(self, record: MemoryRecord, helpful: bool) -> float:
        """The stored confidence after somebody marked the record."""
        return _clamp(self.of(record) + (self.helpful if helpful else -self.harmful))


def _clamp(value: float) -> float:
    # Rounded, so that a sum does not depend on the order of the same steps in its last bits.
    return round(min(max(value, 0.0), 1.0), 9)
