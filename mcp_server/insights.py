"""The tools of a learning memory: insights by hand, feedback on them, ranking by trust that fades."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory import formats
from core.memory.bank import MemoryBank
from core.memory.clock import ages, now
from core.memory.consolidation.by_hand import mark, set_status
from core.memory.consolidation.compare import titles_near
from core.memory.consolidation.episode_feedback import Experience
from core.memory.filter import Filter
from core.memory.formats.markdown import shown
from core.memory.policies.trust import Trust
from core.types import Lesson, MemoryRecord, Scored, content_id
from mcp_server import checks
from mcp_server.service import Service, lesson

MAX_EXPORT = 200_000  # characters of one answer
NEAR = 3  # titles fewer edits apart are the same


class Insights:
    """Works on the records of one bank, each time for one agent."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.trust = Trust(pool=100)

    def add(self, item: Lesson, tags: list[str], url: str, *, overwrite: bool, agent_id: str) -> dict[str, Any]:
        """Store an insight. One whose title is nearly taken is refused, or with `overwrite` takes the other's place."""
        item, url, names = lesson(item), checks.url(url), checks.tags(tags, 1)
        bank = self.service.tenant(agent_id)
        query = f"{item.title} ({', '.join(names)})"
        record = MemoryRecord(
            id=content_id("insight", bank.namespace, item, names, url),
            original_query=query,
            items=(item,),
            source_trajectory_id="",
            score=1.0,
            outcome="success",
            label_source="client",
            task_id=content_id("task", query),
            namespace=bank.namespace,
            tick=bank.tick(),
            created_at=now(),
            tags=names,
            provenance={"source": "mcp", "kind": "insight"} | ({"url": url} if url else {}),
        )
        if bank.hygiene is not None:
            record = bank.hygiene.screen(record, bank, shown=())  # a client's own words are no copy
        vector = bank.embedder.embed([record.original_query])[0].tobytes()
        with bank.change(f"insight: {record.id}") as change:
            twin = self._twin(bank, item.title)
            if twin == record.id:
                return {"status": "already_known", **self.service.stored(bank, twin)}
            if twin is not None and not overwrite:
                raise UserError(f"the memory {twin} has nearly this title: give overwrite=true to replace it.")
            if record.status != "active":
                twin = None  # what is quarantined takes no place: the other one stays
            if twin is not None:
                old = change.get(twin)
                record = replace(record, n_helpful=old.n_helpful, n_harmful=old.n_harmful, task_id=old.task_id)
                change.update(twin, status="superseded")
                change.link(record.id, "supersedes", twin)
            if not change.put(record, vector):
                change.update(record.id, status=record.status)  # it was deleted, or replaced, once before
        self.service.learn(bank, Experience(label=record.outcome, added=record.id))
        told = self.service.stored(bank, record.id)
        quarantined = told["state"] == "quarantined"
        return {"status": "quarantined" if quarantined else "saved" if twin is None else "replaced", **told}

    def _twin(self, bank: MemoryBank, title: str) -> str | None:
        """The active record whose title is nearly this one, the newest first."""
        return next((id for id, other in reversed(bank.titles()) if titles_near(title, other, NEAR)), None)

    def index(self, tag: str, limit: int, offset: int, agent_id: str) -> dict[str, Any]:
        """What there is, most trusted first: one short line of data each."""
        limit, offset = checks.whole("limit", limit, 1, 200), checks.whole("offset", offset, 0, 10**6)
        bank = self.service.tenant(agent_id)
        age = ages(bank, self.trust.ticks_per_day)
        records = bank.records(bank.namespace, "active")
        found = [(self.trust.trust(r, age(r)), r) for r in records if not tag or tag in r.tags]
        found.sort(key=lambda pair: -pair[0])
        return {"total": len(found), "insights": [_line(r, trust) for trust, r in found[offset : offset + limit]]}

    def search(self, query: str, top_k: int, tags: list[str], agent_id: str) -> list[Scored]:
        """The nearest records, ranked by similarity and trust."""
        query = checks.text("query", query, self.service.limits.max_query_chars)
        top_k = checks.whole("top_k", top_k, 1, self.service.limits.max_top_k)
        return self.trust.rank(
            self.service.tenant(agent_id), query, top_k, None, Filter(tags=checks.tags(tags), statuses=("active",))
        )

    def detail(self, id: str, agent_id: str) -> str:
        """One record in full, as Markdown."""
        bank = self.service.tenant(agent_id)
        record = self.service.known(bank, id)
        ours = [link for link in bank.links(record.id) if all(self._own(bank, end) for end in (link[0], link[2]))]
        return shown(record, ours)

    def _own(self, bank: MemoryBank, id: str) -> bool:
        record = bank.get(id)
        return record is not None and record.namespace == bank.namespace

    def mark(self, id: str, agent_id: str, *, helpful: bool) -> dict[str, Any]:
        """Count a memory as helpful or harmful."""
        bank = self.service.tenant(agent_id)
        record = mark(bank, self.service.known(bank, id).id, helpful)
        trust = self.trust.trust(record, ages(bank, self.trust.ticks_per_day)(record))
        told = {"memory_id": record.id, "helpful": record.n_helpful, "harmful": record.n_harmful}
        return told | {"trust": round(trust, 3)}

    def delete(self, id: str, agent_id: str, *, hard: bool) -> dict[str, Any]:
        """Archive a memory, so that it is not found any more, or erase it and what was merged from it for good."""
        bank = self.service.tenant(agent_id)
        record = self.service.known(bank, id)
        if hard:
            return {"deleted": bank.forget(id=record.id, namespace=bank.namespace), "for_good": True}
        set_status(bank, record.id, "archived", "deleted by the client")
        return {"deleted": [record.id], "for_good": False}

    def export(self, form: str, agent_id: str) -> str:
        """All of an agent's records as one text. The caller names no path: nothing is left on this machine."""
        if form not in ("jsonl", "markdown"):
            raise UserError(f"format={form[:40]}: give jsonl or markdown.")
        bank = self.service.tenant(agent_id)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "export"
            formats.export(bank, path, form, bank.namespace)
            if path.stat().st_size > MAX_EXPORT:
                raise UserError(
                    f"the export has {path.stat().st_size} bytes, an answer at most {MAX_EXPORT}: run "
                    f"`python -m core.memory export {bank.path} FILE --format {form} --namespace {bank.namespace}`."
                )
            return path.read_text(encoding="utf-8")


def _line(record: MemoryRecord, trust: float) -> dict[str, Any]:
    return {
        "memory_id": record.id,
        "title": " / ".join(item.title for item in record.items),
        "tags": list(record.tags),
        "success": record.outcome == "success",
        "helpful": record.n_helpful,
        "harmful": record.n_harmful,
        "trust": round(trust, 3),
    }
