"""Merging: similar records become one; the originals are archived and can be restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from core.errors import check_choice, check_numbers
from core.learning.structured import lessons_schema, parse_lessons
from core.memory.consolidation.context import (
    ConsolidationContext,
    ConsolidationPolicy,
    ProposedChange,
    lesson_for_prompt,
    none_if_broken,
)
from core.memory.consolidation.differences import may_correct
from core.memory.moment import now as wall_clock
from core.setting import joined_labels
from core.types import Lesson, MemoryRecord, content_id
from prompts import registry

ONE_SUBJECT = 0.8  # cosine of two lessons from which one may correct the other; below, they may share a rule
MAX_KEY_CHARS = 2000  # of a merged record's query
USE, SUCCESS, RECENCY, HALF_LIFE_DAYS = 0.4, 0.4, 0.2, 30.0  # of a vote, as in the server that `Voting` names

# Authors of a merged record's lessons: a model, or a vote for the best of the originals.


class Author(Protocol):
    """Writes the lessons of the record that replaces a group."""

    name: str

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        """The merged lessons; (): the group is not merged. Raises InfraError."""
        ...


@dataclass(kw_only=True)
class LLMAuthor:
    """A model writes the common lessons of the group (the `llm` strategy of the ReasoningBank MCP server).

    max_items     max. number of lessons in the merged record
    temperature   temperature of this call; None: the role's
    """

    max_items: int = 1
    temperature: float | None = None
    name: str = field(default="llm", init=False)

    def __post_init__(self) -> None:
        check_numbers(self, "merge.author", "temperature", least=0)

    def write(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> tuple[Lesson, ...]:
        prompt = ctx.render(
            registry.MERGE_LESSONS_PROMPT,
            lessons=[lesson_for_prompt(lesson) for record in group for lesson in record.items],
            outcome=group[0].outcome,
            max_items=self.max_items,
        )
        ids = sorted(record.id for record in group)
        reply = ctx.ask(prompt, lessons_schema(self.max_items), "merge", *ids, temperature=self.temperature)
        lessons, _ = parse_lessons(reply.text, self.max_items)
        return tuple(lessons)


@dataclass(kw_only=True)
class Voting:
    """Takes the lessons of the record with the most votes (`voting` of the ReasoningBank MCP server), without a model.

    A record's votes: 0.4 (its uses / max uses in the group) + 0.4 (successes / uses; if unused, its confidence) +
    0.2 x 0.5^(idle days / 30). A use is a showing to an agent; one without a reported outcome counts as no success.
    """

    name: str = field(default="voting", init=False)

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
        fresh = 0.5 ** (max(idle_days, 0.0) / HALF_LIFE_DAYS)
        return round(USE * share + SUCCESS * rate + RECENCY * fresh, 9)


# Groups of records in which every pair is similar; a chain of neighbours is not a group.


def groups(
    seeds: Iterable[MemoryRecord],
    neighbours: Callable[[MemoryRecord], list[MemoryRecord]],
    alike: Callable[[MemoryRecord, MemoryRecord], bool],
    least: int,
    most: int,
) -> list[list[MemoryRecord]]:
    """Disjoint groups of `least` to `most` records around the seeds, in the seeds' order.

    seeds        records to start from, each with at most one group
    neighbours   candidates for the group of a seed, nearest first
    alike        whether two records may be in the same group; checked for every pair
    """
    taken: set[str] = set()
    found = []
    for seed in seeds:
        if seed.id in taken:
            continue
        group = [seed]
        for other in neighbours(seed):
            if len(group) == most:
                break
            known = other.id in taken or any(other.id == member.id for member in group)
            if not known and all(alike(member, other) for member in group):
                group.append(other)
        if len(group) >= least:
            taken.update(member.id for member in group)
            found.append(group)
    return found


@dataclass(kw_only=True)
class Merge(ConsolidationPolicy):
    """Merges groups of similar records (the ReasoningBank MCP server: at least 3 above 0.85, by `llm` or `voting`).

    Every pair of a group is similar and has the same outcome and domain: a success is never merged with a failure. No
    lesson of a group may correct another (`differences.py`). The merged record names its parents, has their lowest
    trust and all sources of their labels, and is embedded from its own query.

    least, most     min. and max. number of records in a group
    min_score       least cosine of the lessons' texts of every pair
    min_fit         least cosine of the merged text with each original, else the group is not merged
    key             query of the merged record: `queries` (those of its parents, joined, since new tasks look like
                    these) or `lesson` (titles and descriptions of the merged lessons)
    author          LLMAuthor, Voting, or one of your own
    """

    least: int = 3
    most: int = 10
    min_score: float = 0.85
    min_fit: float = 0.5
    key: str = "queries"
    author: Author = field(default_factory=LLMAuthor)
    name: str = field(default="merge", init=False)

    def __post_init__(self) -> None:
        check_numbers(self, "merge", "least", least=2, whole=True)
        check_numbers(self, "merge", "most", least=self.least, whole=True)
        check_numbers(self, "merge", "min_score", "min_fit", least=-1, most=1)
        check_choice(self, "merge", "key", ("queries", "lesson"))

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """One change per group for which a merged record could be written."""

        def alike(one: MemoryRecord, other: MemoryRecord) -> bool:
            same_kind = (one.outcome, one.domain) == (other.outcome, other.domain)
            near = same_kind and ctx.similarity(one, other) >= self.min_score
            return near and not _may_correct(ctx, one, other)

        neighbours = partial(ctx.similar, least=self.min_score)
        found = groups(ctx.fresh_records(), neighbours, alike, self.least, self.most)
        oldest_first = [sorted(group, key=lambda record: (record.tick, record.id)) for group in found]
        return [proposed for group in oldest_first if (proposed := self.propose(ctx, group)) is not None]

    def propose(self, ctx: ConsolidationContext, group: list[MemoryRecord]) -> ProposedChange | None:
        """The change for one group; None, and no merge, if no text fits or the write filter quarantines the record."""
        lessons = none_if_broken(partial(self.author.write, ctx, group))
        if not lessons:
            return None
        merged = self.merged(ctx, group, lessons)
        if any(ctx.similarity(merged, record) < self.min_fit for record in group):
            return None
        if ctx.bank.hygiene is not None:
            merged = ctx.bank.hygiene.screen(merged, ctx.bank)
            if merged.status != "active":
                return None  # neither the merged record nor its archived originals would be retrieved
        ctx.bank.embedder.embed([merged.original_query])  # fills the cache: a transaction must not wait for a model
        return ProposedChange(
            reason=f"{'+'.join(record.id for record in group)} -> {merged.id} by {self.author.name}",
            seen=tuple(group),
            add=merged,
            updates={record.id: {"status": "archived"} for record in group},
            links=tuple(ctx.link(merged, "supersedes", record, self.author.name) for record in group),
        )

    def merged(self, ctx: ConsolidationContext, group: list[MemoryRecord], lessons: tuple[Lesson, ...]) -> MemoryRecord:
        """The record that replaces a group. group: oldest first; fields not set here are its first record's."""
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
            label_source=joined_labels(record.label_source for record in group),
            created_at=wall_clock(),
            tick=ctx.bank.tick(),  # the current tick, because its confidence is as of now
            tags=tuple(sorted({tag for record in group for tag in record.tags})),
            confidence=_confidence(ctx, group),
            **{name: sum(getattr(record, name) for record in group) for name in counters},
            last_used=max((record.last_used for record in group if record.last_used is not None), default=None),
            trust=min(record.trust for record in group),
            parents=tuple(record.id for record in group),
            provenance={"made_by": f"merge:{self.author.name}", **knew, **lineage},
        )

    def query(self, group: list[MemoryRecord], lessons: tuple[Lesson, ...]) -> str:
        """The query of the merged record, whose embedding is its key."""
        if self.key == "lesson":
            text = "\n".join(f"{lesson.title}\n{lesson.description}" for lesson in lessons)
        else:
            texts = list(dict.fromkeys(record.original_query for record in group))
            share = max(1, MAX_KEY_CHARS // len(texts))  # so that a long query does not displace others
            text = "\n".join(text[:share] for text in texts)
        return text[:MAX_KEY_CHARS]


def _may_correct(ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether a lesson of one of the records may correct one of the other."""
    near = ((a, b) for a in one.items for b in other.items if ctx.cosine(a.text, b.text) >= ONE_SUBJECT)
    return any(may_correct(a, b) for a, b in near)


def _lineage(group: list[MemoryRecord], name: str, own: str) -> list[str]:
    """All source tasks or trajectories of a group, those of earlier merges included. own: field of a plain record."""
    return sorted({value for record in group for value in record.provenance.get(name, [getattr(record, own)])})


def _confidence(ctx: ConsolidationContext, group: list[MemoryRecord]) -> float | None:
    """The mean of the group's confidences, decayed to the current time.

    A bank that keeps no confidence (`consolidate.confidence=null`) may still have imported values. Then nothing decays,
    and the result is None if no record has a value.
    """
    kept = ctx.settings.confidence is not None
    if not kept and all(record.confidence is None for record in group):
        return None
    present = ctx.present_confidence if kept else ctx.confidence.of
    return round(sum(present(record) for record in group) / len(group), 9)
