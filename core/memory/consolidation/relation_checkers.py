"""How two records relate to each other: a model is asked, or a classifier for natural language inference decides."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.checks import check_numbers
from core.errors import UserError
from core.learning.schemas import object_schema, text_schema
from core.learning.structured import parse_json
from core.memory.consolidation.context import ConsolidationContext, lesson_for_prompt
from core.models.reply_text import strip_thinking
from core.models.threads import share_cores
from core.types import MemoryRecord
from prompts import registry

RELATIONS = ("contradicts", "entails", "refines")
SCHEMA = object_schema(
    {"thoughts": text_schema(300), "relation": {"type": "string", "enum": [*RELATIONS, "unrelated"]}}
)
# A reply that repeats the question ("contradicts, entails or unrelated") is no answer.
_RELATION = re.compile(
    r"^[ \t*_#>]*relation[ \t*_]*:[\s*_\"'`]*([a-z]+)\b"
    r"(?![\"'`*]*[ \t]*(?:or\b|[/|,])[ \t\"'`*]*(?:or[ \t]+)?(?:contradicts|entails|refines|unrelated)\b)",
    re.IGNORECASE | re.MULTILINE,
)


class Checker(Protocol):
    """Says how one record relates to another."""

    name: str

    def check(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> tuple[str | None, str]:
        """(contradicts | entails | refines | None, a note for the link). Raises InfraError."""
        ...


@dataclass(kw_only=True)
class LLMChecker:
    """The extractor's model is asked. A reply that cannot be read counts as unrelated.

    max_chars   of each title, description and content that the model is shown
    """

    max_chars: int = 2000
    name: str = field(default="llm", init=False)

    def check(self, ctx: ConsolidationContext, one: MemoryRecord, other: MemoryRecord) -> tuple[str | None, str]:
        prompt = ctx.render(
            registry.RELATE_LESSONS_PROMPT,
            first=self._text(one),
            first_outcome=one.outcome,
            second=self._text(other),
            second_outcome=other.outcome,
        )
        reply = ctx.ask(prompt, SCHEMA, "relate", one.id, other.id)
        return parse_relation(reply.text), self.name

    def _text(self, record: MemoryRecord) -> str:
        return "\n".join(lesson_for_prompt(lesson, self.max_chars).text for lesson in record.items)


def parse_relation(text: str) -> str | None:
    """The last relation that a reply states; None for "unrelated" and for a reply that cannot be read."""
    answer = parse_json(text, "relation")
    words = [str(answer["relation"])] if answer else _RELATION.findall(strip_thinking(text))
    word = words[-1].lower() if words else ""
    return word if word in RELATIONS else None


@dataclass(kw_only=True)
class NLIChecker:
    """A cross-encoder trained on natural language inference, through sentence-transformers; no chat model is asked.

    Inference has a direction: two records contradict when either order does; A entails B when A -> B does.

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
        """For each pair the probability of each of the model's labels, in lower case."""
        import numpy as np

        with self._lock:
            encoder = self._encoder = self._encoder or self._load()
            scores = encoder.predict([(a.text, b.text) for a, b in pairs], show_progress_bar=False)
        labels = [str(encoder.config.id2label[place]).lower() for place in range(len(encoder.config.id2label))]
        weights = np.exp(np.asarray(scores, dtype=np.float64) - np.max(scores, axis=1, keepdims=True))
        rows = weights / weights.sum(axis=1, keepdims=True)
        return [dict(zip(labels, map(float, row), strict=True)) for row in rows]

    def _load(self) -> Any:
        share_cores()
        from sentence_transformers import CrossEncoder

        try:
            encoder = CrossEncoder(self.model, device="cpu")
            labels = {str(label).lower() for label in encoder.config.id2label.values()}
        except (OSError, ValueError) as error:
            raise UserError(f"contradict.checker.model={self.model} cannot be loaded: {error}.") from error
        if "contradiction" not in labels:
            raise UserError(f"contradict.checker.model={self.model} knows {sorted(labels)}, not contradiction.")
        return encoder
