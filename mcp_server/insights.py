"""The tools for tending a memory: store insights, list, search, delete and export them (`--tools all`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mcp_types import CallToolResult

from core.errors import UserError
from core.memory import formats
from core.memory.bank import MemoryBank
from core.memory.by_hand import set_status
from core.memory.consolidation.deduplicate import titles_near
from core.memory.filter import Filter, normal_tag, normalised
from core.memory.formats.insight_memory import LAST, iso, next_id, query_of
from core.types import MemoryRecord, content_id
from mcp_server import checks
from mcp_server.extraction import check_attempts
from mcp_server.service import clients_verdict, feedback_on, find_record, new_record
from mcp_server.texts import memory_entries, memory_prompt
from mcp_server.tools import Attempt, CoreTools, result, standing, stored

MAX_EXPORT = 200_000  # bytes of one answer
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
        bank = self._service.bank_for(agent_id)
        status, id = store_insight(bank, title, tags, content, sourceUrl, overwrite=overwrite, learn=True)
        if status == "taken":
            raise UserError(f"the memory {id} has nearly this title: give overwrite=true to replace it.")
        record = bank.get(id) if status in ("saved", "replaced") else None  # None also where another client erased it
        self._service.consolidate(bank, feedback_on(bank, record) if record else None)
        return stored(bank, id, status)

    def list_index(self, tag: str = "", limit: int = 50, offset: int = 0, agent_id: str = "") -> CallToolResult:
        """Titles, ids and trust of what is stored, most trusted first."""
        limit, offset = checks.whole_number("limit", limit, 1, 200), checks.whole_number("offset", offset, 0, 10**6)
        bank = self._service.bank_for(agent_id)
        moment, a_day = bank.moment(), self._trust.ticks_per_day
        records = with_tags(bank.records(bank.namespace, "active"), [tag] if tag else [])
        ranked = sorted(records, key=lambda record: -self._trust.trust(record, moment.age_days(record, a_day)))
        insights = [
            {
                "memory_id": record.id,
                "title": " / ".join(lesson.title for lesson in record.items),
                "tags": list(record.tags),
                "success": record.outcome == "success",
                **standing(record),
            }
            for record in ranked[offset : offset + limit]
        ]
        lines = [
            "  ".join(
                (
                    i["memory_id"],
                    f"trust {i['trust']:+.2f}",
                    i["title"],
                    *(f"({i[more]})" for more in ("warning", "sourceUrl") if more in i),
                )
            )
            for i in insights
        ]
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
        data = {"insights": [memory | standing(hit.record) for hit in hits for memory in memory_entries(hit)]}
        prompt = memory_prompt(hits, self._service.limits.max_memory_chars)
        return result(data, prompt or "Nothing is stored that fits.")

    def delete_insight(self, memory_id: str, hard: bool = False, agent_id: str = "") -> CallToolResult:
        """Archive a memory so that it is not found any more; hard erases it, and what was merged from it, for good."""
        bank = self._service.bank_for(agent_id)
        gone = delete(bank, find_record(bank, memory_id).id, for_good=hard)
        return result({"deleted": gone, "for_good": hard})

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
        service = self._service
        async_mode = service.limits.async_default if async_mode is None else async_mode
        if not (async_mode and service.queue_without_model):
            service.roles()
        given = [attempt.model_dump() for attempt in attempts]
        return self._learn(check_attempts(given, query, pattern, service.limits), async_mode, agent_id)

    def export_memory(self, format: str = "jsonl", agent_id: str = "") -> CallToolResult:
        """All memories as jsonl, json or markdown."""
        if format not in ("jsonl", "json", "markdown"):
            raise UserError(f"format={format[:40]}: give jsonl, json or markdown.")
        return result(None, exported(self._service.bank_for(agent_id), format))


def store_insight(
    bank: MemoryBank, title: str, tags: list[str], content: str, url: str, *, overwrite: bool, learn: bool = False
) -> tuple[str, str]:
    """Store an insight; (status, id). UserError where one of the texts is too long or missing.

    The status is `saved`, or, where one has nearly the same title, `already_known` (the same to the letter), `taken`
    (nothing was stored) or, with overwrite, `replaced`: under its id and with its counts; rollback brings the old one
    back. A `quarantined` one replaces nothing.

    learn   let consolidation know of it, in the same transaction
    """
    lesson, url, names = checks.lesson(title, "", content), checks.url(url), checks.tags(tags, 1)
    about = {"kind": "insight"} | ({"url": url} if url else {})
    id = content_id("insight", bank.namespace, lesson, names, url)
    query = query_of(lesson.title, names, lesson.content)
    record = new_record(bank, id, query, (lesson,), clients_verdict(True), tags=names, about=about)
    if bank.hygiene is not None:
        record = bank.hygiene.screen(record, bank, shown=())  # the client wrote it: nothing in it was copied
    vectors = bank.vectors_of(record)
    with bank.change(f"insight: {id}") as change:
        added = datetime.now(UTC)
        record = replace(record, created_at=iso(added))
        twin = _of_like_title(bank, lesson.title)
        old = twin and change.get(twin)
        if old is not None and "url" in old.provenance:  # an update that names no source keeps the one that is there
            record = replace(record, provenance={"url": old.provenance["url"]} | record.provenance)
        if old is not None and _says_the_same(old, record):
            return "already_known", twin
        if old is not None and not overwrite:
            return "taken", twin
        if record.status != "active":
            change.put(record, *vectors)
            return "quarantined", id
        if old is None:
            id, number = next_id(bank)
            change.reason = f"insight: {id}"
            record = replace(record, id=id)
            change.put(record, *vectors)
            change.fact(LAST, str(number))
            if learn:
                bank.count_within(change, feedback_on(bank, record))
            return "saved", id
        kept = "id task_id created_at tick confidence n_used n_used_success n_helpful n_harmful".split()
        # Its query and so its vector are new: the old row goes and a new one comes, and the journal has both.
        change.reason = f"insight: {twin}, replaced"
        change.remove(twin)
        record = replace(record, **{name: getattr(old, name) for name in kept}, last_used=added.timestamp())
        change.put(record, *vectors)
        if learn:
            bank.count_within(change, feedback_on(bank, record))
        return "replaced", twin


def _of_like_title(bank: MemoryBank, title: str) -> str | None:
    """The id of the active record with this title, else of the newest with nearly this one."""
    titles = bank.titles()[::-1]
    same = (id for id, taken in titles if normalised(taken) == normalised(title))
    near = (id for id, taken in titles if titles_near(title, taken, NEAR))
    return next(same, None) or next(near, None)


def _says_the_same(one: MemoryRecord, other: MemoryRecord) -> bool:
    return (one.items, one.tags, one.provenance.get("url")) == (other.items, other.tags, other.provenance.get("url"))


def with_tags(records: Iterable[MemoryRecord], tags: Iterable[str]) -> list[MemoryRecord]:
    """The records that have all of these tags, whatever the case in which either is written."""
    wanted = {normal_tag(tag) for tag in tags}
    return [record for record in records if wanted <= {normal_tag(tag) for tag in record.tags}]


def delete(bank: MemoryBank, id: str, *, for_good: bool) -> list[str]:
    """Archive a record, or erase it with what was merged from it; the ids of what is gone."""
    if for_good:
        return bank.history.forget(id=id)
    set_status(bank, id, "archived", "deleted by the client")
    return [id]


def exported(bank: MemoryBank, form: str) -> str:
    """The memories of the bank's namespace as text. UserError where that is too long for an answer."""
    form = "insight_memory" if form == "json" else form
    with tempfile.TemporaryDirectory() as folder:  # the caller names no path, and no file is left behind
        path = Path(folder) / "export"
        formats.export(bank, path, form, bank.namespace)
        if path.stat().st_size > MAX_EXPORT:
            raise UserError(
                f"the export has {path.stat().st_size} bytes, an answer at most {MAX_EXPORT}: run "
                f"`python -m core.memory export {bank.path} FILE --format {form} --namespace {bank.namespace}`."
            )
        return path.read_text(encoding="utf-8")
