"""One retrieval for a client, without the SDK of MCP: a hook before each prompt must not wait for its import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from core.memory.filter import Filter
from core.types import Scored
from mcp_server import checks
from mcp_server.texts import memory_prompt

if TYPE_CHECKING:
    from mcp_server.service import Service


@dataclass(frozen=True)
class Found:
    """What a retrieval found.

    hits          best first, with scores from 0 to 1
    min_score     what the policy holds back below; None: nothing
    n_held_back   how many it held back; counted with server.answer_fields alone
    prompt        the lessons as text for a prompt; "" without any
    """

    hits: list[Scored]
    min_score: float | None
    n_held_back: int
    prompt: str


def recall(service: Service, query: str, top_k: int | None = None, agent_id: str = "", session: str = "") -> Found:
    """Search the bank, and count what is shown. Raises UserError for an argument, which says what to give instead.

    top_k      None: as many as the bank's policy says
    agent_id   whose memory; "": of all, where `server.anonymous` allows it
    session    of the client, if it has one: the task of `server.holdout`, else the query is

    A task to which `server.holdout` shows no memory reads what one does that no lesson fits.
    """
    settings = service.settings
    query, bank = checks.query(query, settings), service.bank_for(agent_id)
    policy, n_held_back = bank.policy, 0
    top_k = checks.whole_number("top_k", policy.top_k if top_k is None else top_k, 1, settings.max_top_k)
    count_retrieved = None
    if settings.holdout is not None:
        from mcp_server import run_records

        file = Path(service.bank.path)
        run, shown = run_records.begin(file, query, bank.namespace, session, settings.holdout)
        if not shown:
            return Found([], policy.min_score, 0, "")
        count_retrieved = partial(run_records.count_retrieved, file, run)
    where = Filter(everyone=settings.anonymous == "all" and not agent_id)
    if settings.answer_fields:
        hits, n_held_back = bank.retrieve_and_count(query, top_k, where)
    else:
        hits = bank.retrieve(query, top_k, where=where)
    if not where.everyone:  # records of all namespaces are read only, and so are those of a group
        service.count_shown(bank, [hit.record.id for hit in hits if hit.record.namespace == bank.namespace])
    hits = [replace(hit, score=round(policy.relevance(hit.score), 6)) for hit in hits]
    if count_retrieved is not None:
        count_retrieved(len(hits))
    whose = where.everyone or bool(bank.group)
    prompt = memory_prompt(hits, settings.max_memory_chars, settings.prompt_style, whose=whose)
    return Found(hits, policy.min_score, n_held_back, prompt)
