"""Merging: records that are alike become one; the originals are archived and can be restored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from core.checks import check_choice, check_numbers
from core.memory.consolidation.context import ConsolidationContext, ProposedChange, none_if_broken
from core.memory.consolidation.grouping import groups
from core.memory.consolidation.merge_authors import Author, LLMAuthor
from core.memory.store.clock import now as wall_clock
from core.setting import joined
from core.types import Lesson, MemoryRecord, content_id


@dataclass(kw_only=True)
class Merge:
    """Merges groups of like records (the ReasoningBank MCP server: at least 3 above 0.85, by `llm` or `voting`).

    Every pair of a group is alike and of one outcome and one domain: a success is never merged with a failure. The
    merged record names its parents, has the lowest trust among them and all sources of their labels, and is
    embedded anew from its own query.

    least, most     records in a group
    min_score       least cosine of the lessons' texts of every pair
    min_fit         least cosine of the merged text with each original; a text that has drifted away is not used
    key             the query that the merged record is found by: `queries` (those of its parents, joined, because new
                    tasks are asked in this way) or `lesson` (the titles and descriptions of the merged lessons)
    max_key_chars   of that query
    author          LLMAuthor, Voting, or one of your own
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
        check_numbers(self, "merge", "least", least=2, whole=True)
        check_numbers(self, "merge", "most", least=self.least, whole=True)
        check_numbers(self, "merge", "min_score", "min_fit", least=-1, most=1)
        check_choice(self, "merge", "key", ("queries", "lesson"))

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """A change for each group whose merged text could be written."""

        def alike(one: MemoryRecord, other: MemoryRecord) -> bool:
            same_kind = (one.outcome, one.domain) == (other.outcome, other.domain)
            return same_kind and ctx.similarity(one, other) >= self.min_score

        neighbours = partial(ctx.similar, least=self.min_score)
        found = groups(ctx.fresh_records(), neighbours, alike, self.least, self.most)
        oldest_first = [sorted(group, key=lambda record: (record.tick, record.id)) for group in found]
        return [proposed for group in oldest_first if (proposed := self.propose(ctx, group)) is not None]

    def propose(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> ProposedChange | None:
        """The change for one group; None, and the group stays, where no text fits or the guard stops the merged one."""
        lessons = none_if_broken(partial(self.author.write, ctx, group))
        if not lessons:
            return None
        merged = self.merged(ctx, group, lessons)
        if any(ctx.similarity(merged, record) < self.min_fit for record in group):
            return None
        if ctx.bank.hygiene is not None:
            merged = ctx.bank.hygiene.screen(merged, ctx.bank)
            if merged.status != "active":
                return None  # nobody would see the merged record, nor the originals that it archives
        ctx.bank.embedder.embed([merged.original_query])  # into the cache: a transaction must not wait for a model
        return ProposedChange(
            reason=f"{'+'.join(record.id for record in group)} -> {merged.id} by {self.author.name}",
            seen=tuple(group),
            add=merged,
            updates={record.id: {"status": "archived"} for record in group},
            links=tuple(ctx.link(merged, "supersedes", record, self.author.name) for record in group),
        )

    def merged(self, ctx: ConsolidationContext, group: list[MemoryRecord], lessons: tuple[Lesson, ...]) -> MemoryRecord:
        """The record that replaces a group, which is given oldest first; what is not set here is its first record's."""
        lineage = {"tasks": _lineage(group, "tasks", "task_id")}
        lineage["trajectories"] = _lineage(group, "trajectories", "source_trajectory_id")
        knew = {note: True for note in ("use_gold", "show_answer") if any(r.provenance.get(note) for r in group)}
        counters = ("n_used", "n_used_success", "n_helpful", "n_harmful")
        return replace(
            group[0],
            id=content_id("merge", [record.id for record in group], lessons),
            original_query=self.query(group, lessons),
            query_embedding=(),
            items=lessons,
            score=round(sum(record.score for record in group) / len(group), 9),
            label_source=joined(record.label_source for record in group),
            created_at=wall_clock(),
            tick=ctx.bank.tick(),  # made now: its confidence is the present one
            tags=tuple(sorted({tag for record in group for tag in record.tags})),
            confidence=_confidence(ctx, group),
            **{name: sum(getattr(record, name) for record in group) for name in counters},
            last_used=max((record.last_used for record in group if record.last_used is not None), default=None),
            trust=min(record.trust for record in group),
            parents=tuple(record.id for record in group),
            provenance={"made_by": f"merge:{self.author.name}", **knew, **lineage},
        )

    def query(self, group: list[MemoryRecord], lessons: tuple[Lesson, ...]) -> str:
        """The text whose embedding the merged record is found by."""
        if self.key == "lesson":
            text = "\n".join(f"{lesson.title}\n{lesson.description}" for lesson in lessons)
        else:
            texts = list(dict.fromkeys(record.original_query for record in group))
            share = max(1, self.max_key_chars // len(texts))  # so that a long query does not displace the others
            text = "\n".join(text[:share] for text in texts)
        return text[: self.max_key_chars]


def _lineage(group: list[MemoryRecord], name: str, own: str) -> list[str]:
    """Every task or trajectory behind a group, those behind earlier merges included. `own`: a plain record's field."""
    return sorted({value for record in group for value in record.provenance.get(name, [getattr(record, own)])})


def _confidence(ctx: ConsolidationContext, group: list[MemoryRecord]) -> float | None:
    """The mean of the group's confidences, faded to the present where the bank lets them fade.

    A bank that keeps none (`consolidate.confidence=null`) has no more than what came with the records: nothing fades,
    and a group of records without any gives None, as they have.
    """
    kept = ctx.settings.confidence is not None
    if not kept and all(record.confidence is None for record in group):
        return None
    present = ctx.present_confidence if kept else ctx.confidence.of
    return round(sum(present(record) for record in group) / len(group), 9)
