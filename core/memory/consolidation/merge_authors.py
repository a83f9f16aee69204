"""Who writes the lessons of a merged record: a model, or a vote for the best of the originals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from core.checks import check_numbers, check_positive
from core.learning.schemas import lessons_schema
from core.learning.structured import parse_lessons
from core.memory.consolidation.context import ConsolidationContext, lesson_for_prompt
from core.types import Lesson, MemoryRecord
from prompts import registry


class Author(Protocol):
    """Writes the lessons of the record that replaces a group."""

    name: str

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        """The merged lessons; () when none could be written, and the group stays as it is. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class LLMAuthor:
    """A model writes what the group has in common (the `llm` strategy of the ReasoningBank MCP server).

    max_items     lessons of the merged record
    max_chars     of each title, description and content that the model is shown
    temperature   of the model while it merges; None: that of its role
    """

    max_items: int = 1
    max_chars: int = 2000
    temperature: float | None = None
    name: str = field(default="llm", init=False)

    def __post_init__(self) -> None:
        check_numbers(self, "merge.author", "temperature", least=0)

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        prompt = ctx.render(
            registry.MERGE_LESSONS_PROMPT,
            lessons=[lesson_for_prompt(lesson, self.max_chars) for record in group for lesson in record.items],
            outcome=group[0].outcome,
            max_items=self.max_items,
        )
        ids = sorted(record.id for record in group)
        reply = ctx.ask(prompt, lessons_schema(self.max_items), "merge", *ids, temperature=self.temperature)
        lessons, _ = parse_lessons(reply.text, self.max_items)
        return tuple(lessons)


@dataclass(kw_only=True)
class Voting:
    """The record with the most votes is taken (the `voting` strategy of the ReasoningBank MCP server), without a model.

    A record's votes: use x (its uses / the most uses in the group) + success x (successes / uses, for an unused one its
    confidence) + recency x 0.5^(idle days / half_life_days). A use is a showing to an agent; one whose attempt nobody
    reported is no success.
    """

    use: float = 0.4
    success: float = 0.4
    recency: float = 0.2
    half_life_days: float = 30.0
    name: str = field(default="voting", init=False)

    def __post_init__(self) -> None:
        check_numbers(self, "merge.author", "use", "success", "recency", least=0)
        check_positive(self, "merge.author", "half_life_days")

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        most = max(record.n_used for record in group)
        votes = {
            record.id: self.votes(record, most, ctx.present_confidence(record), ctx.idle_days(record))
            for record in group
        }
        return max(group, key=lambda record: (votes[record.id], ctx.rank_key(record))).items

    def votes(self, record: MemoryRecord, most_used: int, confidence: float, idle_days: float) -> float:
        """The votes for a record, rounded to 9 digits."""
        share = record.n_used / most_used if most_used else 0.0
        rate = record.n_used_success / record.n_used if record.n_used else confidence
        fresh = 0.5 ** (max(idle_days, 0.0) / self.half_life_days)
        return round(self.use * share + self.success * rate + self.recency * fresh, 9)
