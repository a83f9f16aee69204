"""The eight tools for agents. insights.py has six more for tending a memory; server.py offers them to clients."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from core.errors import UserError, is_url
from core.memory.bank import MemoryBank
from core.memory.by_hand import mark_record
from core.memory.filter import Filter
from core.memory.formats.insight_memory import iso
from core.memory.formats.markdown import dated, shown
from core.memory.moment import last_use
from core.memory.policies.trust import Trust, feedback, warning_of
from core.types import MemoryRecord, Scored, content_id
from mcp_server import checks, warnings_file
from mcp_server.extraction import QueueWorker, check_attempt, learn_attempt
from mcp_server.retrievals import Made
from mcp_server.service import Service, clients_verdict, describe_stored, find_record, new_record, package_version
from mcp_server.texts import memory_entries, memory_prompt


class TrajectoryStep(BaseModel):
    role: str
    content: str
    step: int = 0
    metadata: dict[str, Any] = {}


class Attempt(BaseModel):
    trajectory: list[TrajectoryStep]
    success_signal: bool | None = None


class CoreTools:
    """Each public method is a tool: its parameters are the tool's schema.

    Its docstring is what the model reads about the tool, in every conversation: each word costs all users.
    """

    def __init__(self, service: Service | None = None, worker: QueueWorker | None = None) -> None:
        # Without a service the tools can be listed, not called.
        self._service, self._worker = service, worker
        self._trust = Trust(pool=100)

    async def retrieve_memory(
        self, query: str, top_k: int | None = None, agent_id: str = "", domain: str = ""
    ) -> CallToolResult:
        """Lessons from earlier tasks like this one. Call before you start; query = the task, domain = its subject."""
        query, top_k = self._checked_query(query, self._service.bank.policy.top_k if top_k is None else top_k)
        bank, limits = self._service.bank_for(agent_id), self._service.limits
        everyone = limits.anonymous == "all" and not agent_id
        where = Filter(everyone=everyone, domain=checks.domain(domain) or None)

        def make() -> Made:
            hits, n_held_back = bank.retrieve_and_count(query, top_k, where)
            ids = [] if everyone else [hit.record.id for hit in hits]  # everyone's are read only
            hits = comparable(bank, query, hits)
            prompt = memory_prompt(hits, limits.max_memory_chars, limits.prompt_style, whose=everyone)
            data = {  # in the form of the ReasoningBank MCP server
                "status": "success" if hits else "no_memories",
                "min_score_threshold": bank.policy.min_score,
                "filtered_count": n_held_back,
                "memories": [memory for hit in hits for memory in memory_entries(hit)],
                "formatted_prompt": prompt,
            }
            return result(data, prompt or "No memory fits this task."), ids

        return await self._service.retrieve(bank, query, make)

    def extract_memory(
        self,
        trajectory: list[TrajectoryStep],
        query: str,
        success_signal: bool | None = None,
        async_mode: bool | None = None,
        agent_id: str = "",
    ) -> CallToolResult:
        """Have a model distil a finished attempt into lessons. Without success_signal it also judges the outcome."""
        service = self._service
        async_mode = service.limits.async_default if async_mode is None else async_mode
        if not (async_mode and service.queue_without_model):
            service.roles()
        payload = check_attempt([turn.model_dump() for turn in trajectory], query, service.limits)
        payload |= {} if success_signal is None else {"success": success_signal}
        return self._learn(payload, async_mode, agent_id)

    def _learn(self, payload: dict[str, Any], async_mode: bool, agent_id: str) -> CallToolResult:
        """Learn from one attempt, or from several at one task, now or in the queue."""
        service = self._service
        bank = service.bank_for(agent_id)
        id = content_id("job", bank.namespace, payload)  # the same attempt sent again is the same job
        if not async_mode:
            learned = learn_attempt(service, bank, id, payload)
            told = {"status": "success", "message": "Memory extraction successful", "task_id": id, "async_mode": False}
            return result({**told, "agent_id": bank.namespace, **learned})
        most, whose = service.limits.max_pending_jobs, bank.namespace if service.bound else None
        if service.jobs.get(id) is None and service.jobs.counts(whose).get("pending", 0) >= most:
            raise UserError(f"{most} extractions wait already: try again when some are done.")
        job = service.jobs.put(id, bank.namespace, payload)
        self._worker.wake()
        status = _STATES[job.state]
        told = {"status": status, "message": _MESSAGES[status], "task_id": id, "async_mode": True}
        return result({**told, "agent_id": bank.namespace})

    def task_status(self, task_id: str, agent_id: str = "") -> CallToolResult:
        """How an extraction is going: processing, completed, or failed and why."""
        bank, job = self._service.bank_for(agent_id), self._service.jobs.get(task_id)
        if job is None or job.namespace != bank.namespace:
            raise UserError(f"there is no extraction {task_id[:60]}: extract_memory gives its task_id.")
        return result({"status": _STATES[job.state], "task_id": job.id, "since": job.created_at, **job.result})

    def save_lesson(
        self,
        query: str,
        title: str,
        content: str,
        description: str = "",
        success: bool = True,
        tags: list[str] = [],  # noqa: B006 - read only
        agent_id: str = "",
        domain: str = "",
    ) -> CallToolResult:
        """Store a lesson that you write yourself. query = the task as asked; success = whether it was solved."""
        query = checks.text("query", query, self._service.limits.max_query_chars)
        lesson, bank = checks.lesson(title, description, content), self._service.bank_for(agent_id)
        verdict = clients_verdict(success)
        subject = checks.domain(domain)
        id = content_id("mcp", bank.namespace, query, lesson, verdict.label, *([subject] if subject else []))
        record = new_record(bank, id, query, (lesson,), verdict, tags=checks.tags(tags), domain=subject, about={})
        return stored(bank, id, "saved" if self._service.add(bank, record) else "already_known")

    def mark_helpful(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """A recalled memory helped: it will rank higher."""
        return self._mark(memory_id, agent_id, helpful=True)

    def mark_harmful(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """A recalled memory misled you: it will rank lower and carry a warning."""
        return self._mark(memory_id, agent_id, helpful=False)

    def get_detail(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """Everything about one memory."""
        bank = self._service.bank_for(agent_id)
        record = find_record(bank, memory_id)
        return result(None, shown(record, dated(bank.link_details(record.id))))

    def bank_status(self, agent_id: str = "") -> CallToolResult:
        """Counts, embedder, model, version and pending extractions of this memory."""
        service, bank = self._service, self._service.bank_for(agent_id)
        embedder, jobs = bank.embedder, service.jobs.counts(bank.namespace)
        status = {
            "version": package_version(),
            "bank": bank.path if is_url(bank.path) else str(Path(bank.path).resolve()),
            "agent_id": bank.namespace,
            "records": bank.statuses(),
            "embedder": {
                **{name: value for name, value in bank.made_with().items() if value is not None},
                "name": embedder.name,
                "loaded": getattr(embedder, "loaded", type(embedder).__name__),
            },
            "model": service.roles()["extractor"].llm.name if service.cfg.get("llm") is not None else None,
            "pending_jobs": jobs.get("pending", 0) + jobs.get("running", 0),
            "failed_jobs": jobs.get("failed", 0),
            "preset": service.cfg.preset,
            **({"settings": service.cfg.settings} if service.cfg.settings else {}),
            "retrieval": type(bank.policy).__name__.lower(),
            "clock": bank.clock,
            "changes": bank.history.seq(),
        }
        if warnings := warnings_file.counted(Path(bank.path)):
            status["warnings"] = warnings  # of `reasoningbank run`, which goes on where memory breaks
        return result(status)

    def _checked_query(self, query: str, top_k: int) -> tuple[str, int]:
        limits = self._service.limits
        query = checks.text("query", query, limits.max_query_chars)
        return query, checks.whole_number("top_k", top_k, 1, limits.max_top_k)

    def _mark(self, memory_id: str, agent_id: str, *, helpful: bool) -> CallToolResult:
        bank = self._service.bank_for(agent_id)
        record = mark_record(bank, find_record(bank, memory_id).id, helpful, used=True)
        return result({"memory_id": record.id, **standing(record)})


_STATES = {"pending": "processing", "running": "processing", "completed": "completed", "failed": "failed"}
_MESSAGES = {
    "processing": "Memory extraction task has been submitted and is being processed in the background",
    "completed": "This attempt was learned from before: task_status has the result",
}


def comparable(bank: MemoryBank, query: str, hits: list[Scored]) -> list[Scored]:
    """Hits as a client sees them: a score from 0 to 1 whatever the policy, and the cosine with the query."""
    relevance = bank.policy.relevance
    if any(hit.similarity is None for hit in hits):  # found by words alone
        import numpy as np

        vector = bank.embedder.embed([query])[0]
        cosines = [round(float(np.dot(vector, hit.record.query_embedding)), 6) for hit in hits]
        hits = [hit if hit.similarity is not None else replace(hit, similarity=c) for hit, c in zip(hits, cosines)]
    return [replace(h, score=round(relevance(h.score), 6), similarity=min(h.similarity, 1.0)) for h in hits]


def standing(record: MemoryRecord) -> dict[str, Any]:
    """How often a record was marked, how far that makes it trusted, when it was last used and where it comes from."""
    told = {"helpful": record.n_helpful, "harmful": record.n_harmful, "trust": round(feedback(record), 3)}
    told |= {
        "last_used": iso(last_use(record)),
        "warning": warning_of(record),
        "sourceUrl": record.provenance.get("url"),
    }
    return {name: value for name, value in told.items() if value not in (None, "")}


def stored(bank: MemoryBank, id: str, status: str) -> CallToolResult:
    """A tool's result about a record that it stored: its status, or that it is quarantined or archived at once."""
    told = describe_stored(bank, id)
    if told["state"] == "quarantined" or (told["state"] != "active" and status != "already_known"):
        status = "duplicate" if "duplicate_of" in told else told["state"]
    return result({"status": status, **told})


def result(data: dict[str, Any] | None, text: str | None = None) -> CallToolResult:
    """A tool's result as data and as text; without a text of its own, the data as JSON."""
    text = json.dumps(data, ensure_ascii=False) if text is None else text
    data = {"text": text} if data is None else data  # some clients show the model nothing but the data
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=data)
