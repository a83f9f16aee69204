"""Deduplication: a record whose lessons are all in another record is superseded by it, never deleted."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.errors import check_choice, check_numbers
from core.memory.consolidation.context import (
    ROUNDED,
    ConsolidationContext,
    ConsolidationPolicy,
    ProposedChange,
    Test,
)
from core.memory.consolidation.differences import difference, may_correct
from core.memory.ports import CORRECTS, REVISES
from core.normal_form import folded
from core.types import Lesson, MemoryRecord

if TYPE_CHECKING:
    import numpy as np

# Comparison of two lessons by their texts alone.

_NUMBER = re.compile(r"\d+")
LETTERS = 39  # columns of `letter_counts`: a to z and 0 to 9 have one each


def titles_near(one: str, other: str, distance: int) -> bool:
    """Whether two titles are fewer than `distance` edits apart (Levenshtein) and hold the same numbers."""
    from rapidfuzz.distance import Levenshtein

    one, other = folded(one), folded(other)
    if _NUMBER.findall(one) != _NUMBER.findall(other):  # such as "square of 12" and "square of 13"
        return False
    return Levenshtein.distance(one, other, score_cutoff=distance - 1) < distance


def letter_counts(texts: list[str]) -> np.ndarray:
    """How often each letter stands in each text: float32 (n, LETTERS). Rarer ones share a column."""
    import numpy as np

    letters = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32) % LETTERS
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    counts = np.bincount(rows * LETTERS + letters, minlength=len(texts) * LETTERS)
    return counts.reshape(len(texts), LETTERS).astype(np.float32)


def may_be_near(one: np.ndarray, other: np.ndarray, distance: int) -> np.ndarray:
    """Which titles, of which these are the letters, may be fewer than `distance` edits apart: bool (n, m).

    An edit changes two counts by one at the most, and so the squared distance of n edits is at most 2 n n.
    """
    import numpy as np

    left = np.column_stack([one, (one**2).sum(axis=1), np.ones(len(one), np.float32)])
    right = np.column_stack([-2 * other, np.ones(len(other), np.float32), (other**2).sum(axis=1)])
    return left @ right.T <= 2 * (distance - 1) ** 2  # |a - b|^2 = |a|^2 + |b|^2 - 2 a b, in one product


@dataclass(kw_only=True)
class Deduplicate(ConsolidationPolicy):
    """Of records that teach the same, the best stays; the others are superseded and linked `duplicate_of` to it.

    Records that are near and whose words differ (`differences.py`) both stay, because the newer one may correct the
    older one: it is linked to it, `revises`, and the bank retrieves it first (`corrections`). Contradict, if there is
    one, asks its checker about such pairs.

    Sources: agentic-flow's ReasoningBank (cosine 0.87), the ReasoningBank MCP server (content hash, cosine 0.90). Two
    lessons are the same if their contents are equal, or near by their titles or by their cosine, and if their words do
    not differ. A record is a duplicate if each of its lessons is the same as one
    in a single other record of the same outcome and domain.

    title_distance   titles fewer edits apart than this are nearly equal (Levenshtein); 0: titles are not compared
    title_min_score  least cosine of the lessons for nearly equal titles to count; 0: the title alone decides
    min_score        lessons with at least this cosine are the same; null: the cosine is not used
    on_add           also compare each record as soon as it is added, before the caller continues
    keep             which of two records with the same lessons stays: merit, the better one by confidence, marks and
                     uses | score, the one that the bank's retrieval policy ranks higher for a query to which both are
                     equally similar, of equals the better one. Source of score: founding outline, 6.1
    """

    title_distance: int = 3
    title_min_score: float = 0.5
    min_score: float | None = 0.9
    on_add: bool = False
    keep: str = "merit"
    name: str = field(default="deduplicate", init=False)

    def __post_init__(self) -> None:
        check_choice(self, "deduplicate", "keep", ("merit", "score"))
        check_numbers(self, "deduplicate", "title_distance", least=0, whole=True)
        check_numbers(self, "deduplicate", "title_min_score", "min_score", least=0, most=1)

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """One change per record to supersede, and per pair of which one record corrects the other."""
        found: dict[str, tuple[MemoryRecord, MemoryRecord]] = {}  # id of a duplicate -> (the duplicate, its keeper)
        apart: dict[tuple[str, str], ProposedChange] = {}  # (newer, older) of each pair that is near and differs
        compared: set[tuple[str, str]] = set()  # a pair is mostly near from both sides
        near = ctx.near(self.may_be_same(ctx))
        for record in ctx.fresh_records():
            for other in near[record.id]:
                if record.id in found:
                    break
                if other.id in found or (other.id, record.id) in compared:
                    continue
                compared.add((record.id, other.id))
                if pair := self.duplicate_and_keeper(ctx, record, other):
                    found[pair[0].id] = pair
                elif correction := self.correction(ctx, record, other):
                    apart[correction.links[0][0], correction.links[0][2]] = correction
        superseded = [self.propose(ctx, duplicate, _last_keeper(keeper, found)) for duplicate, keeper in found.values()]
        there = {link[:3] for newer in {newer for newer, _ in apart} for link in ctx.bank.links(newer)}
        new = [change for ids, change in apart.items() if not found.keys() & set(ids)]
        return superseded + [change for change in new if change.links[0][:3] not in there]

    def may_be_same(self, ctx: ConsolidationContext) -> Test:
        """The test for all pairs of lessons at once whether `near`, or equal contents, are worth a closer look."""
        import numpy as np

        codes: dict[Hashable, int] = {}

        def coded(values: Iterable[Hashable]) -> np.ndarray:
            return np.array([codes.setdefault(value, len(codes)) for value in values])

        def texts(lessons: list[Lesson]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Of each lesson the content and the numbers in the title, as codes, and the letters of the title."""
            titles = [folded(one.title) for one in lessons]
            numbers = coded(tuple(_NUMBER.findall(title)) for title in titles)
            return coded(folded(one.content) for one in lessons), numbers, letter_counts(titles)

        contents, numbers, letters = texts(ctx.lessons)

        def test(lessons: list[Lesson], cosines: np.ndarray) -> np.ndarray:
            my_contents, my_numbers, my_letters = texts(lessons)
            found = my_contents[:, None] == contents
            if self.min_score is not None:
                found |= cosines >= self.min_score - ROUNDED
            if self.title_distance:
                near = my_numbers[:, None] == numbers
                near &= cosines >= self.title_min_score - ROUNDED
                found |= near & may_be_near(my_letters, letters, self.title_distance)
            return found

        return test

    def correction(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> ProposedChange | None:
        """The link from the newer to the older of two records with near lessons that differ; None: not such a pair."""
        if (one.outcome, one.domain) != (other.outcome, other.domain):
            return None
        older, newer = sorted((one, other), key=lambda record: (record.tick, record.created_at, record.id))
        pairs = ((a, b) for a in older.items for b in newer.items if self.near(ctx, a, b))
        # Near by their titles alone, two lessons may be about two things.
        near = ((a, b) for a, b in pairs if self.near_by_meaning(ctx, a, b) or may_correct(a, b))
        what = next(filter(None, (difference(*pair) for pair in near)), None)
        if what is None:
            return None
        return ProposedChange(
            reason=f"{newer.id} {REVISES} {older.id}",
            seen=(older, newer),
            links=(ctx.link(newer, REVISES, older, f"{CORRECTS}{what}"),),
        )

    def duplicate_and_keeper(
        self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord
    ) -> tuple[MemoryRecord, MemoryRecord] | None:
        """(the record to supersede, the record to keep), or None when each holds a lesson that the other does not."""
        if (one.outcome, one.domain) != (other.outcome, other.domain):
            return None
        held, holds = self.holds(ctx, other, one), self.holds(ctx, one, other)
        if held and holds:
            return (other, one) if self.standing(ctx, one) > self.standing(ctx, other) else (one, other)
        return (one, other) if held else (other, one) if holds else None

    def standing(self, ctx: ConsolidationContext, record: MemoryRecord) -> tuple:
        """A sort key, larger for the one of two records with the same lessons to keep."""
        score = ctx.bank.policy.score(record, 1.0, ctx.age_days(record)) if self.keep == "score" else 0.0
        return (round(score, 6), *ctx.rank_key(record))

    def holds(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> bool:
        """Whether `one` has every lesson of `other`."""
        return bool(other.items) and all(any(self.same(ctx, a, b) for b in one.items) for a in other.items)

    def same(self, ctx: ConsolidationContext, one: Lesson, other: Lesson) -> bool:
        """Whether two lessons are the same; cheap checks first."""
        alike = folded(one.content) == folded(other.content) or self.near(ctx, one, other)
        return alike and difference(one, other) is None

    def near(self, ctx: ConsolidationContext, one: Lesson, other: Lesson) -> bool:
        """Whether the titles or the embeddings of two lessons are near enough for them to be the same."""
        if self.near_by_meaning(ctx, one, other):
            return True
        by_title = self.title_distance > 0 and ctx.cosine(one.text, other.text) >= self.title_min_score
        return by_title and titles_near(one.title, other.title, self.title_distance)

    def near_by_meaning(self, ctx: ConsolidationContext, one: Lesson, other: Lesson) -> bool:
        return self.min_score is not None and ctx.cosine(one.text, other.text) >= self.min_score

    def propose(self, ctx: ConsolidationContext, duplicate: MemoryRecord, keeper: MemoryRecord) -> ProposedChange:
        return ProposedChange(
            reason=f"{duplicate.id} duplicate_of {keeper.id}",
            seen=(duplicate, keeper),
            updates={duplicate.id: {"status": "superseded"}},
            links=(ctx.link(duplicate, "duplicate_of", keeper),),
        )


def _last_keeper(keeper: MemoryRecord, found: dict[str, tuple[MemoryRecord, MemoryRecord]]) -> MemoryRecord:
    while keeper.id in found:  # a keeper that later became a duplicate itself
        keeper = found[keeper.id][1]
    return keeper
