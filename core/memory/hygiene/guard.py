"""The guard before the bank (`memory.hygiene`): it scrubs, cuts, drops copies and quarantines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.checks import check_numbers
from core.errors import UserError
from core.memory.hygiene.injection import rules, suspicions
from core.memory.hygiene.likeness import Likeness
from core.memory.hygiene.scrub import scrub
from core.types import Lesson, MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

_BLOCK = re.compile(r"<\s*memory_items\s*>.{0,20000}?<\s*/\s*memory_items\s*>", re.IGNORECASE | re.DOTALL)
_MARK = re.compile(r"(?:\[memory item\][ \t]*)+", re.IGNORECASE)  # what a transcript shows instead of a quoted lesson
_SHORTEST_COPY = 20  # characters; shorter passages of a lesson occur by chance


@dataclass(kw_only=True)
class Guard:
    """Looks at each record before it is stored. Screening its own result changes nothing. The paper has no guard.

    scrub         replace credentials and personal data by a mark
    strip         remove passages copied from the lessons that the task had retrieved, and the memory block's markup
    quarantine    store a record that gives orders, or was merged from one that does, but never retrieve it: trust 0
    likeness      also quarantine lessons this much like known attacks (-1 to 1, see `Likeness`); None: patterns only
    ignore        rules of rules.txt that quarantine nothing, e.g. shell where lessons are about commands
    max_title, max_description, max_content, max_query   characters kept of each text
    """

    scrub: bool = True
    strip: bool = True
    quarantine: bool = True
    likeness: float | None = None
    ignore: list[str] = field(default_factory=list)
    max_title: int = 120
    max_description: int = 400
    max_content: int = 1200
    max_query: int = 8000
    _likeness: Likeness | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.ignore, str) or (unknown := set(self.ignore) - set(rules())):
            names = self.ignore if isinstance(self.ignore, str) else ", ".join(sorted(unknown))
            raise UserError(f"memory.hygiene.ignore={names}: give a list of {', '.join(rules())}.")
        check_numbers(
            self, "memory.hygiene", "max_title", "max_description", "max_content", "max_query", least=20, whole=True
        )

    def screen(self, record: MemoryRecord, bank: MemoryBank, shown: Sequence[str] | None = None) -> MemoryRecord:
        """The record as it may be stored; provenance["hygiene"] then names what was done to it.

        shown   ids of the records that the task had retrieved; None takes those it would retrieve now
        """
        items, notes = record.items, set(record.provenance.get("hygiene", ()))
        if self.strip and not record.parents:  # a merged record consists of its parents' text
            items, stripped = _without_copies(items, self._shown_passages(record, bank, shown))
            notes |= {"stripped"} if stripped else set()
        # Before the texts are cut: an order at the end of a long text counts too.
        broken = self._broken_rules(record.original_query, items, bank) if self.quarantine else ()
        record, found = self._scrubbed(replace(record, items=items))
        notes |= found
        parents = [parent for id in record.parents if (parent := bank.get(id)) is not None]
        trust = min([record.trust, *(parent.trust for parent in parents)])
        # All of it was copied: stored so that it counts, never retrieved.
        status, provenance = record.status if record.items else "archived", {**record.provenance}
        if notes:
            provenance["hygiene"] = sorted(notes)
        if self.quarantine and (broken or trust == 0.0):
            trust, status = 0.0, "quarantined"
            provenance["quarantine"] = sorted({*provenance.get("quarantine", ()), *(broken or ("lineage",))})
        return replace(record, trust=trust, status=status, provenance=provenance)

    def _broken_rules(self, query: str, items: tuple[Lesson, ...], bank: MemoryBank) -> tuple[str, ...]:
        """The rules that the query or the lessons break."""
        texts = (query, *(item.text for item in items))
        broken = {rule for text in texts for rule in suspicions(text)} - set(self.ignore)
        if self.likeness is not None and not broken:
            self._likeness = self._likeness or Likeness(bank.embedder)
            # The query is not compared: a task may be about anything.
            if any(self._likeness.of(item.text) > self.likeness for item in items):
                broken.add("likeness")
        return tuple(sorted(broken))

    def _shown_passages(self, record: MemoryRecord, bank: MemoryBank, shown: Sequence[str] | None) -> list[str]:
        """Texts of the lessons that were in the prompt, longest first."""
        if shown is None:
            records = [hit.record for hit in bank.retrieve(record.original_query, exclude_task=record.task_id)]
        else:
            records = [found for id in shown if (found := bank.get(id)) is not None]
        texts = {t.strip() for found in records for item in found.items for t in (item.content, item.description)}
        return sorted((text for text in texts if len(text) >= _SHORTEST_COPY), key=lambda text: (-len(text), text))

    def _scrubbed(self, record: MemoryRecord) -> tuple[MemoryRecord, set[str]]:
        """(the record with its texts scrubbed and cut, the kinds of what was found in them)."""
        found: set[str] = set()

        def clean(text: str, most: int) -> str:
            if self.scrub:
                text, kinds = scrub(text)
                found.update(kinds)
            if len(text) > most:
                found.add("cut")
            return text if len(text) <= most else text[: most - 1].rstrip() + "…"

        longest = {"title": self.max_title, "description": self.max_description, "content": self.max_content}
        items = tuple(
            Lesson(**{name: clean(text, longest[name]) for name, text in vars(item).items()}) for item in record.items
        )
        query, tags = clean(record.original_query, self.max_query), tuple(clean(tag, 200) for tag in record.tags)
        provenance = record.provenance
        if isinstance(url := provenance.get("url"), str):  # that a client gave with it
            provenance = provenance | {"url": clean(url, 2000)}
        return replace(record, items=items, original_query=query, tags=tags, provenance=provenance), found


def _without_copies(items: tuple[Lesson, ...], shown: list[str]) -> tuple[tuple[Lesson, ...], bool]:
    """(the lessons without shown passages and markup, less those left without content; whether any changed)."""
    kept = []
    for item in items:
        texts = [item.title, item.description, item.content]
        for passage in shown:
            texts[1:] = [text.replace(passage, "") for text in texts[1:]]
        texts = [_MARK.sub("", _BLOCK.sub("", text)).strip() for text in texts]
        if len(texts[2]) >= min(_SHORTEST_COPY, len(item.content.strip())):
            kept.append(Lesson(title=texts[0], description=texts[1], content=texts[2]))
    before = [(item.title.strip(), item.description.strip(), item.content.strip()) for item in items]
    return tuple(kept), [(item.title, item.description, item.content) for item in kept] != before
