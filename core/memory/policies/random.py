"""Any records at all: the control that tells what similarity is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.memory.filter import Filter
from core.memory.policies.base import Ranking
from core.seeding import derive_seed
from core.types import Scored

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


@dataclass(kw_only=True)
class Random(Ranking):
    """A uniform draw without replacement from the records that a task may see, fixed by seed, query and record.

    The control condition for retrieval: if it helps as much as `cosine`, the gain is not from finding the right lesson.
    The score that is reported is the record's cosine, which the draw does not look at (min_score does, where given).
    Reads every record of the namespace: for benchmarks, not for a service.
    """

    seed: int = 0

    def rank(
        self, bank: MemoryBank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = self.good_enough(bank.nearest(query, max(len(bank), 1), exclude_task, self.within(where)))
        return sorted(hits, key=lambda hit: derive_seed(self.seed, query, hit.record.id, "retrieval"))[:top_k]
