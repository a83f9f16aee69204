"""Who words a merged record: a model that abstracts the rule, or a vote for the best of the originals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from core.errors import UserError
from core.learning.schemas import lessons_schema
from core.learning.structured import parse_lessons
from core.memory.consolidation.context import ConsolidationContext, shown
from core.types import Lesson, MemoryRecord
from prompts import registry


class Author(Protocol):
    """Words the record that stands for a group."""

    name: str

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        """The merged items; () when none could be made, and the group stays as it is."""
        ...


@dataclass(kw_only=True)
class LLMAuthor:
    """A model writes the rule behind the group (the `llm` strategy of the ReasoningBank MCP server).

    max_items   memory items of the merged record
    max_chars   of each text that is shown to the model
    """

    max_items: int = 1
    max_chars: int = 2000
    name: str = field(default="llm", init=False)

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        prompt = ctx.render(
            registry.MERGE_LESSONS_PROMPT,
            lessons=[shown(item, self.max_chars) for record in group for item in record.items],
            outcome=group[0].outcome,
            max_items=self.max_items,
        )
        ids = sorted(record.id for record in group)
        reply = ctx.ask(prompt, lessons_schema(self.max_items), "merge", *ids)
        lessons, _ = parse_lessons(reply.text, self.max_items)
        return tuple(lessons)


@dataclass(kw_only=True)
class Voting:
    """The group elects one of its own (the `voting` strategy of the ReasoningBank MCP server); no model is asked.

    A record's votes: use x (its uses / the most uses in the group) + success x (successes / uses, for an unused one its
    confidence) + recency x 0.5^(idle days / half_life_days). The items of the winner are taken as they are.
    """

    use: float = 0.4
    success: float = 0.4
    recency: float = 0.2
    half_life_days: float = 30.0
    name: str = field(default="voting", init=False)

    def __post_init__(self) -> None:
        if min(self.use, self.success, self.recency) < 0 or self.half_life_days <= 0:
            raise UserError("merge by voting: weights are at least 0 and half_life_days is above 0.")

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        most = max(record.n_used for record in group)
        votes = {
            record.id: self.votes(record, most, ctx.effective_confidence(record), ctx.idle_days(record))
            for record in group
        }
        return max(group, key=lambda record: (votes[record.id], ctx.rank_key(record))).items

    def votes(self, record: MemoryRecord, most_used: int, believed: float, idle_days: float) -> float:
        """The votes for a record, rounded to 9 digits."""
        share = record.n_used / most_used if most_used else 0.0
        rate = record.n_used_success / record.n_used if record.n_used else believed
        fresh = 0.5 ** (max(idle_days, 0.0) / self.half_life_days)
        return round(self.use * share + self.success * rate + self.recency * fresh, 9)
