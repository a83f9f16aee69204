"""retrieval=cosine: the paper's retrieval."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import check_choice
from core.memory.filter import Filter
from core.memory.policies.base import Ranking
from core.memory.ports import Bank
from core.types import Scored


@dataclass(kw_only=True)
class Cosine(Ranking):
    """The paper's retrieval (section 3.2): cosine of the queries' embeddings, top 1, whole records.

    unit   record | item: whether whole records are retrieved or single lessons; null takes the bank's
    key    query | item | both: whether the task is compared with a record's query, with its lessons, or with whichever
           of them is nearest; null takes the bank's
    """

    unit: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "retrieval", "unit", ("record", "item", None))
        check_choice(self, "retrieval", "key", ("query", "item", "both", None))

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = bank.nearest(query, top_k, exclude_task, self.within(where), unit=self.unit, key=self.key)
        return self.good_enough(hits)
