"""What a consolidation policy sees (ConsolidationContext) and what it wants changed (ProposedChange).

Policies only propose; the consolidator writes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.errors import InfraError, OverBudget, UserError
from core.memory.consolidation.confidence import Confidence
from core.memory.moment import Moment
from core.memory.ports import Bank
from core.models.base import Reply, Role
from core.seeding import derive_seed
from core.types import Lesson, MemoryRecord, Usage
from prompts.registry import PROJECT

if TYPE_CHECKING:
    import numpy as np


log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
KEPT = 4_096  # vectors of texts in memory
Link = tuple[str, str, str, str]  # source id, relation, target id, note


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """One change of the bank, made as a whole or not at all.

    seen      the records that it rests on; it is not made where one of them has changed meanwhile
    add       a record to add
    updates   id -> fields to set
    erase     ids of records to delete for good
    """

    reason: str
    seen: tuple[MemoryRecord, ...]
    add: MemoryRecord | None = None
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    erase: tuple[str, ...] = ()

    def still_holds(self, bank: Bank) -> bool:
        """Whether every record is as the plan saw it, and the one to add is not there (as after an undone merge)."""
        if self.add is not None and bank.get(self.add.id) is not None:
            return False
        return all((now := bank.get(seen.id)) is not None and _unchanged(seen, now) for seen in self.seen)


def _unchanged(seen: MemoryRecord, now: MemoryRecord) -> bool:
    """Whether a record still is what a plan saw. A use meanwhile, and what it does to the confidence, is no change."""
    state = attrgetter("status", "items", "n_helpful", "n_harmful")
    return state(seen) == state(now) and (seen.confidence == now.confidence or seen.last_used != now.last_used)


class ConsolidationPolicy(Protocol):
    """Deduplicate, Merge, Contradict, Prune, or one of your own.

    on_add   where it stands for `deduplicate`: whether it looks at each record as soon as it is learned
    """

    name: str
    on_add: bool = False

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """What to change. Only reads the bank, which is not locked meanwhile; may ask a model."""
        ...


class Settings(Protocol):
    """What a policy may know of the consolidation that it is part of (consolidator.py says what each is)."""

    candidates: int
    ticks_per_day: float
    confidence: Confidence | None
    role: Role | None
    seed: int
    vectors: dict[str, Any]


@dataclass(kw_only=True)
class ConsolidationContext:
    """What a policy may look at, and the model that it may ask.

    fresh      ids of the records that came since the last round, oldest first, and of those that this round made
    usage      of the model calls made so far
    moment     the present on the bank's clock
    """

    bank: Bank
    settings: Settings
    fresh: tuple[str, ...]
    usage: Usage = field(default_factory=Usage)
    moment: Moment = field(init=False)

    def __post_init__(self) -> None:
        self.moment = self.bank.moment()

    @property
    def confidence(self) -> Confidence:
        """The arithmetic of a record's confidence; the usual one where the bank keeps none."""
        return self.settings.confidence or Confidence()

    def fresh_records(self) -> list[MemoryRecord]:
        """The fresh records that are still active, oldest first."""
        records = [self.bank.get(id) for id in self.fresh]
        return [record for record in records if record is not None and record.status == "active"]

    def near(self, record: MemoryRecord) -> list[MemoryRecord]:
        """The active records that may resemble this one, oldest first: the nearest by query and by words (BM25).

        Only these are compared with it: a round over n fresh records makes 2 n searches and never looks at all pairs.
        """
        most = self.settings.candidates
        hits = [*self.bank.neighbours(record.id, most), *self.bank.lexical(record.text, most)]
        others = {hit.record.id: hit.record for hit in hits if hit.record.id != record.id}
        return sorted(others.values(), key=lambda other: (other.tick, other.id))

    def similar(self, record: MemoryRecord, least: float, most: float = 1.0) -> list[MemoryRecord]:
        """The near records with a similarity from `least` to `most`, most similar first."""
        scored = [(self.similarity(record, other), other) for other in self.near(record)]
        scored = [(score, other) for score, other in scored if least <= score <= most]
        return [other for _, other in sorted(scored, key=lambda pair: -pair[0])]

    def similarity(self, one: MemoryRecord, other: MemoryRecord) -> float:
        """Cosine of two records' lessons as texts. Their queries do not count: like tasks may teach unlike lessons."""
        return self.cosine(one.text, other.text)

    def link(self, one: MemoryRecord, relation: str, other: MemoryRecord, why: str = "") -> Link:
        """A link whose note ends in its weight, the similarity of the two (`weight_of`)."""
        weight = f"cosine {self.similarity(one, other):.3f}"
        return (one.id, relation, other.id, f"{why}, {weight}" if why else weight)

    def cosine(self, one: str, other: str) -> float:
        """Cosine of two texts under the bank's embedder, rounded to 6 digits."""
        return round(float(self.vector(one) @ self.vector(other)), 6)

    def vector(self, text: str) -> np.ndarray:
        """A text's unit vector, float32 (d,); kept in memory, as the same ones are compared again and again."""
        known = self.settings.vectors
        if (vector := known.get(text)) is None:
            vector = self.bank.embedder.embed([text])[0]
            if len(known) >= KEPT:
                known.clear()
            known[text] = vector
        return vector

    def present_confidence(self, record: MemoryRecord) -> float:
        """A record's confidence, faded to the present."""
        return self.confidence.now(record, self.idle_days(record))

    def age_days(self, record: MemoryRecord) -> float:
        """Days of the bank's clock since the record was made."""
        return self.moment.age_days(record, self.settings.ticks_per_day)

    def idle_days(self, record: MemoryRecord) -> float:
        """Days of the bank's clock since the record was last used, or since it was made if it never was."""
        return self.moment.idle_days(record, self.settings.ticks_per_day)

    def rank_key(self, record: MemoryRecord) -> tuple:
        """A sort key, larger for the better record: by confidence, marks, uses in successes, trust, then age.

        The confidence is the stored one: with the faded one, each new duplicate would replace the record that has the
        history. The age is that of the bank's clock. The id decides between equals, so that every run decides alike.
        """
        marks = record.n_helpful - record.n_harmful
        stored = round(self.confidence.of(record), 6)
        born = _descending(record.created_at) if self.moment.tick is None else ()  # a server's records share a tick
        return (stored, marks, record.n_used_success, record.trust, -record.tick, born, _descending(record.id))

    def ask(self, prompt: str, schema: dict, *names: object, temperature: float | None = None) -> Reply:
        """One call of the extractor's model, with a seed derived from the names. UserError when there is no model.

        temperature   None: the role's own
        """
        role = self.settings.role
        if role is None:
            raise UserError("memory.consolidate asks a model here and was given none: choose voting, or null.")
        role = role if temperature is None else replace(role, temperature=temperature)
        seed = derive_seed(self.settings.seed, *names)
        reply = role.chat([{"role": "user", "content": prompt}], sample=0, seed=seed, schema=schema)
        self.usage = self.usage + reply.usage
        return reply

    def render(self, name: str, **values: object) -> str:
        """A prompt, in the form for structured replies where the model can be held to a schema."""
        role = self.settings.role
        structured = role is not None and role.llm.supports_schema
        prompts = PROJECT if role is None else role.prompts
        return prompts.render(name, **values, structured=structured)


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)


def none_if_broken(ask: Callable[[], Answer]) -> Answer | None:
    """ask(), or None when the model broke: the log says so, the records stay as they are, and the round goes on."""
    try:
        return ask()
    except OverBudget:
        raise  # the run ends here, and its next start makes this round again
    except InfraError as error:
        log.warning(f"consolidation: the model broke, so some records stay as they are: {error}")
        return None


def lesson_for_prompt(lesson: Lesson, max_chars: int) -> Lesson:
    """A lesson as it may stand in a prompt: each text capped, and unable to close its block or to end the turn."""
    texts = {name: _escaped(getattr(lesson, name))[:max_chars] for name in ("title", "description", "content")}
    return replace(lesson, **texts)


def _escaped(text: str) -> str:
    text = re.sub(r"<(?=/?\s*lessons)", "&lt;", text, flags=re.IGNORECASE)
    return text.replace("<|", "< |").replace("\x00", "")
