"""Pruning: records that are old, unused and of low confidence are archived."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.errors import check_numbers
from core.memory.consolidation.context import ConsolidationContext, ConsolidationPolicy, ProposedChange
from core.types import MemoryRecord


@dataclass(kw_only=True)
class Prune(ConsolidationPolicy):
    """Archives records that have low confidence, are old and are unused, all three (agentic-flow's ReasoningBank).

    Archived records are no longer retrieved; they stay in the bank and can be restored, until they are deleted.

    min_confidence   a record is kept if its confidence, decayed to the current time, is at least this
    max_age_days     a record is kept up to this age, by the bank's clock
    delete_after_days   archived records older than max_age_days plus this, still unused and of low confidence, are
                     deleted for good, except originals of merges; None: never
    """

    min_confidence: float = 0.3
    max_age_days: float = 180.0
    delete_after_days: float | None = None
    name: str = field(default="prune", init=False)

    def __post_init__(self) -> None:
        check_numbers(self, "prune", "min_confidence", least=0, most=1)
        check_numbers(self, "prune", "max_age_days", "delete_after_days", least=0)

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """One change per record to archive, and one per archived record to delete."""
        archived = [
            ProposedChange(reason=f"{record.id} pruned", seen=(record,), updates={record.id: {"status": "archived"}})
            for record in ctx.active
            if self.is_due(ctx, record)
        ]
        return archived + self.deletions(ctx)

    def deletions(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """One change per record to delete."""
        if self.delete_after_days is None:
            return []
        records = ctx.bank.records(namespace=ctx.bank.namespace)
        originals = {parent for record in records for parent in record.parents}
        oldest = self.max_age_days + self.delete_after_days
        return [
            ProposedChange(reason=f"{record.id} deleted", seen=(record,), erase=(record.id,))
            for record in records
            if record.status == "archived" and record.id not in originals
            if self.is_due(ctx, record) and ctx.age_days(record) > oldest
        ]

    def is_due(self, ctx: ConsolidationContext, record: MemoryRecord) -> bool:
        """Whether to archive a record. One with more helpful than harmful marks counts as used."""
        return (
            record.n_used == 0
            and record.n_helpful <= record.n_harmful
            and ctx.age_days(record) > self.max_age_days
            and ctx.present_confidence(record) < self.min_confidence
        )
