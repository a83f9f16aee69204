"""Input (ConsolidationContext) and output (ProposedChange) of a consolidation policy.

Policies only propose changes; the consolidator writes them.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.control_tokens import escape
from core.errors import InfraError, OverBudget, UserError
from core.memory.consolidation.confidence import Confidence
from core.memory.moment import Moment
from core.memory.ports import OpenBank
from core.models.base import Reply, Role
from core.seeding import derive_seed
from core.types import Lesson, MemoryRecord, Usage
from prompts.registry import PROJECT

if TYPE_CHECKING:
    import numpy as np


log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
MAX_CHARS = 2_000  # of each title, description and content that a model is shown
MOST_COMPARED = 20_000  # of the newest active records a new one is compared with
ROUNDED = 1e-5  # more than a cosine differs by when it is rounded, or computed with others
BLOCK = 64  # records whose lessons are compared at once
KEPT = 2**24  # max. numbers of the cached vectors (64 MB): 43 690 vectors of 384 dimensions
Link = tuple[str, str, str, str]  # source id, relation, target id, note
Test = Callable[[list[Lesson], "np.ndarray"], "np.ndarray"]  # see ConsolidationContext.near


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """One change of the bank, made as a whole or not at all.

    seen      the records that the proposal is based on; it is dropped if one of them has changed meanwhile
    add       a record to add
    updates   {id: {field: value}} to set
    links     links to add
    erase     ids of records to delete for good
    """

    reason: str
    seen: tuple[MemoryRecord, ...]
    add: MemoryRecord | None = None
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    erase: tuple[str, ...] = ()

    def still_holds(self, get: Callable[[str], MemoryRecord | None]) -> bool:
        """Whether the records in `seen` are unchanged and the one to add is not stored yet (it is after an unmerge).

        get   the bank's record with an id
        """
        if self.add is not None and get(self.add.id) is not None:
            return False
        return all((now := get(seen.id)) is not None and _unchanged(seen, now) for seen in self.seen)


def _unchanged(seen: MemoryRecord, now: MemoryRecord) -> bool:
    """Whether a record is unchanged since it was seen. A use, and the change of confidence by it, does not count."""
    state = attrgetter("status", "items", "n_helpful", "n_harmful")
    return state(seen) == state(now) and (seen.confidence == now.confidence or seen.last_used != now.last_used)


class ConsolidationPolicy(Protocol):
    """Deduplicate, Merge, Contradict, Prune, or one of your own.

    on_add   used as `deduplicate`: whether it also runs on each record as soon as it is added
    """

    name: str
    on_add: bool = False

    @abstractmethod
    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """The changes to make. Only reads the bank, which is not locked meanwhile; may call a model."""
        ...


class Settings(Protocol):
    """The settings of the Consolidator that a policy may read (described there)."""

    candidates: int
    ticks_per_day: float
    confidence: Confidence | None
    role: Role | None
    seed: int
    vectors: dict[str, Any]


@dataclass(kw_only=True)
class ConsolidationContext:
    """The bank and the settings for one call of a policy, with helpers to compare records and to call the model.

    fresh      ids of the records added since the last round, oldest first, and of those added by this round
    usage      cost of the model calls made so far
    moment     current time on the bank's clock
    """

    bank: OpenBank
    settings: Settings
    fresh: tuple[str, ...]
    usage: Usage = field(default_factory=Usage)
    moment: Moment = field(init=False)

    def __post_init__(self) -> None:
        self.moment = self.bank.moment()

    @property
    def confidence(self) -> Confidence:
        """The rule for confidence; the default one if the bank keeps no confidence."""
        return self.settings.confidence or Confidence()

    @cached_property
    def active(self) -> list[MemoryRecord]:
        """The active records, oldest first."""
        return self.bank.records(self.bank.namespace, status="active")

    @cached_property
    def _compared(self) -> list[MemoryRecord]:
        """The active records that fresh ones are compared with, oldest first."""
        return [record for record in self.active if record.items][-MOST_COMPARED:]

    @cached_property
    def lessons(self) -> list[Lesson]:
        """The lessons of the active records that fresh ones are compared with."""
        return _lessons(self._compared)

    def fresh_records(self) -> list[MemoryRecord]:
        """The fresh records that are still active, oldest first."""
        known = {record.id: record for record in self.active}
        return [known[id] for id in self.fresh if id in known]

    def near(self, may_be: Test | None = None) -> dict[str, list[MemoryRecord]]:
        """{id of a fresh record: the active ones whose lessons are near to its own}, oldest first.

        At most the nearest `candidates`, by the best cosine of two of their lessons.

        may_be   (lessons of some fresh records, their cosines with `lessons`, float32 (n, m)) -> bool (n, m): the pairs
                 that count; None: all
        """
        import numpy as np

        fresh, known = self.fresh_records(), self._compared
        found: dict[str, list[MemoryRecord]] = {record.id: [] for record in fresh}
        asked, vectors = [record for record in fresh if record.items], self._vectors_read(self.lessons)
        owners = [place for place, record in enumerate(known) for _ in record.items]  # of each lesson its record
        most = (self.settings.candidates + 1) * max((len(record.items) for record in known), default=0)
        for start in range(0, len(asked), BLOCK):
            block = asked[start : start + BLOCK]
            lessons = _lessons(block)
            cosines = self._vectors_read(lessons) @ vectors.T
            if may_be is not None:
                cosines = np.where(may_be(lessons, cosines), cosines, -np.inf)
            ends = accumulate(len(record.items) for record in block)
            for record, end in zip(block, ends, strict=True):
                places = _highest(cosines[end - len(record.items) : end].max(axis=0), most).tolist()
                others = [known[owner] for owner in dict.fromkeys(owners[place] for place in places)]
                nearest = [other for other in others if other.id != record.id][: self.settings.candidates]
                found[record.id] = sorted(nearest, key=lambda other: (other.tick, other.id))
        return found

    def _vectors_read(self, lessons: Sequence[Lesson]) -> np.ndarray:
        """The unit vectors of the lessons, float32 (n, d); of one that the embedder does not read zeros."""
        import numpy as np

        texts = [lesson.text for lesson in lessons]
        read = [self.bank.embedder.reads(text) for text in texts]
        if all(read):
            return self.vectors(texts)
        vectors = np.zeros((len(texts), self.bank.dim() or 0), np.float32)  # 0: of a bank without records
        if any(read):
            vectors[read] = self.vectors([text for text, is_read in zip(texts, read) if is_read])
        return vectors

    @cached_property
    def _nearest(self) -> dict[str, list[MemoryRecord]]:
        return self.near()

    def similar(self, record: MemoryRecord, least: float) -> list[MemoryRecord]:
        """The records near to a fresh one with a similarity of at least `least`, most similar first."""
        scored = [(self.similarity(record, other), other) for other in self._nearest[record.id]]
        return [other for score, other in sorted(scored, key=lambda pair: -pair[0]) if score >= least]

    def similarity(self, one: MemoryRecord, other: MemoryRecord) -> float:
        """Cosine of two records' lesson texts, without the queries: similar tasks may teach different lessons."""
        return self.cosine(one.text, other.text)

    def link(self, one: MemoryRecord, relation: str, other: MemoryRecord, why: str = "") -> Link:
        """A link whose note ends in its weight, the similarity of the two (`weight_of`)."""
        weight = f"cosine {self.similarity(one, other):.3f}"
        return (one.id, relation, other.id, f"{why}, {weight}" if why else weight)

    def cosine(self, one: str, other: str) -> float:
        """Cosine of two texts under the bank's embedder, rounded to 6 digits; 0 if it does not read one of them."""
        if not (self.bank.embedder.reads(one) and self.bank.embedder.reads(other)):
            return 0.0
        return round(float(self.vector(one) @ self.vector(other)), 6)

    def vector(self, text: str) -> np.ndarray:
        """A text's unit vector, float32 (d,), cached."""
        known = self.settings.vectors.get(text)
        return self.vectors([text])[0] if known is None else known

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """The texts' unit vectors, float32 (n, d); those that are not known yet are embedded in one call."""
        import numpy as np

        known = self.settings.vectors
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            found = self.bank.embedder.embed(new)
            if (len(known) + len(new)) * found.shape[1] > KEPT:
                asked = {text: known[text] for text in texts if text in known}
                known.clear()
                known.update(asked)
            known.update(zip(new, found, strict=True))
        return np.concatenate([known[text] for text in texts]).reshape(len(texts), -1)  # stack takes twice as long

    def present_confidence(self, record: MemoryRecord) -> float:
        """A record's confidence, decayed to the current time."""
        return self.confidence.now(record, self.idle_days(record))

    def age_days(self, record: MemoryRecord) -> float:
        """Days since the record was added, on the bank's clock."""
        return self.moment.age_days(record, self.settings.ticks_per_day)

    def idle_days(self, record: MemoryRecord) -> float:
        """Days since the record was last used, or added if it was never used, on the bank's clock."""
        return self.moment.idle_days(record, self.settings.ticks_per_day)

    def rank_key(self, record: MemoryRecord) -> tuple:
        """A sort key, larger for the better record: by confidence, marks, uses in successes, trust, then age.

        The confidence is the stored one: with the decayed one, each new duplicate would replace the older record with
        its history. Ties are broken by id, so that every run decides alike.
        """
        marks = record.n_helpful - record.n_harmful
        stored = round(self.confidence.of(record), 6)
        born = _descending(record.created_at) if self.moment.tick is None else ()  # a server's records share a tick
        return (stored, marks, record.n_used_success, record.trust, -record.tick, born, _descending(record.id))

    def ask(self, prompt: str, schema: dict, *names: object, temperature: float | None = None) -> Reply:
        """Call the extractor's model, with a seed derived from `names`. UserError when there is no model.

        temperature   None: the role's
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
        """Render a prompt, in its version for structured replies if the model supports a schema."""
        role = self.settings.role
        structured = role is not None and role.llm.supports_schema
        prompts = PROJECT if role is None else role.prompts
        return prompts.render(name, None, **values, structured=structured)


def _lessons(records: Sequence[MemoryRecord]) -> list[Lesson]:
    return [lesson for record in records for lesson in record.items]


def _highest(scores: np.ndarray, most: int) -> np.ndarray:
    """The places of the `most` highest scores, and of those that equal the last one, highest first; none of -inf."""
    import numpy as np

    places = np.flatnonzero(scores > -np.inf)
    if len(places) > most:
        least = np.partition(scores[places], -most)[-most]
        places = places[scores[places] >= least - ROUNDED]
    return places[np.argsort(-np.round(scores[places], 6), kind="stable")]


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)


def none_if_broken(ask: Callable[[], Answer]) -> Answer | None:
    """ask(); None, with a logged warning, if the model failed: the records stay as they are and the round goes on."""
    try:
        return ask()
    except OverBudget:
        raise  # ends the run; the resumed run repeats this round
    except InfraError as error:
        log.warning(f"consolidation: the model broke, so some records stay as they are: {error}")
        return None


def lesson_for_prompt(lesson: Lesson) -> Lesson:
    """A lesson that is safe in a prompt: texts cut to MAX_CHARS, unable to close their block or to end the turn."""
    texts = {name: escape(getattr(lesson, name), "lessons")[:MAX_CHARS] for name in ("title", "description", "content")}
    return replace(lesson, **texts)
