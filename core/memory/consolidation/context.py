"""What a consolidation policy sees (ConsolidationContext) and what it wants changed (ProposedChange).

Policies only propose; the consolidator writes.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from core.errors import UserError
from core.memory.clock import SECONDS_A_DAY, ages
from core.memory.consolidation.confidence import Confidence
from core.models.base import Reply, Role
from core.seeding import derive_seed
from core.types import Lesson, MemoryRecord, Scored, Usage
from prompts import registry

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

Link = tuple[str, str, str, str]  # source id, relation, target id, note


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """One change of the bank, all or nothing. It is left undone when a record in `seen` is no longer as it was."""

    reason: str
    seen: tuple[MemoryRecord, ...]
    add: MemoryRecord | None = None
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)  # id -> fields
    links: tuple[Link, ...] = ()


class ConsolidationPolicy(Protocol):
    """Deduplicate, Merge, Contradict, Prune, or one of your own."""

    name: str

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """What to change. Reads only; a model may be asked, which is why nothing is locked meanwhile."""
        ...


@dataclass(kw_only=True)
class ConsolidationContext:
    """What a policy may look at, and the model that it may ask.

    fresh        ids of the records that came since the last round, oldest first, and of those this round has made
    candidates   how many neighbours by query and by words are compared with a fresh record
    ticks_per_day   how many tasks of the stream count as a day, where the bank's clock is the stream
    """

    bank: MemoryBank
    fresh: tuple[str, ...]
    confidence: Confidence
    role: Role | None = None
    seed: int = 0
    candidates: int = 50
    ticks_per_day: float = 1.0
    usage: Usage = field(default_factory=Usage)
    _vectors: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def fresh_records(self) -> list[MemoryRecord]:
        """The fresh records that are (still) active, oldest first."""
        records = [self.bank.get(id) for id in self.fresh]
        return [record for record in records if record is not None and record.status == "active"]

    def near(self, record: MemoryRecord) -> list[MemoryRecord]:
        """The active records that may be like this one, oldest first: the nearest by query and by words (BM25).

        Only these are ever compared: a round over n fresh records makes 2 n searches and never looks at all pairs.
        """
        hits = self.bank.neighbours(record.id, self.candidates, -1.0)
        hits = [*hits, *self.bank.lexical(record.text, self.candidates)]
        others = {hit.record.id: hit.record for hit in hits if hit.record.id != record.id}
        return sorted(others.values(), key=lambda other: (other.tick, other.id))

    def alike(self, record: MemoryRecord, least: float, most: float = 1.0) -> list[Scored]:
        """Near records whose lessons read like the record's, best first: least <= cosine <= most.

        Compared are the lessons' texts, not the queries that the bank is keyed by: like tasks may teach unlike lessons.
        """
        scored = [Scored(record=other, score=self.similarity(record, other)) for other in self.near(record)]
        scored = [hit for hit in scored if least <= hit.score <= most]
        return sorted(scored, key=lambda hit: -hit.score)

    def similarity(self, one: MemoryRecord, other: MemoryRecord) -> float:
        """Cosine of the two records' lessons, rounded to 6 digits."""
        return self.cosine(one.text, other.text)

    def item_similarity(self, one: Lesson, other: Lesson) -> float:
        """Cosine of two single memory items."""
        return self.cosine(one.text, other.text)

    def cosine(self, one: str, other: str) -> float:
        """Cosine of two texts under the bank's embedder, rounded to 6 digits."""
        return round(float(self.vector(one) @ self.vector(other)), 6)

    def vector(self, text: str) -> Any:
        """A text's unit vector, float32 (d,); a text is embedded once a round."""
        if text not in self._vectors:
            self._vectors[text] = self.bank.embedder.embed([text])[0]
        return self._vectors[text]

    def effective_confidence(self, record: MemoryRecord) -> float:
        """A record's confidence at this moment."""
        return self.confidence.now(record, self.idle_days(record))

    def age_days(self, record: MemoryRecord) -> float:
        """Days of the bank's clock since the record was made."""
        return ages(self.bank, self.ticks_per_day)(record)

    def idle_days(self, record: MemoryRecord) -> float:
        """Days of the bank's clock since the record was last used, or made."""
        if record.last_used is None:
            return self.age_days(record)
        a_day = self.ticks_per_day if self.bank.clock == "stream" else SECONDS_A_DAY
        return min(self.age_days(record), max(self.clock() - record.last_used, 0) / a_day)

    def clock(self) -> int:
        """The present by the bank's clock: the stream's tick, or seconds since 1970. What `last_used` is set to."""
        return self.bank.tick() if self.bank.clock == "stream" else int(time.time())

    def rank_key(self, record: MemoryRecord) -> tuple:
        """A key that is larger for the record to keep: believed in, marked helpful, used in successes, trusted, older.

        Confidence counts as it stood at the last use: were it the faded one, each new duplicate would drive out the
        record that has the history. The id makes every run agree on equals.
        """
        helped = record.n_helpful - record.n_harmful
        stored = round(self.confidence.of(record), 6)
        return (stored, helped, record.n_used_success, record.trust, -record.tick, _reversed(record.id))

    def ask(self, prompt: str, schema: dict, *names: object) -> Reply:
        """One call of the extractor's model, its seed a hash of the names. Raises UserError when there is no model."""
        if self.role is None:
            raise UserError("memory.consolidate asks a model here and was given none: choose voting, or null.")
        seed = derive_seed(self.seed, *names)
        reply = self.role.chat([{"role": "user", "content": prompt}], sample=0, seed=seed, schema=schema)
        self.usage = self.usage + reply.usage
        return reply

    def render(self, name: str, **values: object) -> str:
        """A prompt in the form that the model can be held to."""
        structured = self.role is not None and self.role.llm.supports_schema
        return registry.render(name, **values, structured=structured)


def shown(item: Lesson, max_chars: int) -> Lesson:
    """An item as it may stand in a prompt: capped, and unable to close its block or to end the turn."""
    texts = {name: _harmless(getattr(item, name))[:max_chars] for name in ("title", "description", "content")}
    return replace(item, **texts)


def _harmless(text: str) -> str:
    text = re.sub(r"<(?=/?\s*lessons)", "&lt;", text, flags=re.IGNORECASE)
    return text.replace("<|", "< |").replace("\x00", "")


def _reversed(id: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in id)
