"""Merging: several lessons that are alike become one record; the originals are archived and can come back."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.errors import InfraError, OverBudget, UserError
from core.memory.clock import now as wall_clock
from core.memory.consolidation.context import Deed, Round
from core.memory.consolidation.grouping import groups
from core.memory.consolidation.merge_authors import Author, LLMAuthor
from core.types import Lesson, MemoryRecord, content_id


@dataclass(kw_only=True)
class Merge:
    """Merges groups of like records (the ReasoningBank MCP server: at least 3 above 0.85, by `llm` or `voting`).

    Every pair of a group is alike, of one outcome and one domain: never a success with a failure. The merged record
    names its parents, has the least of their trust, and is embedded anew from its own query.

    least, most   records in a group
    min_score     cosine of the lessons' texts that every pair has at least
    min_fit       cosine of the merged text with each original, at least; a model that wanders off replaces nothing
    key           the query that the merged record is found by: `queries` (its parents', joined: new tasks are asked
                  like these) or `lesson` (the merged text itself)
    max_key_chars of that query
    author        LLMAuthor, Voting, or one of your own
    """

    least: int = 3
    most: int = 10
    min_score: float = 0.85
    min_fit: float = 0.5
    key: str = "queries"
    max_key_chars: int = 2000
    author: Author = field(default_factory=LLMAuthor)
    name: str = field(default="merge", init=False)

    def __post_init__(self) -> None:
        if not 2 <= self.least <= self.most:
            raise UserError(f"merge.least={self.least} most={self.most}: give whole numbers with 2 <= least <= most.")
        if self.key not in ("queries", "lesson"):
            raise UserError(f"merge.key={self.key}: choose queries or lesson.")
        if not (-1 <= self.min_score <= 1 and -1 <= self.min_fit <= 1):
            raise UserError(f"merge.min_score={self.min_score} min_fit={self.min_fit}: give cosines.")

    def plan(self, now: Round) -> list[Deed]:
        """One deed for each group whose merged text could be written."""

        def alike(one: MemoryRecord, other: MemoryRecord) -> bool:
            same_kind = (one.outcome, one.domain) == (other.outcome, other.domain)
            return same_kind and now.similarity(one, other) >= self.min_score

        def neighbours(record: MemoryRecord) -> list[MemoryRecord]:
            return [hit.record for hit in now.alike(record, self.min_score)]

        found = groups(now.newcomers(), neighbours, alike, self.least, self.most)
        return [deed for group in found if (deed := self.deed(now, sorted(group, key=_age))) is not None]

    def deed(self, now: Round, group: list[MemoryRecord]) -> Deed | None:
        try:
            items = self.author.write(now, group)
        except OverBudget:
            raise  # the run ends here, and the next start makes this round again
        except InfraError:
            items = ()  # the group stays as it is, and is met again with its next neighbour
        if not items:
            return None
        merged = self.merged(now, group, items)
        if any(now.similarity(merged, record) < self.min_fit for record in group):
            return None
        if now.bank.hygiene is not None:
            merged = now.bank.hygiene.screen(merged, now.bank)
        now.bank.embedder.embed([merged.original_query])  # into the cache: the transaction must not wait for a model
        return Deed(
            reason=f"{'+'.join(record.id for record in group)} -> {merged.id} by {self.author.name}",
            seen=tuple(group),
            add=merged,
            updates={record.id: {"status": "archived"} for record in group},
            links=tuple((merged.id, "supersedes", record.id, self.author.name) for record in group),
        )

    def merged(self, now: Round, group: list[MemoryRecord], items: tuple[Lesson, ...]) -> MemoryRecord:
        """The record that stands for a group, given oldest first."""
        lineage = {name: _lineage(group, name) for name in ("tasks", "trajectories")}
        return MemoryRecord(
            id=content_id("merge", [record.id for record in group], items),
            original_query=self.query(group, items),
            items=items,
            source_trajectory_id=group[0].source_trajectory_id,
            score=round(sum(record.score for record in group) / len(group), 9),
            outcome=group[0].outcome,
            label_source=_one_of({record.label_source for record in group}),
            task_id=group[0].task_id,
            namespace=group[0].namespace,
            created_at=wall_clock(),
            tick=now.bank.tick(),  # made now: its confidence is that of this moment
            domain=group[0].domain,
            tags=tuple(sorted({tag for record in group for tag in record.tags})),
            confidence=round(sum(now.believed(record) for record in group) / len(group), 9),
            n_used=sum(record.n_used for record in group),
            n_used_success=sum(record.n_used_success for record in group),
            n_helpful=sum(record.n_helpful for record in group),
            n_harmful=sum(record.n_harmful for record in group),
            last_used=max((record.last_used for record in group if record.last_used is not None), default=None),
            trust=min(record.trust for record in group),
            parents=tuple(record.id for record in group),
            provenance={"made_by": f"merge:{self.author.name}", **lineage},
        )

    def query(self, group: list[MemoryRecord], items: tuple[Lesson, ...]) -> str:
        """The text whose embedding the merged record is found by."""
        if self.key == "lesson":
            text = "\n".join(f"{item.title}\n{item.description}" for item in items)
        else:
            texts = list(dict.fromkeys(record.original_query for record in group))
            share = max(1, self.max_key_chars // len(texts))  # a long query must not crowd the others out
            text = "\n".join(text[:share] for text in texts)
        return text[: self.max_key_chars]


def _age(record: MemoryRecord) -> tuple[int, str]:
    return (record.tick, record.id)


def _one_of(values: set[str]) -> str:
    return next(iter(values)) if len(values) == 1 else "mixed"


def _lineage(group: list[MemoryRecord], name: str) -> list[str]:
    """Every task or trajectory behind a group, also those behind earlier merges."""
    own = {"tasks": "task_id", "trajectories": "source_trajectory_id"}[name]
    return sorted({value for record in group for value in record.provenance.get(name, [getattr(record, own)])})
