"""Contradictions: lessons that cannot both be right are linked, and the weaker one loses weight. None is deleted."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.errors import InfraError, OverBudget, UserError
from core.memory.consolidation.context import ConsolidationContext, ProposedChange
from core.memory.consolidation.relation_checkers import Checker, LLMChecker
from core.types import MemoryRecord

ACTIONS = ("lower", "quarantine")


@dataclass(kw_only=True)
class Contradict:
    """Asks a checker about each fresh record and those near it in meaning.

    Source: agentic-flow's ReasoningBank (a check among lessons with a cosine above 0.60). Far below the band two
    lessons speak of different things, above it they say the same, so that a question would be wasted.

    low, high   cosine of the lessons' texts between which a pair is checked
    most        pairs checked for one fresh record, nearest first
    action      what the weaker of two contradicting records suffers: lower (its confidence) or quarantine
    factor      what its confidence is multiplied with
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
        if self.action not in ACTIONS:
            raise UserError(f"contradict.action={self.action}: choose {' or '.join(ACTIONS)}.")
        if not -1 <= self.low <= self.high <= 1:
            raise UserError(f"contradict.low={self.low} high={self.high}: give cosines with low <= high.")
        if not 0 <= self.factor <= 1:
            raise UserError(f"contradict.factor={self.factor}: give a number from 0 to 1.")

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """A change for each pair that relates in some way; pairs that are linked already are not asked about."""
        asked: set[frozenset[str]] = set()
        confidence: dict[str, float] = {}  # as lowered so far in this plan
        changes = []
        for record in ctx.fresh_records():
            known = {frozenset((source, target)) for source, _, target, _ in ctx.bank.links(record.id)}
            pairs = [hit.record for hit in ctx.alike(record, self.low, self.high)]
            pairs = [other for other in pairs if frozenset((record.id, other.id)) not in known | asked]
            for other in pairs[: self.most]:
                asked.add(frozenset((record.id, other.id)))
                changes += self.consider(ctx, record, other, confidence)
        return changes

    def consider(
        self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord, lowered: dict[str, float]
    ) -> list[ProposedChange]:
        """The change for one pair; nothing when the model broke: better no link than a round that never ends."""
        try:
            relation, why = self.checker.check(ctx, one, other)
        except OverBudget:
            raise  # the run ends here, and the next start makes this round again
        except InfraError:
            return []
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
