"""Contradictions: records that cannot both be right are linked; the weaker one is lowered or quarantined."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from core.errors import UserError, check_choice, check_numbers
from core.learning.structured import object_schema, parse_confidence, parse_json, text_schema
from core.memory.consolidation.context import (
    ConsolidationContext,
    ConsolidationPolicy,
    ProposedChange,
    lesson_for_prompt,
    none_if_broken,
)
from core.memory.ports import REVISES
from core.models.embedding import sentence_transformers
from core.reply_marks import plain_reply
from core.types import MemoryRecord
from prompts import registry

# Checkers of the relation between two records: a chat model, or a classifier for natural language inference (NLI).

RELATIONS = ("contradicts", "entails", "refines")
FIELDS = {"thoughts": text_schema(300), "relation": {"type": "string", "enum": [*RELATIONS, "unrelated"]}}
SCHEMA = object_schema(FIELDS)
CONFIDENCE_SCHEMA = object_schema(FIELDS | {"confidence": {"type": "number", "minimum": 0, "maximum": 1}})
# Excludes a reply that repeats the question ("contradicts, entails or unrelated").
_RELATION = re.compile(
    r"^[ \t*_#>]*relation[ \t*_]*:[\s*_\"'`]*([a-z]+)\b"
    r"(?![\"'`*]*[ \t]*(?:or\b|[/|,])[ \t\"'`*]*(?:or[ \t]+)?(?:contradicts|entails|refines|unrelated)\b)",
    re.IGNORECASE | re.MULTILINE,
)


class Checker(Protocol):
    """Determines the relation of one record to another."""

    name: str

    def check(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> tuple[str | None, str]:
        """(contradicts | entails | refines | None, a note for the link). Raises InfraError."""
        ...


@dataclass(kw_only=True)
class LLMChecker:
    """Asks the extractor's model. An unreadable reply counts as unrelated.

    min_score   the model is also asked how probable the relation is, and a less probable one counts as unrelated, as
                does one without a readable probability; None: it is not asked
    """

    min_score: float | None = None
    name: str = field(default="llm", init=False)

    def __post_init__(self) -> None:
        check_numbers(self, "contradict.checker", "min_score", least=0, most=1)

    def check(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> tuple[str | None, str]:
        asks = self.min_score is not None
        prompt = ctx.render(
            registry.RELATE_LESSONS_CONFIDENCE_PROMPT if asks else registry.RELATE_LESSONS_PROMPT,
            first=self._text(one),
            first_outcome=one.outcome,
            second=self._text(other),
            second_outcome=other.outcome,
        )
        reply = ctx.ask(prompt, CONFIDENCE_SCHEMA if asks else SCHEMA, "relate", one.id, other.id)
        relation = parse_relation(reply.text)
        if self.min_score is None or relation is None:
            return relation, self.name
        sure = parse_confidence(reply.text, "relation")
        return (None, self.name) if sure is None or sure < self.min_score else (relation, f"{self.name} {sure:.3f}")

    def _text(self, record: MemoryRecord) -> str:
        return "\n".join(lesson_for_prompt(lesson).text for lesson in record.items)


def parse_relation(text: str) -> str | None:
    """The last relation that a reply states; None for "unrelated" and for an unreadable reply."""
    answer = parse_json(text, "relation")
    words = [str(answer["relation"])] if answer else _RELATION.findall(plain_reply(text))
    word = words[-1].lower() if words else ""
    return word if word in RELATIONS else None


@dataclass(kw_only=True)
class NLIChecker:
    """A cross-encoder trained on natural language inference, through sentence-transformers; calls no chat model.

    Inference has a direction: two records contradict if either order does; A entails B if A -> B does.

    model       a name on the Hugging Face hub, or a folder
    min_score   least probability of a relation
    """

    model: str = "cross-encoder/nli-deberta-v3-small"
    min_score: float = 0.7
    name: str = field(default="nli", init=False)
    _encoder: Any = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self, "contradict.checker", "min_score", least=0, most=1)

    def check(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> tuple[str | None, str]:
        there, back = self.probabilities([(one, other), (other, one)])
        contradiction = max(there.get("contradiction", 0.0), back.get("contradiction", 0.0))
        if contradiction >= self.min_score:
            return "contradicts", f"nli {contradiction:.3f}"
        entailment = there.get("entailment", 0.0)
        return ("entails", f"nli {entailment:.3f}") if entailment >= self.min_score else (None, "nli")

    def probabilities(self, pairs: list[tuple[MemoryRecord, MemoryRecord]]) -> list[dict[str, float]]:
        """{label in lower case: probability} for each pair."""
        import numpy as np

        with self._lock:
            encoder = self._encoder = self._encoder or self._load()
            scores = encoder.predict([(a.text, b.text) for a, b in pairs], show_progress_bar=False)
        labels = [str(encoder.config.id2label[place]).lower() for place in range(len(encoder.config.id2label))]
        weights = np.exp(np.asarray(scores, dtype=np.float64) - np.max(scores, axis=1, keepdims=True))
        rows = weights / weights.sum(axis=1, keepdims=True)
        return [dict(zip(labels, map(float, row), strict=True)) for row in rows]

    def _load(self) -> Any:
        library = sentence_transformers("contradict.checker=nli")
        try:
            encoder = library.CrossEncoder(self.model, device="cpu")
            labels = {str(label).lower() for label in encoder.config.id2label.values()}
        except (OSError, ValueError) as error:
            raise UserError(f"contradict.checker.model={self.model} cannot be loaded: {error}.") from error
        if "contradiction" not in labels:
            raise UserError(f"contradict.checker.model={self.model} knows {sorted(labels)}, not contradiction.")
        return encoder


FACTOR = 0.5  # by which the confidence of the weaker of two contradicting records is multiplied
N_MERITS = 4  # confidence, marks, uses in successes, trust: the first of `rank_key`
Related = tuple[MemoryRecord, MemoryRecord, str, str]  # (one, other, relation, why)


@dataclass(kw_only=True)
class Contradict(ConsolidationPolicy):
    """Checks the relation of each fresh record to similar records, and links them. Deletes nothing.

    Source: agentic-flow's ReasoningBank, which checks lessons with a cosine above 0.60. Below `low` two lessons are
    about different things, above `high` they say the same, so checking would be a waste; unless deduplication found
    that their words differ (`revises`). Of such a pair a record that the other one entails is superseded.

    low, high   a pair is checked if the cosine of its lessons' texts is between these
    most        max. number of pairs checked per fresh record, nearest first
    action      lower: halve the confidence of the weaker of two contradicting records; quarantine: quarantine it too
    many        if a record contradicts this many often-used ones, only that record is penalised (`against_many`); None:
                no such rule
    often_used  number of uses from which a record counts as often used
    against_many   lower: only reduce its confidence; quarantine: quarantine it too, until somebody reviews it
    checker     LLMChecker, NLIChecker, or one of your own
    """

    low: float = 0.6
    high: float = 0.95
    most: int = 5
    action: str = "lower"
    many: int | None = None
    often_used: int = 5
    against_many: str = "quarantine"
    checker: Checker = field(default_factory=LLMChecker)
    name: str = field(default="contradict", init=False)

    def __post_init__(self) -> None:
        check_choice(self, "contradict", "action", ("lower", "quarantine"))
        check_choice(self, "contradict", "against_many", ("lower", "quarantine"))
        check_numbers(self, "contradict", "many", "often_used", least=1, whole=True)
        if self.many is not None and self.many > self.most:
            raise UserError(
                f"contradict.many={self.many}: at most contradict.most={self.most} pairs of a record are checked."
            )
        check_numbers(self, "contradict", "high", least=-1, most=1)
        check_numbers(self, "contradict", "low", least=-1, most=self.high)

    def plan(self, ctx: ConsolidationContext) -> list[ProposedChange]:
        """One change per related pair, and per overruled record. Pairs that are linked already are not checked."""
        asked: set[frozenset[str]] = set()
        revised: set[frozenset[str]] = set()
        related: list[Related] = []
        for record in ctx.fresh_records():
            links = [(frozenset((source, target)), kind) for source, kind, target, _ in ctx.bank.links(record.id)]
            linked = {pair for pair, kind in links if kind != REVISES}
            revised |= {pair for pair, kind in links if kind == REVISES}
            others = [
                other
                for other in ctx.similar(record, self.low)
                if (pair := frozenset((record.id, other.id))) not in linked | asked
                and (pair in revised or ctx.similarity(record, other) <= self.high)
            ]
            for other in others[: self.most]:
                asked.add(frozenset((record.id, other.id)))
                relation, why = none_if_broken(partial(self.checker.check, ctx, record, other)) or (None, "")
                if relation is not None:
                    related.append((record, other, relation, why))
        overruled = self.overruled(related)
        lowered: dict[str, float] = {}  # confidence of the records that this plan has lowered so far
        changes = [self.propose(ctx, pair, lowered, overruled, revised) for pair in related]
        return changes + [self.set_aside(ctx, *each) for each in overruled.values()]

    def overruled(self, related: list[Related]) -> dict[str, tuple[MemoryRecord, list[MemoryRecord]]]:
        """{id: (record, often-used ones that it contradicts)}, if these are `many`. Source: founding outline, 6.2."""
        against: dict[str, tuple[MemoryRecord, list[MemoryRecord]]] = {}
        if self.many is None:
            return against
        for one, other, relation, _ in related:
            for new, old in ((one, other), (other, one)):
                if relation == "contradicts" and new.n_used < self.often_used <= old.n_used:
                    against.setdefault(new.id, (new, []))[1].append(old)
        return {id: (new, old) for id, (new, old) in against.items() if len(old) >= self.many}

    def propose(
        self,
        ctx: ConsolidationContext,
        pair: Related,
        lowered: dict[str, float],
        overruled: Collection[str],
        revised: Collection[frozenset[str]],
    ) -> ProposedChange:
        """The change for a related pair: a link and, for a contradiction, the penalty of the weaker record."""
        one, other, relation, why = pair
        updates: dict[str, dict[str, Any]] = {}
        if relation == "contradicts" and not {one.id, other.id} & set(overruled):
            weaker = min((one, other), key=partial(_standing, ctx))
            before = lowered.get(weaker.id, ctx.confidence.of(weaker))
            lowered[weaker.id] = round(before * FACTOR, 9)
            updates = {weaker.id: {"confidence": lowered[weaker.id]}}
            if self.action == "quarantine":
                updates[weaker.id]["status"] = "quarantined"
        links = [ctx.link(one, relation, other, why)]
        if relation == "entails" and frozenset((one.id, other.id)) in revised:
            updates = {other.id: {"status": "superseded"}}
            links.append(ctx.link(other, "duplicate_of", one))
        return ProposedChange(
            reason=f"{one.id} {relation} {other.id}", seen=(one, other), updates=updates, links=tuple(links)
        )

    def set_aside(self, ctx: ConsolidationContext, new: MemoryRecord, old: list[MemoryRecord]) -> ProposedChange:
        """The change for a record that contradicts many often-used ones: `against_many`."""
        fields = {"confidence": round(ctx.confidence.of(new) * FACTOR, 9)}
        if self.against_many == "quarantine":
            why = f"contradicts {len(old)} often-used lessons"
            fields |= {"status": "quarantined", "provenance": new.provenance | {"quarantine": [why]}}
        reason = f"{new.id} contradicts often-used {', '.join(each.id for each in old)}"
        return ProposedChange(reason=reason, seen=(new, *old), updates={new.id: fields})


def _standing(ctx: ConsolidationContext, record: MemoryRecord) -> tuple:
    """A sort key, larger for the one of two contradicting records to keep: by merit; of equals the newer."""
    return (*ctx.rank_key(record)[:N_MERITS], record.tick, record.created_at, record.id)
