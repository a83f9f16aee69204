"""retrieval=random: random records, the control condition for retrieval by similarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from core.memory.filter import Filter
from core.memory.policies.base import Ranking
from core.memory.ports import Bank
from core.seeding import derive_seed
from core.types import Scored


@dataclass(kw_only=True)
class Random(Ranking):
    """A uniform draw without replacement from the records that a task may see, fixed by seed, task and record.

    The task is identified by `exclude_task`, so that two tasks with the same query draw independently; without one (in
    a server) by its query. For a record of another namespace than the bank's, in a search of all namespaces, the draw
    also depends on the namespace, because ids repeat across them.

    If this helps as much as `cosine`, the gain does not come from finding the right record. The reported score is the
    record's cosine: the draw ignores it, but min_score is compared with it. Reads every record of the namespace, so it
    is for benchmarks, not for a service.
    """

    by_meaning: ClassVar[bool] = False

    seed: int = 0

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = self.good_enough(bank.nearest(query, max(len(bank), 1), exclude_task, self.within(where)))
        drawn_for = exclude_task or query

        def place(hit: Scored) -> int:
            record = hit.record
            whose = () if record.namespace == bank.namespace else (record.namespace,)
            return derive_seed(self.seed, drawn_for, *whose, record.id, "retrieval")

        return sorted(hits, key=place)[:top_k]
