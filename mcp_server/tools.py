"""The tools as a client sees them: names, arguments, annotations. What they do is in service, insights, extraction.

A docstring here is what the model reads about the tool, in every conversation: each word costs all users.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel

from core.errors import UserError
from core.types import Lesson
from mcp_server.extraction import AttemptLearner
from mcp_server.insights import Insights
from mcp_server.queue_worker import QueueWorker
from mcp_server.service import Service, memories
from mcp_server.texts import recall


class TrajectoryStep(BaseModel):
    role: str
    content: str
    step: int = 0
    metadata: dict[str, Any] = {}


class Tools:
    """The functions behind the tools; their parameters become the tools' schemas."""

    def __init__(self, service: Service, insights: Insights, extraction: AttemptLearner, worker: QueueWorker) -> None:
        self.service, self.insights, self.extraction, self.worker = service, insights, extraction, worker

    def retrieve_memory(self, query: str, top_k: int = 1, agent_id: str = "") -> CallToolResult:
        """Lessons from earlier tasks like this one. Call before you start; query = the task."""
        hits, found = self.service.retrieve(query, top_k, agent_id)
        prompt = recall(hits, self.service.limits.max_memory_chars)
        return _told(found | {"formatted_prompt": prompt}, prompt or "No memory fits this task.")

    def extract_memory(
        self,
        trajectory: list[TrajectoryStep],
        query: str,
        success_signal: bool | None = None,
        async_mode: bool = True,
        agent_id: str = "",
    ) -> CallToolResult:
        """Have a model distil a finished attempt into lessons. Without success_signal it also judges the outcome."""
        if not (async_mode and self.service.hands_over):
            self.service.roles()
        payload = self.extraction.check([turn.model_dump() for turn in trajectory], query)
        payload |= {} if success_signal is None else {"success": success_signal}
        bank = self.service.tenant(agent_id)
        id = self.extraction.name(bank, payload)
        if not async_mode:
            done = self.extraction.learn(bank, id, payload)
            return _told({"status": "completed", "task_id": id, "async_mode": False, **done})
        most = self.service.limits.max_pending_jobs
        if self.service.jobs.get(id) is None and self.service.jobs.counts().get("pending", 0) >= most:
            raise UserError(f"{most} extractions wait already: try again when some are done.")
        job = self.service.jobs.put(id, bank.namespace, payload)
        self.worker.wake()
        return _told({"status": _STATES[job.state], "task_id": id, "async_mode": True})

    def task_status(self, task_id: str, agent_id: str = "") -> CallToolResult:
        """How an extraction is going: processing, completed, or failed and why."""
        bank, job = self.service.tenant(agent_id), self.service.jobs.get(task_id)
        if job is None or job.namespace != bank.namespace:
            raise UserError(f"there is no extraction {task_id[:60]}: extract_memory gives its task_id.")
        return _told({"status": _STATES[job.state], "task_id": job.id, "since": job.created_at, **job.result})

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
        """Store a lesson that you write yourself. query = the task as asked; success = whether it was solved."""
        item = Lesson(title=title, description=description, content=content)
        return _told(self.service.save(query, item, success=success, tags=tags, agent_id=agent_id))

    def mark_helpful(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """A recalled memory helped: it will rank higher."""
        return _told(self.insights.mark(memory_id, agent_id, helpful=True))

    def mark_harmful(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """A recalled memory misled you: it will rank lower and carry a warning."""
        return _told(self.insights.mark(memory_id, agent_id, helpful=False))

    def get_detail(self, memory_id: str, agent_id: str = "") -> CallToolResult:
        """Everything about one memory."""
        return _told(None, self.insights.detail(memory_id, agent_id))

    def bank_status(self, agent_id: str = "") -> CallToolResult:
        """Counts, embedder, model, version and pending extractions of this memory."""
        return _told(self.service.status(agent_id))

    def add_insight(
        self,
        title: str,
        content: str,
        tags: list[str],
        sourceUrl: str = "",
        overwrite: bool = False,
        agent_id: str = "",
    ) -> CallToolResult:
        """Store an insight with 1 to 10 tags. One with nearly the same title is replaced only with overwrite."""
        item = Lesson(title=title, description="", content=content)
        return _told(self.insights.add(item, tags, sourceUrl, overwrite=overwrite, agent_id=agent_id))

    def list_index(self, tag: str = "", limit: int = 50, offset: int = 0, agent_id: str = "") -> CallToolResult:
        """Titles, ids and trust of what is stored, most trusted first."""
        found = self.insights.index(tag, limit, offset, agent_id)
        lines = [f"{i['memory_id']}  trust {i['trust']:+.2f}  {i['title']}" for i in found["insights"]]
        return _told(found, "\n".join((f"{found['total']} memories", *lines)))

    def search_insights(
        self,
        query: str,
        top_k: int = 5,
        tags: list[str] = [],  # noqa: B006 - read only
        agent_id: str = "",
    ) -> CallToolResult:
        """Search by meaning, ranked by similarity and trust; tags: all of them."""
        hits = self.insights.search(query, top_k, tags, agent_id)
        found = {"insights": [memory for hit in hits for memory in memories(hit)]}
        return _told(found, recall(hits, self.service.limits.max_memory_chars) or "Nothing is stored that fits.")

    def delete_insight(self, memory_id: str, hard: bool = False, agent_id: str = "") -> CallToolResult:
        """Archive a memory so that it is not found any more; hard erases it, and what was merged from it, for good."""
        return _told(self.insights.delete(memory_id, agent_id, hard=hard))

    def export_memory(self, format: str = "jsonl", agent_id: str = "") -> CallToolResult:
        """All memories as jsonl or markdown."""
        return _told(None, self.insights.export(format, agent_id))


_STATES = {"pending": "processing", "running": "processing", "completed": "completed", "failed": "failed"}
CORE = (
    "retrieve_memory extract_memory task_status save_lesson mark_helpful mark_harmful get_detail bank_status"
).split()
MORE = "add_insight list_index search_insights delete_insight export_memory".split()
READS = (
    "retrieve_memory",
    "task_status",
    "get_detail",
    "bank_status",
    "list_index",
    "search_insights",
    "export_memory",
)
ONCE = (*READS, "extract_memory", "save_lesson", "add_insight", "delete_insight")  # again changes nothing more
DESTROYS = ("delete_insight", "add_insight")  # with hard, with overwrite


def build(tools: Tools, profile: str) -> list[Tool]:
    """The tools of a profile (core | all) for the SDK, their schemas without what no model needs."""
    made = []
    for name in CORE if profile == "core" else (*CORE, *MORE):
        annotations = ToolAnnotations(
            read_only_hint=name in READS,
            destructive_hint=name in DESTROYS,
            idempotent_hint=name in ONCE,
            open_world_hint=name == "extract_memory",
        )
        function: Callable = getattr(tools, name)
        tool = Tool.from_function(function, annotations=annotations, structured_output=False)
        tool.parameters = _slim(tool.parameters)
        made.append(tool)
    return made


def _slim(schema: Any) -> Any:
    """A JSON schema without the titles that pydantic derives from names, and with defaults of nothing left unsaid."""
    if isinstance(schema, list):
        return [_slim(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if schema.get("default", 0) in (None, "", [], {}):
        schema.pop("default")
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema |= kinds[0]
    return {key: _slim(value) for key, value in schema.items()}


def _told(data: dict[str, Any] | None, text: str | None = None) -> CallToolResult:
    """A result as data and as text; the text is the data's JSON where it has no better one."""
    text = json.dumps(data, ensure_ascii=False) if text is None else text
    data = {"text": text} if data is None else data  # some clients show the model nothing but the data
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=data)
