"""retrieval=recent: the newest records, whatever they are about; of whole attempts a baseline, "recent experience"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from core.memory.filter import Filter
from core.memory.policies.base import Ranking
from core.memory.ports import Bank
from core.types import Scored


@dataclass(kw_only=True)
class Recent(Ranking):
    """The newest top_k records that a task may see, the newest first.

    With memory=history, which keeps whole attempts, the last n attempts (top_k=n), or with a large top_k the whole
    history in the prompt: the baselines that memory systems are held against (CL-Bench, arXiv 2606.05661). How much of
    them fits is the agent's to say (`memory.max_tokens`), and what does not is counted as not shown.

    The score is the record's cosine: the order ignores it, but min_score is compared with it. Reads every record of the
    namespace, so it is for benchmarks, not for a service.
    """

    by_meaning: ClassVar[bool] = False

    top_k: int = 100_000

    def rank(
        self, bank: Bank, query: str, top_k: int, exclude_task: str | None, where: Filter | None = None
    ) -> list[Scored]:
        hits = self.good_enough(bank.nearest(query, max(len(bank), 1), exclude_task, self.within(where)))
        return sorted(hits, key=lambda hit: -hit.record.tick)[:top_k]  # of one task the nearest first
