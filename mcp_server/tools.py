"""The tools of the server: for agents, for curation, and those of another server.

The profile ace (server.PROFILES) is those of them that another server, mcp-learning-memory 0.2.1, has: names, arguments
and answers of add_insight, list_index, search_insights, get_detail, mark_*, delete_insight and export_memory are its,
but for the name of an id (server.ACE_NAMES).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from core.control_tokens import escape
from core.errors import UserError
from core.jsonl import in_strings
from core.memory.bank import MemoryBank
from core.memory.by_hand import corrected, is_gone, mark_record, mark_used, successor
from core.memory.filter import Filter
from core.memory.formats.insight_memory import as_insight
from core.memory.formats.markdown import dated, shown
from core.memory.moment import added_at, last_use
from core.memory.policies.points import Points
from core.memory.policies.trust import feedback
from core.memory.records import tried
from core.redact import redactor
from core.types import UNJUDGED, MemoryRecord, content_id
from core.version import package_version
from mcp_server import checks, run_records
from mcp_server.extraction import QueueWorker, learn_attempt
from mcp_server.insights import delete, exported, store_insight, with_tags
from mcp_server.recall import recall
from mcp_server.service import Service, clients_verdict, find_lesson, find_record, new_record
from mcp_server.texts import memory_entries


@dataclass(frozen=True)
class TrajectoryStep:
    role: str
    content: str
    step: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    trajectory: list[TrajectoryStep]
    success_signal: bool | None = None


@dataclass(frozen=True, kw_only=True)
class CallToolResult:
    """A tool's result as MCP defines it, text and data, without the SDK: a command does not wait for its import."""

    text: str
    structured_content: dict[str, Any]


MOST = 1000  # max. insights in one answer
PREVIEW = 100  # characters
READ_ONLY = "retrieve_memory task_status get_detail bank_status list_index search_insights export_memory".split()
START = datetime.fromtimestamp(0, UTC)  # stands for the time of a record without a readable one
SORT = {
    "created": lambda record: added_at(record) or START,
    "lastUsed": lambda record: last_use(record) or START,
    "helpful": lambda record: record.n_helpful,
}
_STATES = {"pending": "processing", "running": "processing", "completed": "completed", "failed": "failed"}
_MESSAGES = {
    "processing": "Memory extraction task has been submitted and is being processed in the background",
    "completed": "This attempt was learned from before: task_status has the result",
}


class MemoryTools:
    """Each public method is a tool: its parameters are the tool's schema. server.PROFILES lists the tools of a profile.

    A method's docstring is the tool's description, which the model reads in every conversation: each word costs tokens.
    """

    def __init__(self, service: Service | None = None, worker: QueueWorker | None = None) -> None:
        # Without a service the tools can be listed, not called.
        self._service, self._worker, self._points = service, worker, Points()

    def retrieve_memory(
        self, query: str, top_k: int | None = None, agent_id: str = "", session: str = ""
    ) -> CallToolResult:
        """Lessons from earlier tasks like this one. Call before you start; query = the task as asked."""
        found = recall(self._service, query, top_k, agent_id, session)
        data: dict[str, Any] = {"formatted_prompt": found.prompt}
        if self._service.settings.answer_fields:  # in the form of the ReasoningBank MCP server
            data |= {
                "status": "success" if found.hits else "no_memories",
                "min_score_threshold": found.min_score,
                "filtered_count": found.n_held_back,
                "memories": [memory for hit in found.hits for memory in memory_entries(hit)],
            }
        return result(data, found.prompt or "No lesson fits this task.")

    def extract_memory(
        self,
        trajectory: list[TrajectoryStep],
        query: str,
        success_signal: bool | None = None,
        async_mode: bool | None = None,
        agent_id: str = "",
        session: str = "",
        tokens: int | None = None,
    ) -> CallToolResult:
        """A model learns from an attempt."""
        async_mode = self._checked_mode(async_mode)
        payload = checks.attempt([asdict(turn) for turn in trajectory], query, self._service.settings)
        payload |= {} if success_signal is None else {"success": success_signal}
        payload |= {"session": checks.text("session", session, 200)} if session else {}
        return self._learn(payload, async_mode, agent_id, tokens)

    def task_status(self, task_id: str, agent_id: str = "") -> CallToolResult:
        """How an extraction is going: processing, completed, or failed and why."""
        bank = self._service.bank_for(agent_id)
        if (job := self._service.jobs.get(task_id, bank.namespace)) is None:
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
    ) -> CallToolResult:
        """Store what would help next time. query = the task as asked; success = was it solved?"""
        query = checks.query(query, self._service.settings)
        lesson, bank = checks.lesson(title, description, content), self._service.bank_for(agent_id)
        verdict = clients_verdict(success)
        id = content_id("mcp", bank.namespace, query, lesson, verdict.label)
        if (known := bank.get(id)) is not None and is_gone(bank, known):  # saved again: it is meant to be there
            id = content_id(id, bank.history.seq())
        record = new_record(bank, id, query, (lesson,), verdict, tags=checks.tags(tags), about={})
        self._service.end_task(bank, {"query": query}, verdict)
        added = self._service.add(bank, record, shown=())  # the client wrote it: nothing in it was copied
        return self._stored(bank, id, "saved" if added else "already_known")

    def update_lesson(
        self, memory_id: str, title: str = "", content: str = "", description: str = "", agent_id: str = ""
    ) -> CallToolResult:
        """Correct a lesson that is wrong or outdated; what you leave out stays."""
        bank = self._service.bank_for(agent_id)
        record, place = find_lesson(bank, memory_id)
        old = record.items[place]
        new = checks.lesson(title or old.title, description or old.description, content or old.content)
        if new == old:
            raise UserError("nothing would change: give the title, description or content as it should be.")
        made = corrected(bank, record, (*record.items[:place], new, *record.items[place + 1 :]))
        return self._stored(bank, made.id, "updated")

    def delete_lesson(self, memory_id: str, permanent: bool = False, agent_id: str = "") -> CallToolResult:
        """Delete a lesson that nobody should follow."""
        bank = self._service.bank_for(agent_id)
        record, place = (find_record(bank, memory_id), 0) if permanent else find_lesson(bank, memory_id)
        if len(record.items) > 1 and not permanent:
            corrected(bank, record, (*record.items[:place], *record.items[place + 1 :]))
            return result({"status": "deleted", "memory_id": f"{record.id}-{place}"})
        gone = delete(bank, record.id, for_good=permanent)
        return result({"status": "deleted", "memory_id": record.id, "deleted": gone})

    def mark_helpful(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """A retrieved lesson helped: it will rank higher."""
        return self._mark(memory_id, agent_id, helpful=True)

    def mark_harmful(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """A retrieved lesson misled you: it will rank lower, with a warning."""
        return self._mark(memory_id, agent_id, helpful=False)

    def get_detail(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """Everything about one lesson."""
        bank = self._service.bank_for(agent_id)
        record = find_record(bank, memory_id, to_read=True)
        own = record.namespace == bank.namespace
        record = mark_used(bank, record.id) if own and not bank.read_only else record
        bank = bank if own else bank.of(record.namespace)
        about = {} if record.provenance.get("kind") == "insight" else {"query": record.original_query}
        about |= {"tried": said} if (said := tried(record.provenance.get("validated"))) else {}
        return result(detail(record) | about, escape(shown(record, dated(bank.link_details(record.id)))))

    def bank_status(self, agent_id: str = "") -> CallToolResult:
        """The memory's counts, settings and faults."""
        service, bank = self._service, self._service.bank_for(agent_id)
        embedder, jobs = bank.embedder, service.jobs.counts(bank.namespace)
        whole = bank.namespace == service.bank.namespace and not service.bound  # may hear of the server's other uses
        model, why = service.model()
        about = {"loaded": service.embedder_class(), "texts_in_windows": embedder.long_texts or None} if whole else {}
        status = {
            "version": package_version(),
            "bank": service.place,
            "agent_id": bank.namespace,
            "records": bank.statuses(),
            "embedder": filled((bank.made_with() if whole else {}) | {"name": embedder.name} | about),
            "model": model,
            "model_is_missing": why or None,
            "pending_jobs": jobs.get("pending", 0) + jobs.get("running", 0),
            "failed_jobs": jobs.get("failed", 0),
            "preset": service.cfg.preset,
            "settings": None if service.bound else service.cfg.settings,
            "retrieval": type(bank.policy).__name__.lower(),
            "retrieved_by_words": bank.counts[f"retrieved by words of {bank.namespace}"] or None,
            "warnings": None if service.bound else run_records.warned(Path(bank.path)) or None,
        }
        return result(filled(status))

    def add_insight(
        self,
        title: str,
        tags: list[str],
        content: str,
        overwrite: bool = False,
        sourceUrl: str = "",
        agent_id: str = "",
    ) -> CallToolResult:
        """Save an insight. A similar title is a duplicate: you get its id, and with overwrite=true it is updated."""
        bank = self._service.bank_for(agent_id)
        status, id = store_insight(bank, title, tags, content, sourceUrl, overwrite=overwrite)
        if (record := bank.get(id)) is None:  # another client has erased it by now
            return result({"status": "deleted", "id": id})
        say = {
            "saved": "The insight is saved.",
            "updated": "The insight is updated.",
            "same": "This very insight is saved already.",
            "duplicate": "An insight with a similar title exists: give overwrite=true to update it, or another title.",
            "quarantined": "The insight is kept but not shown to anyone, for the reason in `note`.",
        }[status]
        note = self._service.note_on(bank, record) if status in ("saved", "updated", "quarantined") else None
        data = {"status": status.replace("same", "duplicate"), "message": say} | preview(record)
        return result(filled(data | {"note": note}))

    def list_index(
        self,
        tags: list[str] = [],  # noqa: B006 - read only
        minHelpful: int = 0,
        sortBy: Literal["created", "lastUsed", "helpful"] = "lastUsed",
        limit: int = 50,
        agent_id: str = "",
    ) -> CallToolResult:
        """List what is stored, with tags, trust and a preview. tags: all of them."""
        limit, tags = checks.whole_number("limit", limit, 1, MOST), checks.tags(tags)
        bank = self._service.bank_for(agent_id)
        newest_first = bank.records(bank.namespace, "active")[::-1]
        records = [record for record in with_tags(newest_first, tags) if record.n_helpful >= minHelpful]
        records.sort(key=SORT[sortBy], reverse=True)
        return result({"total": len(records), "insights": [preview(record) for record in records[:limit]]})

    def search_insights(self, query: str, limit: int = 5, agent_id: str = "") -> CallToolResult:
        """Search titles, content and tags; ranked by match, trust and age. get_detail has the full content."""
        query = checks.query(query, self._service.settings)
        limit, bank = checks.whole_number("limit", limit, 1, MOST), self._service.bank_for(agent_id)
        hits = self._points.rank(bank, query, limit, None, Filter(statuses=("active",)))
        return result({"insights": [{"score": round(hit.score, 3)} | preview(hit.record) for hit in hits]})

    def delete_insight(self, memory_id: str, permanent: bool = True, agent_id: str = "") -> CallToolResult:
        """Delete a memory, and what was merged from it, for good. permanent=false: it goes to the archive."""
        bank = self._service.bank_for(agent_id)
        gone = delete(bank, find_record(bank, memory_id).id, for_good=permanent)
        return result({"deleted": gone, "permanent": permanent})

    def export_memory(
        self, format: Literal["json", "markdown", "jsonl"] = "json", agent_id: str = ""
    ) -> CallToolResult:
        """Export all memories."""
        text = exported(self._service.bank_for(agent_id), format)
        return result(json.loads(text) if format == "json" else None, text, exact=True)

    def contrast_attempts(
        self,
        attempts: list[Attempt],
        query: str,
        pattern: str = "parallel",
        async_mode: bool | None = None,
        agent_id: str = "",
    ) -> CallToolResult:
        """Learn from 2 or more attempts at one task together, and say which is best.

        pattern: parallel (made apart) or sequential (each revises the one before, the last counts).
        """
        async_mode = self._checked_mode(async_mode)
        values = [asdict(attempt) for attempt in attempts]
        return self._learn(checks.attempts(values, query, pattern, self._service.settings), async_mode, agent_id)

    def _checked_mode(self, async_mode: bool | None) -> bool:
        """Whether to learn in the background. Raises UserError if a model is needed here and now and there is none.

        An attempt for the queue waits there while the configured model cannot be called.
        """
        service = self._service
        async_mode = service.settings.async_default if async_mode is None else async_mode
        if not (async_mode and (service.queue_without_model or service.has_model)):
            service.roles()
        return async_mode

    def _learn(
        self, payload: dict[str, Any], async_mode: bool, agent_id: str, tokens: int | None = None
    ) -> CallToolResult:
        """Learn from one attempt, or from several at one task, now or in the queue. tokens: see `Service.end_task`."""
        service = self._service
        bank = service.bank_for(agent_id)
        id = content_id("job", bank.namespace, payload)  # the same attempt sent again is the same job
        verdict = clients_verdict(payload["success"]) if "success" in payload else UNJUDGED
        service.end_task(bank, payload, verdict, tokens)
        if not async_mode:
            learned = learn_attempt(service, bank, id, payload)
            done = {"status": "success", "message": "Memory extraction successful", "task_id": id, "async_mode": False}
            return result({**done, "agent_id": bank.namespace, **learned})
        most, whose = service.settings.max_pending_jobs, bank.namespace if service.bound else None
        if service.jobs.get(id, bank.namespace) is None and service.jobs.counts(whose).get("pending", 0) >= most:
            raise UserError(f"{most} extractions wait already: try again when some are done.")
        job = service.jobs.put(id, bank.namespace, in_strings(payload, redactor().values))
        self._worker.wake()
        status = _STATES[job.state]
        queued = {"status": status, "message": _MESSAGES[status], "task_id": id, "async_mode": True}
        if (why := service.model()[1]) and not service.queue_without_model:
            queued["waits_for_model"] = why
        return result({**queued, "agent_id": bank.namespace})

    def _mark(self, memory_id: str, agent_id: str, *, helpful: bool) -> CallToolResult:
        bank = self._service.bank_for(agent_id)
        record = successor(bank, find_record(bank, memory_id))
        return result(preview(mark_record(bank, record.id, helpful, used=True)))

    def _stored(self, bank: MemoryBank, id: str, status: str) -> CallToolResult:
        """The answer of a tool that stored a record: `status`, or what became of the record at once."""
        about = self._service.describe_stored(bank, id)
        state = about.pop("state")
        if state == "quarantined" or (state != "active" and status != "already_known"):
            status = "duplicate" if "duplicate_of" in about else state
        return result({"status": status, **about})


def filled(data: dict[str, Any]) -> dict[str, Any]:
    """Without fields that are None."""
    return {name: value for name, value in data.items() if value is not None}


def detail(record: MemoryRecord) -> dict[str, Any]:
    """A record as an insight; with a warning if its trust is below 0."""
    insight = filled(as_insight(record))
    if feedback(record) < 0:
        insight["warning"] = f"low trust: marked helpful {record.n_helpful}, harmful {record.n_harmful}"
    return insight if record.status == "active" else insight | {"status": record.status}


def preview(record: MemoryRecord) -> dict[str, Any]:
    """A record as an insight, with the beginning of its content."""
    insight = detail(record)
    return insight | {"preview": insight.pop("content")[:PREVIEW]}


def result(data: dict[str, Any] | None, text: str | None = None, *, exact: bool = False) -> CallToolResult:
    """A tool's result as data and as text; text=None: the data as JSON.

    Clients put the data, too, before a model, so its texts are escaped; a `formatted_prompt` is already.
    exact   as it is: an export
    """
    if data is not None and not exact:
        kept = {name: data[name] for name in ("formatted_prompt",) if name in data}
        data = in_strings(data, escape) | kept
    text = json.dumps(data, ensure_ascii=False) if text is None else text
    data = {"text": text} if data is None else data  # some clients show the model only the data
    return CallToolResult(text=text, structured_content=data)
