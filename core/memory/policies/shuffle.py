"""retrieval=shuffle: the newest attempts with their steps in another order, a control for what their order tells."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.learning.transcript import in_order, steps_of
from core.memory.filter import Filter
from core.memory.policies.base import rewritten
from core.memory.policies.recent import Recent
from core.memory.ports import Bank
from core.seeding import derive_seed
from core.types import Lesson, Scored


@dataclass(kw_only=True)
class Shuffle(Recent):
    """The records that `recent` finds, with the steps of each attempt permuted and numbered anew.

    Nothing else changes: words, length, and place in the prompt are those of `recent` (Experience shuffling in arXiv
    2601.22436). Of a lesson that has no steps, such as a single reply, the lines are permuted. The order is drawn by
    seed, record and lesson, and is never the true one where there are two steps.
    """

    seed: int = 0

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        return [rewritten(hit, self._items(hit)) for hit in super().rank(bank, query, top_k, exclude_task, where)]

    def _items(self, hit: Scored) -> tuple[Lesson, ...]:
        made = []
        for number, item in enumerate(hit.record.items):
            steps = steps_of(item.content)
            order = self._order(len(steps), hit.record.id, str(number))
            made.append(replace(item, content=in_order(item.content, [steps[place] for place in order])))
        return tuple(made)

    def _order(self, n: int, *drawn_for: str) -> list[int]:
        order = sorted(range(n), key=lambda place: derive_seed(self.seed, *drawn_for, place, "shuffle"))
        return order[1:] + order[:1] if order == list(range(n)) else order
