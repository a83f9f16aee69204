"""The tools for tending a memory: store insights, list, search, delete and export them (`--tools all`)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from mcp_types import CallToolResult

from core.errors import UserError
from core.memory import formats
from core.memory.consolidation.by_hand import set_status
from core.memory.consolidation.same_lesson import titles_near
from core.memory.store.clock import ages, now
from core.memory.store.filter import Filter
from core.types import content_id
from mcp_server import checks
from mcp_server.extraction import check_attempts
from mcp_server.service import clients_verdict, find_record, new_record
from mcp_server.texts import memory_entries, memory_prompt
from mcp_server.tools import Attempt, CoreTools, counts, result, stored

MAX_EXPORT = 200_000  # bytes of one answer
KEY = 800  # characters of the content in the query that an insight is stored under
NEAR = 3  # titles fewer edits apart than this count as the same


class AllTools(CoreTools):
    """Further tools, as in CoreTools. They rank by trust: what users said of a record, fading with its age."""

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
        lesson, url, names = checks.lesson(title, "", content), checks.url(sourceUrl), checks.tags(tags, 1)
        bank = self._service.bank_for(agent_id)
        id = content_id("insight", bank.namespace, lesson, names, url)
        about = {"kind": "insight"} | ({"url": url} if url else {})
        query = f"{lesson.title} ({', '.join(names)})\n{lesson.content[:KEY]}"  # what a search compares with
        record = new_record(bank, id, query, (lesson,), clients_verdict(True), tags=names, about=about)
        record = replace(record, created_at=now())
        if bank.hygiene is not None:
            record = bank.hygiene.screen(record, bank, shown=())  # the client wrote it: nothing in it was copied
        vector, items = bank.vectors_of(record)
        with bank.change(f"insight: {id}") as change:
            titles = reversed(bank.titles())  # of active records, the newest first
            twin = next((other for other, taken in titles if titles_near(lesson.title, taken, NEAR)), None)
            if twin == id:
                return stored(bank, id, "already_known")
            if twin is not None and not overwrite:
                raise UserError(f"the memory {twin} has nearly this title: give overwrite=true to replace it.")
            if record.status != "active":
                twin = None  # a quarantined record replaces nothing
            if twin is not None:
                old = change.get(twin)
                record = replace(record, n_helpful=old.n_helpful, n_harmful=old.n_harmful, task_id=old.task_id)
                change.update(twin, status="superseded")
                change.link(id, "supersedes", twin)
            if not change.put(record, vector, items):
                change.update(id, status=record.status)  # it had been stored, then deleted or replaced
        self._service.consolidate(bank, record)
        return stored(bank, id, "saved" if twin is None else "replaced")

    def list_index(self, tag: str = "", limit: int = 50, offset: int = 0, agent_id: str = "") -> CallToolResult:
        """Titles, ids and trust of what is stored, most trusted first."""
        limit, offset = checks.whole_number("limit", limit, 1, 200), checks.whole_number("offset", offset, 0, 10**6)
        bank = self._service.bank_for(agent_id)
        age = ages(bank, self._trust.ticks_per_day)
        records = [record for record in bank.records(bank.namespace, "active") if not tag or tag in record.tags]
        ranked = sorted(((self._trust.trust(r, age(r)), r) for r in records), key=lambda pair: -pair[0])
        insights = [
            {
                "memory_id": record.id,
                "title": " / ".join(lesson.title for lesson in record.items),
                "tags": list(record.tags),
                "success": record.outcome == "success",
                **counts(record, trust),
            }
            for trust, record in ranked[offset : offset + limit]
        ]
        lines = [f"{i['memory_id']}  trust {i['trust']:+.2f}  {i['title']}" for i in insights]
        text = "\n".join((f"{len(ranked)} memories", *lines))
        return result({"total": len(ranked), "insights": insights}, text)

    def search_insights(
        self,
        query: str,
        top_k: int = 5,
        tags: list[str] = [],  # noqa: B006 - read only
        agent_id: str = "",
    ) -> CallToolResult:
        """Search by meaning, ranked by similarity and trust; tags: all of them."""
        query, top_k = self._checked_query(query, top_k)
        bank = self._service.bank_for(agent_id)
        hits = self._trust.rank(bank, query, top_k, None, Filter(tags=checks.tags(tags), statuses=("active",)))
        data = {"insights": [memory for hit in hits for memory in memory_entries(hit)]}
        prompt = memory_prompt(hits, self._service.limits.max_memory_chars)
        return result(data, prompt or "Nothing is stored that fits.")

    def delete_insight(self, memory_id: str, hard: bool = False, agent_id: str = "") -> CallToolResult:
        """Archive a memory so that it is not found any more; hard erases it, and what was merged from it, for good."""
        bank = self._service.bank_for(agent_id)
        id = find_record(bank, memory_id).id
        if hard:
            return result({"deleted": bank.forget(id=id, namespace=bank.namespace), "for_good": True})
        set_status(bank, id, "archived", "deleted by the client")
        return result({"deleted": [id], "for_good": False})

    def contrast_attempts(
        self,
        attempts: list[Attempt],
        query: str,
        pattern: str = "parallel",
        async_mode: bool = True,
        agent_id: str = "",
    ) -> CallToolResult:
        """Learn from 2 or more attempts at one task together, and say which is best.

        pattern: parallel (made apart) or sequential (each revises the one before, the last counts).
        """
        service = self._service
        if not (async_mode and service.queue_without_model):
            service.roles()
        given = [attempt.model_dump() for attempt in attempts]
        return self._learn(check_attempts(given, query, pattern, service.limits), async_mode, agent_id)

    def export_memory(self, format: str = "jsonl", agent_id: str = "") -> CallToolResult:
        """All memories as jsonl or markdown."""
        if format not in ("jsonl", "markdown"):
            raise UserError(f"format={format[:40]}: give jsonl or markdown.")
        bank = self._service.bank_for(agent_id)
        with tempfile.TemporaryDirectory() as folder:  # the caller names no path, and no file is left behind
            path = Path(folder) / "export"
            formats.export(bank, path, format, bank.namespace)
            if path.stat().st_size > MAX_EXPORT:
                raise UserError(
                    f"the export has {path.stat().st_size} bytes, an answer at most {MAX_EXPORT}: run "
                    f"`python -m core.memory export {bank.path} FILE --format {format} --namespace {bank.namespace}`."
                )
            return result(None, path.read_text(encoding="utf-8"))
