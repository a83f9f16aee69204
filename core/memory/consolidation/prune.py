"""Pruning: what nobody used, nobody believes in and is old goes to the archive."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.errors import UserError
from core.memory.consolidation.context import ConsolidationContext, ProposedChange
from core.types import MemoryRecord


@dataclass(kw_only=True)
class Prune:
    """Archives records that were never used, below a confidence and above an age (agentic-flow's ReasoningBank).

    All three must hold. Archived records are no longer retrieved; they stay in the bank and can be restored.

    min_confidence   at this confidence, faded to the present, a record is safe
    max_age_days     up to this age, by the bank's clock, a record is safe
    max_uses         with more uses than this a record is safe
    """

    min_confidence: float = 0.3
    max_age_days: float = 180.0
    max_uses: int = 0
    name: str = field(default="prune", init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1 or self.max_age_days < 0 or self.max_uses < 0:
            raise UserError(
                f"prune.min_confidence={self.min_confidence} max_age_days={self.max_age_days} "
                f"max_uses={self.max_uses}: a confidence from 0 to 1, an age and a number of uses of at least 0."
            )

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """A change for each record that is to be archived."""
        return [
            ProposedChange(reason=f"{record.id} pruned", seen=(record,), updates={record.id: {"status": "archived"}})
            for record in ctx.bank.records(namespace=ctx.bank.namespace, status="active")
            if self.forgotten(ctx, record)
        ]

    def forgotten(self, ctx: ConsolidationContext, record: MemoryRecord) -> bool:
        """Whether a record is unused, disbelieved and old. A parent's feedback counts as use: somebody read it."""
        return (
            record.n_used <= self.max_uses
            and record.n_helpful <= record.n_harmful
            and ctx.age_days(record) > self.max_age_days
            and ctx.effective_confidence(record) < self.min_confidence
        )
