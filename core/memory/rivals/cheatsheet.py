"""memory=dc_cumulative, dc_synthesis: Dynamic Cheatsheet (Suzgun et al. 2025, arXiv 2504.07952, sections 2.1 and 2.2).

One text, the cheatsheet, is in the agent's prompt whole, and a curator rewrites it whole. Nobody is told whether an
attempt succeeded. DC-Cumulative: after each task the curator reads the cheatsheet, the task and the attempt, and
writes the next cheatsheet. DC-RS (retrieval and synthesis): before each task it reads the cheatsheet, the task and the
earlier attempts at the tasks most like it, and writes the cheatsheet that the task is solved with and the next begins
from; after the task the attempt is kept.

Deviations. The cheatsheet is a list of items, as the paper's prompt asks for, and is read item by item, so that a cap
(memory.max_tokens) leaves out whole ones and counts them. A reply without one is counted and leaves the cheatsheet as
it was, as the released code does. With nothing kept yet DC-RS asks nothing. In a later pass a task is shown the
cheatsheet as it was before it, since all later ones build on its own attempt. The tasks of a batch (stream.batch)
rewrite the same cheatsheet, and the last one's stays: use 1, as the paper does. The run's judge is asked for the
record's label all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from core.learning.learner import MAX_QUERY, Extractor
from core.learning.lessons import Distills, Reads
from core.learning.transcript import cut
from core.memory.bank import MemoryBank
from core.memory.rivals.notebook import KEEP, TAMPERED, named
from core.types import Extraction, Lesson, MemoryRecord, Scored, Task, Trajectory, Verdict

NOTHING = (Extraction(), False)
ITEM_CHARS = 900  # maximum of an item's content in a reply


@dataclass(kw_only=True)
class Cheatsheet(MemoryBank):
    """A bank of cheatsheets, each a record, of which the newest is shown."""

    def sheet(self, exclude_task: str | None = None) -> MemoryRecord | None:
        """The newest record with a cheatsheet, without the kept attempt; none that the task's own attempt went into."""
        exclude = None if self.allow_self else exclude_task or None
        records = reversed(self.recent(sum(self.statuses().values())))
        before = takewhile(lambda record: record.task_id != exclude, (r for r in records if r.status == "active"))
        found = [replace(record, items=items) for record in before if (items := _items(record))]
        return found[-1] if found else None

    def _retrieved(self, query: str, top_k: int, exclude_task: str | None = None, *within: Any) -> list[Scored]:
        """The cheatsheet, as one hit, whatever the query is."""
        return self.hits(self.sheet(exclude_task))

    def hits(self, sheet: MemoryRecord | None) -> list[Scored]:
        """A record with the items that are shown as hits: one, or none."""
        stored = sheet and self.get(sheet.id)
        return [Scored(record=sheet, score=1.0, rewritten=not stored or sheet.items != stored.items)] if sheet else []


@dataclass(kw_only=True)
class Cumulative(Extractor, Reads, Distills):
    """DC-Cumulative's curator.

    max_items   maximum items of the cheatsheet
    """

    bank: Cheatsheet
    max_items: int = 40
    max_chars: int = 24000

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """The next cheatsheet; no lessons if the reply has none. Label and gold are not used. Raises InfraError."""
        sheet = self.bank.sheet()
        values = {"items": sheet.items if sheet else (), "trajectory": self.text_of(trajectory, self.max_chars)}
        made = self.lessons(
            "rivals/cheatsheet_curate", "cheatsheet", task, self.max_items, trajectory.sample, ITEM_CHARS, **values
        )
        return named(made, task, "cheatsheet")


@dataclass(kw_only=True)
class SynthesisBank(Cheatsheet, Extractor):
    """DC-RS: writes the cheatsheet for a task when it is retrieved. It is stored with the episode, not here.

    pairs       how many earlier attempts are read: those of the records that the policy ranks first
    max_items   maximum items of the cheatsheet
    written     {task: (the cheatsheet written for it, whether it goes on from the newest one)}; one that does not is
                not stored, since the work of later tasks would be lost
    """

    pairs: int = 3
    max_items: int = 40
    written: dict[str, tuple[Extraction, bool]] = field(default_factory=dict, init=False, repr=False)

    def _retrieved(self, query: str, top_k: int, exclude_task: str | None = None, *within: Any) -> list[Scored]:
        """The cheatsheet written for this query, as one hit; in a frozen bank the newest. Raises InfraError."""
        if self.read_only:
            return super()._retrieved(query, top_k, exclude_task)
        self.written.pop(exclude_task or "", None)
        hits = MemoryBank._retrieved(self, query, self.pairs, exclude_task, *within)
        pairs = [
            (hit.record.original_query, item.content) for hit in hits for item in hit.record.items if _is_kept(item)
        ]
        if not pairs:
            return []
        sheet, task = self.sheet(exclude_task), Task(id=exclude_task or "", query=query)
        values: dict[str, Any] = {"items": sheet.items if sheet else (), "pairs": pairs}
        made = self.lessons("rivals/cheatsheet_synthesize", "synthesis", task, self.max_items, 0, ITEM_CHARS, **values)
        self.written[task.id] = named(made, task, "synthesis"), sheet == self.sheet()
        return self.hits(replace(sheet or hits[0].record, items=made.lessons) if made.lessons else sheet)


@dataclass(kw_only=True)
class Synthesis(Reads, Distills):
    """DC-RS after the task: the attempt is kept, with the cheatsheet that was written for it. Asks no model.

    attempt_chars   maximum characters of the kept attempt, cut in the middle
    """

    bank: SynthesisBank
    max_items: int = 1
    max_chars: int = 24000
    attempt_chars: int = 3000

    def distil(
        self, task: Task, trajectory: Trajectory, verdict: Verdict, memories: list[Scored], gold: str | None
    ) -> Extraction:
        """The kept attempt and the cheatsheet, with what writing it cost. Label and gold are not used."""
        text = self.text_of(trajectory, self.attempt_chars)
        kept = Lesson(title=KEEP, description=cut(task.query, MAX_QUERY), content=text)
        first = trajectory.sample == 0  # of several attempts at a task, which has one cheatsheet
        made, newest = self.bank.written.get(task.id, NOTHING) if first else NOTHING
        return replace(made, lessons=(kept, *made.lessons) if newest else (kept,))


def _is_kept(item: Lesson) -> bool:
    return item.title.removeprefix(TAMPERED) == KEEP


def _items(record: MemoryRecord) -> tuple[Lesson, ...]:
    """The items of a record's cheatsheet; () if it has none."""
    return tuple(item for item in record.items if not _is_kept(item))
