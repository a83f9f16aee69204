"""retrieval=placebo and retrieval=empty_block: what the nearest record would show, without what it says.

Two controls for a model that works otherwise because *something* stands before the task: `placebo` keeps the form and
the length of each lesson and replaces its words by sentences that cannot help, `empty_block` keeps the frame alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from core.errors import check_choice
from core.memory.filter import Filter
from core.memory.policies.base import rewritten
from core.memory.policies.cosine import Cosine
from core.memory.ports import Bank
from core.seeding import derive_seed
from core.types import Lesson, MemoryRecord, Scored

PARTS = ("title", "description", "content")
# A sentence has a word of each row: statements about a village, without numbers, advice or commands.
WHO = "gardener baker carpenter painter weaver potter sailor teacher miller tailor shepherd".split()
WHERE = "harbour valley orchard library station market garden bridge meadow chapel mill tower lake".split()
DOES = (
    "kept liked found drew praised carried mended admired painted described borrowed washed showed moved sold".split()
)
WHICH = "old small grey quiet wooden round pale".split()
WHAT = "basket bell chair curtain drum fence kettle ladder lantern mirror piano ribbon saddle scarf vase".split()


@dataclass(kw_only=True)
class Placebo(Cosine):
    """The records that `cosine` finds, with the text of each lesson replaced.

    text   neutral: sentences of the same length in characters (up to the end of a word), drawn by seed, record and
           lesson, so that a run repeats exactly and no two lessons are alike; none: a lesson without a word, of which
           the agent sees the frame of the block and nothing in it
    """

    text: str = "neutral"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "retrieval", "text", ("neutral", "none"))

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = super().rank(bank, query, top_k, exclude_task, where)
        return [rewritten(hit, self._items(hit.record)) for hit in hits]

    def _items(self, record: MemoryRecord) -> tuple[Lesson, ...]:
        if self.text == "none":
            return (Lesson(title="", description="", content=""),)
        return tuple(
            replace(item, **{part: self._said(getattr(item, part), record.id, n, part) for part in PARTS})
            for n, item in enumerate(record.items)
        )

    def _said(self, text: str, *drawn_for: object) -> str:
        """Neutral sentences of about the length of a text; "" for an empty one."""
        return neutral(len(text), derive_seed(self.seed, *map(str, drawn_for), "placebo"))


def neutral(n_chars: int, seed: int) -> str:
    """Neutral sentences of n_chars characters or a few less, the last one cut after a word; "" for 0 characters.

    At least one word, so that no part of a lesson becomes empty.
    """
    draw, text = Random(seed), ""
    while len(text) < n_chars:
        who, where, does, which, what = map(draw.choice, (WHO, WHERE, DOES, WHICH, WHAT))
        text = f"{text} The {who} near the {where} {does} the {which} {what}.".strip()
    if len(text) <= n_chars:
        return text
    return text[: n_chars + 1].rpartition(" ")[0] or text.partition(" ")[0]
