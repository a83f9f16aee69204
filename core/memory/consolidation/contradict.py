"""Contradictions: two records that cannot both be right are linked, and the weaker one is lowered or quarantined."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from core.checks import check_choice, check_numbers
from core.memory.consolidation.context import ConsolidationContext, ProposedChange, none_if_broken
from core.memory.consolidation.relation_checkers import Checker, LLMChecker
from core.types import MemoryRecord


@dataclass(kw_only=True)
class Contradict:
    """Asks a checker how each fresh record relates to those that are near it in meaning. Deletes nothing.

    Source: agentic-flow's ReasoningBank, which checks lessons with a cosine above 0.60. Far below `low` two lessons are
    about different things, above `high` they say the same: asking would be a waste.

    low, high   cosine of the lessons' texts between which a pair is checked
    most        pairs checked for one fresh record, nearest first
    action      what happens to the weaker of two contradicting records: lower (its confidence) or quarantine as well
    factor      its confidence is multiplied by this
    checker     LLMChecker, NLIChecker, or one of your own
    """

    low: float = 0.6
    high: float = 0.95
    most: int = 5
    action: str = "lower"
    factor: float = 0.5
    checker: Checker = field(default_factory=LLMChecker)
    name: str = field(default="contradict", init=False)

    def __post_init__(self) -> None:
        check_choice(self, "contradict", "action", ("lower", "quarantine"))
        check_numbers(self, "contradict", "high", least=-1, most=1)
        check_numbers(self, "contradict", "low", least=-1, most=self.high)
        check_numbers(self, "contradict", "factor", least=0, most=1)

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """A change for each pair that relates in some way; pairs that are linked already are not asked about."""
        asked: set[frozenset[str]] = set()
        lowered: dict[str, float] = {}  # confidence of the records that this plan has lowered so far
        changes = []
        for record in ctx.fresh_records():
            linked = {frozenset((source, target)) for source, _, target, _ in ctx.bank.links(record.id)}
            others = ctx.similar(record, self.low, self.high)
            others = [other for other in others if frozenset((record.id, other.id)) not in linked | asked]
            for other in others[: self.most]:
                asked.add(frozenset((record.id, other.id)))
                changes += self.check(ctx, record, other, lowered)
        return changes

    def check(
        self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord, lowered: dict[str, float]
    ) -> list[ProposedChange]:
        """The change for one pair: none where the records do not relate, or where the model broke."""
        relation, why = none_if_broken(partial(self.checker.check, ctx, one, other)) or (None, "")
        if relation is None:
            return []
        link = (one.id, relation, other.id, why)
        updates = {}
        if relation == "contradicts":
            weaker = min((one, other), key=ctx.rank_key)
            before = lowered.get(weaker.id, ctx.confidence.of(weaker))
            lowered[weaker.id] = round(before * self.factor, 9)
            updates = {weaker.id: {"confidence": lowered[weaker.id]}}
            if self.action == "quarantine":
                updates[weaker.id]["status"] = "quarantined"
        return [
            ProposedChange(reason=f"{one.id} {relation} {other.id}", seen=(one, other), updates=updates, links=(link,))
        ]
