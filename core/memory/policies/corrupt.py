"""retrieval=corrupt: the nearest lessons made false, a control for whether an agent uses what lessons say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from core.errors import UserError, check_choice
from core.learning.learner import Extractor
from core.memory.filter import Filter
from core.memory.policies.base import rewritten
from core.memory.policies.cosine import Cosine
from core.memory.ports import CORRUPTER, Bank
from core.models.base import Role
from core.seeding import derive_seed
from core.types import Extraction, Lesson, MemoryRecord, Scored, Task
from prompts.registry import CORRUPT_LESSONS_PROMPT

LENGTHS = (2 / 3, 3 / 2)  # of a lesson that by=model takes, compared with the true one's
PARTS = ("title", "description", "content")
DONORS = 50  # nearest records whose facts may stand in the place of a lesson's own
# What a lesson states literally: a quotation, code, a number of two digits or more, a name within a sentence.
FACTS = {
    "quotation": re.compile(r'"[^"\n]{1,80}"'),
    "code": re.compile(r"`[^`\n]{1,80}`"),
    "number": re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*\d(?!\w)"),
    "name": re.compile(r"(?<=[a-z,;:] )[A-Z]\w+"),
}
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*")
_NEGATED = re.compile(r"\b(?:do not|does not|did not|not|never)\s+|n't\b", re.IGNORECASE)
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|can|could|should|must|will|would|may|has|have|had)\b(?!\s+not)")


@dataclass(kw_only=True)
class Corrupt(Cosine):
    """The records that `cosine` finds, with each lesson made false; form, place and length stay.

    The intervention "corrupted experience" of arXiv 2601.22436. by=model asks a model, as the paper does, whenever a
    record is shown. Where its reply is not as many lessons, each a new one of about the old length (LENGTHS), the rule
    stands in, which is counted (n_fell_back). by=rule costs nothing, and a run repeats exactly:

    1. Every literal fact of a lesson (FACTS) is replaced by one of the same kind from another of the nearest lessons,
       the same one throughout the lesson: drawn by seed, record and fact among those nearest in length.
    2. A lesson of which no fact could be exchanged is negated sentence by sentence: what is told to be done is told not
       to be, and the reverse. English words are looked for; any other sentence gets "Never: " before it.

    What is false by the rule may be true by chance (of an exchanged number), and a model may see through it; a lesson
    of the user's own language is only marked. Tables show the length of what was shown (`lesson_tokens`).
    """

    seed: int = 0
    by: str = "rule"
    role: Role | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "retrieval", "by", ("rule", "model"))
        if self.by == "model" and (self.role is None or self.when not in (None, "task")):
            raise UserError(
                "retrieval.by=model needs a model, llm=NAME, and is asked once a task: retrieval.when=task."
            )

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = super().rank(bank, query, top_k, exclude_task, where)
        near = bank.nearest(query, DONORS, exclude_task, self.within(where), unit="record") if hits else []
        by_rule = [rewritten(hit, self._items(hit.record, near)) for hit in hits]
        if self.by == "rule":
            return by_rule
        task = Task(id=exclude_task or "", query=query)
        return [self._by_model(task, hit.record.items, other) for hit, other in zip(hits, by_rule, strict=True)]

    def ask(self, task: Task, items: tuple[Lesson, ...]) -> Extraction:
        """What the model writes in the place of these lessons. Raises InfraError."""
        assert self.role is not None
        asked = Extractor(role=replace(self.role, name=CORRUPTER), seed=self.seed)
        longest = 2 * max(len(item.content) for item in items)
        return asked.lessons(CORRUPT_LESSONS_PROMPT, CORRUPTER, task, len(items), 0, longest, items=items)

    def _by_model(self, task: Task, items: tuple[Lesson, ...], by_rule: Scored) -> Scored:
        made = self.ask(task, items)
        fits = len(made.lessons) == len(items) and all(map(_stands_for, made.lessons, items))
        found = rewritten(by_rule, made.lessons) if fits else replace(by_rule, fell_back=True)
        return replace(found, usage=made.usage)

    def _items(self, record: MemoryRecord, near: list[Scored]) -> tuple[Lesson, ...]:
        others = [item for hit in near if hit.record.id != record.id for item in hit.record.items]
        own = {fact for item in record.items for _, fact in facts_of(item)}
        donors = {kind: sorted({f for item in others for k, f in facts_of(item) if k == kind} - own) for kind in FACTS}
        exchanged = {}
        for kind, fact in dict.fromkeys(each for item in record.items for each in facts_of(item)):
            if donors[kind]:
                exchanged[fact] = min(donors[kind], key=lambda each, fact=fact: self._place(each, fact, record.id))
        return tuple(_false(item, exchanged) for item in record.items)

    def _place(self, donor: str, fact: str, id: str) -> tuple[int, int]:
        return abs(len(donor) - len(fact)), derive_seed(self.seed, id, fact, donor, "corrupt")


def _stands_for(new: Lesson, old: Lesson) -> bool:
    """Whether a lesson says something else at about the same length."""
    return new.content != old.content and LENGTHS[0] <= len(new.text) / len(old.text) <= LENGTHS[1]


def facts_of(item: Lesson) -> Iterator[tuple[str, str]]:
    """(kind, text) of the literal facts of a lesson's texts."""
    for part in PARTS:
        for kind, pattern in FACTS.items():
            yield from ((kind, fact) for fact in pattern.findall(getattr(item, part)))


def _false(item: Lesson, exchanged: dict[str, str]) -> Lesson:
    """The lesson with its facts exchanged, or negated where it has none of these."""
    present = [fact for _, fact in facts_of(item) if fact in exchanged]
    if not present:
        return replace(item, content=negated(item.content))
    pattern = re.compile("|".join(map(re.escape, sorted(set(present), key=len, reverse=True))))
    return replace(item, **{p: pattern.sub(lambda m: exchanged[m[0]], getattr(item, p)) for p in PARTS})


def negated(text: str) -> str:
    """The text with each of its sentences negated, and each negated one affirmed."""
    return _SENTENCE.sub(lambda sentence: _negated(sentence[0]), text)


def _negated(sentence: str) -> str:
    if not any(map(str.isalpha, sentence)):
        return sentence  # a number of a list
    if _NEGATED.search(sentence):
        affirmed = _NEGATED.sub("", sentence, count=1)
        return affirmed[:1].upper() + affirmed[1:] if sentence[:1].isupper() else affirmed
    if auxiliary := _AUXILIARY.search(sentence):
        return f"{sentence[: auxiliary.end()]} not{sentence[auxiliary.end() :]}"
    if sentence.isascii():
        return f"Do not {sentence[:1].lower()}{sentence[1:]}"
    return f"Never: {sentence}"
