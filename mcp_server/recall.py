"""One retrieval for a client, without the SDK of MCP: a hook before each prompt must not wait for its import."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.memory.filter import Filter
from core.types import Scored
from mcp_server import checks
from mcp_server.texts import memory_prompt

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank
    from mcp_server.service import Service


@dataclass(frozen=True)
class Found:
    """What a retrieval found.

    hits          best first, with values that a client can compare
    n_held_back   how many the policy held back for their low score
    prompt        the lessons as text for a prompt; "" without any
    shown         ids of the records to count as shown
    """

    hits: list[Scored]
    n_held_back: int
    prompt: str
    shown: list[str]


@dataclass
class Recall:
    """Arguments of a retrieval, which are checked at once: UserError says what to give instead.

    top_k      None: as many as the bank's policy says
    agent_id   whose memory; "": of all, where `server.anonymous` allows it
    domain     "": of any subject
    """

    service: Service
    query: str
    top_k: int | None = None
    agent_id: str = ""
    domain: str = ""
    bank: MemoryBank = field(init=False)

    def __post_init__(self) -> None:
        settings = self.service.settings
        self.query = checks.query(self.query, settings)
        top_k = self.service.bank.policy.top_k if self.top_k is None else self.top_k
        self.top_k = checks.whole_number("top_k", top_k, 1, settings.max_top_k)
        self.bank = self.service.bank_for(self.agent_id)
        self.domain = checks.domain(self.domain)

    def find(self) -> Found:
        """Search the bank."""
        settings = self.service.settings
        everyone = settings.anonymous == "all" and not self.agent_id
        where = Filter(everyone=everyone, domain=self.domain or None)
        hits, n_held_back = self.bank.retrieve_and_count(self.query, self.top_k, where)
        # Those of other namespaces are read only.
        shown = [] if everyone else [hit.record.id for hit in hits if hit.record.namespace == self.bank.namespace]
        hits = comparable(self.bank, self.query, hits)
        whose = everyone or bool(self.bank.group)
        prompt = memory_prompt(hits, settings.max_memory_chars, settings.prompt_style, whose=whose)
        return Found(hits, n_held_back, prompt, shown)


def comparable(bank: MemoryBank, query: str, hits: list[Scored]) -> list[Scored]:
    """The hits with values that a client can compare: a score from 0 to 1 for any policy, and the query's cosine."""
    if any(hit.similarity is None for hit in hits):  # found by words alone
        import numpy as np

        vector = bank.embedder.embed([query])[0]
        cosines = [round(float(np.dot(vector, hit.record.query_embedding)), 6) for hit in hits]
        hits = [hit if hit.similarity is not None else replace(hit, similarity=c) for hit, c in zip(hits, cosines)]
    return [
        replace(hit, score=round(bank.policy.relevance(hit.score), 6), similarity=min(hit.similarity, 1.0))
        for hit in hits
    ]
