"""retrieval=cosine: the paper's retrieval, the records nearest to the query by cosine."""

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

    The score is the inner product of unit-length embeddings, computed in sqlite/vectors.py or postgres/search.py
    (pgvector), rounded to 6 digits.

    unit   record | item: retrieve whole records or single items; null: the bank's
    key    query | item | joined: what of a record the query is compared with, as memory.key; null: the bank's
    """

    unit: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "retrieval", "unit", ("record", "item", None))
        check_choice(self, "retrieval", "key", ("query", "item", "joined", None))

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = bank.nearest(query, top_k, exclude_task, self.within(where), unit=self.unit, key=self.key)
        return self.good_enough(hits)
