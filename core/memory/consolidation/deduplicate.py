"""Duplicates: a record whose lessons another record already holds is set aside, never deleted."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.errors import UserError
from core.memory.consolidation.context import ConsolidationContext, ProposedChange
from core.memory.consolidation.same_lesson import content_hash, titles_near
from core.types import Lesson, MemoryRecord


@dataclass(kw_only=True)
class Deduplicate:
    """Keeps the best of records that teach the same; the rest is superseded and linked `duplicate_of` to it.

    Sources: agentic-flow's ReasoningBank (cosine 0.87), the ReasoningBank MCP server (content hash, cosine 0.90). Two
    items are the same when their contents are the same text, or their titles nearly are, or their meaning is. A record
    is a duplicate when each of its items has its like in one other record of the same outcome and domain.

    title_distance   titles fewer edits apart than this are the same (Levenshtein); 0: titles do not count
    title_min_score  and only where the items' cosine is at least this; 0: the title alone decides
    min_score        items with at least this cosine are the same; null: meaning does not count
    """

    title_distance: int = 3
    title_min_score: float = 0.5
    min_score: float | None = 0.9
    name: str = field(default="deduplicate", init=False)

    def __post_init__(self) -> None:
        if self.title_distance < 0:
            raise UserError(f"deduplicate.title_distance={self.title_distance}: give a whole number of at least 0.")
        for name in ("title_min_score", "min_score"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise UserError(f"deduplicate.{name}={value}: give a cosine from 0 to 1.")

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """A change for each record that is to go."""
        gone: dict[str, tuple[MemoryRecord, MemoryRecord]] = {}  # id -> (it, the one that stays instead)
        for record in ctx.fresh_records():
            for other in ctx.near(record):
                if record.id in gone:
                    break
                if other.id not in gone and (pair := self.loser_and_keeper(ctx, record, other)):
                    gone[pair[0].id] = pair
        return [self.propose(loser, _last(keeper, gone)) for loser, keeper in gone.values()]

    def loser_and_keeper(
        self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord
    ) -> tuple[MemoryRecord, MemoryRecord] | None:
        """(the one to go, the one to stay), or None when each has something of its own."""
        if (one.outcome, one.domain) != (other.outcome, other.domain):
            return None
        held, holds = self.covered(ctx, one, other), self.covered(ctx, other, one)
        if held and holds:
            return (other, one) if ctx.rank_key(one) > ctx.rank_key(other) else (one, other)
        return (one, other) if held else (other, one) if holds else None

    def covered(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> bool:
        """Whether every item of `one` has its like in `other`."""
        return bool(one.items) and all(any(self.same(ctx, item, like) for like in other.items) for item in one.items)

    def same(self, ctx: ConsolidationContext, one: Lesson, other: Lesson) -> bool:
        """Whether two items teach the same; the cheap checks first."""
        if content_hash(one) == content_hash(other):
            return True
        near = self.title_distance > 0 and titles_near(one.title, other.title, self.title_distance)
        if not near and self.min_score is None:
            return False
        score = ctx.item_similarity(one, other)
        return (near and score >= self.title_min_score) or (self.min_score is not None and score >= self.min_score)

    def propose(self, loser: MemoryRecord, keeper: MemoryRecord) -> ProposedChange:
        return ProposedChange(
            reason=f"{loser.id} duplicate_of {keeper.id}",
            seen=(loser, keeper),
            updates={loser.id: {"status": "superseded"}},
            links=((loser.id, "duplicate_of", keeper.id, ""),),
        )


def _last(keeper: MemoryRecord, gone: dict[str, tuple[MemoryRecord, MemoryRecord]]) -> MemoryRecord:
    while keeper.id in gone:  # it lost in its turn
        keeper = gone[keeper.id][1]
    return keeper
