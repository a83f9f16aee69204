"""Eight tools with the names and parameters of another server's, mcp-learning-memory 0.2.1 (`--tools ace`)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal

from mcp_types import CallToolResult

from core.memory.bank import MemoryBank
from core.memory.by_hand import mark_record, mark_used
from core.memory.filter import Filter
from core.memory.formats.insight_memory import as_insight
from core.memory.moment import added_at, last_use
from core.memory.policies.points import Points
from core.memory.policies.trust import feedback
from core.types import MemoryRecord
from mcp_server import checks
from mcp_server.insights import delete, exported, store_insight, with_tags
from mcp_server.service import Service, describe_stored, find_record
from mcp_server.tools import result

MOST = 1000  # max. insights in one answer
PREVIEW = 100  # characters
START = datetime.fromtimestamp(0, UTC)  # stands for the time of a record without a readable one
SORT = {
    "created": lambda record: added_at(record) or START,
    "lastUsed": lambda record: last_use(record) or START,
    "helpful": lambda record: record.n_helpful,
}


class AceTools:
    """Each public method is a tool, as in MemoryTools. They have no agent_id: they use `memory.namespace`, or
    with --tokens the caller's namespace.

    Insights are stored as written: only the other profiles remove duplicates and merge.
    """

    def __init__(self, service: Service | None = None) -> None:
        # Without a service the tools can be listed, not called.
        self._service, self._points = service, Points()

    def add_insight(
        self, title: str, tags: list[str], content: str, overwrite: bool = False, sourceUrl: str = ""
    ) -> CallToolResult:
        """Save an insight. A similar title is a duplicate: you get its id, and with overwrite=true it is updated."""
        bank = self._bank()
        status, id = store_insight(bank, title, tags, content, sourceUrl, overwrite=overwrite)
        record = bank.get(id)
        say = {
            "saved": "The insight is saved.",
            "replaced": "The insight is updated.",
            "already_known": "This very insight is saved already.",
            "taken": "An insight with a similar title exists: give overwrite=true to update it, or another title.",
            "quarantined": "The insight is kept but not shown to anyone, for the reason in `why`.",
        }[status]
        status = {"replaced": "updated", "already_known": "duplicate", "taken": "duplicate"}.get(status, status)
        about = describe_stored(bank, id)
        why = {"why": about["why"]} if "why" in about and status != "duplicate" else {}
        return result({"status": status, "message": say} | preview(record) | why)

    def list_index(
        self,
        tags: list[str] = [],  # noqa: B006 - read only
        minHelpful: int = 0,
        sortBy: Literal["created", "lastUsed", "helpful"] = "lastUsed",
        limit: int = 50,
    ) -> CallToolResult:
        """List insights with tags, trust and a preview of their content. tags: all of them."""
        limit, tags = checks.whole_number("limit", limit, 1, MOST), checks.tags(tags)
        bank = self._bank()
        newest_first = bank.records(bank.namespace, "active")[::-1]
        records = [record for record in with_tags(newest_first, tags) if record.n_helpful >= minHelpful]
        records.sort(key=SORT[sortBy], reverse=True)
        return result({"total": len(records), "insights": [preview(record) for record in records[:limit]]})

    def search_insights(self, query: str, limit: int = 5) -> CallToolResult:
        """Search titles, content and tags; ranked by match, trust and age. get_detail has the full content."""
        query = checks.query(query, self._service.settings)
        limit, bank = checks.whole_number("limit", limit, 1, MOST), self._bank()
        hits = self._points.rank(bank, query, limit, None, Filter(statuses=("active",)))
        return result({"insights": [{"score": round(hit.score, 3)} | preview(hit.record) for hit in hits]})

    def get_detail(self, id: str) -> CallToolResult:
        """The full content of an insight."""
        bank = self._bank()
        return result(detail(mark_used(bank, find_insight(bank, id).id)))

    def mark_helpful(self, id: str) -> CallToolResult:
        """Count an insight as helpful: it will rank higher."""
        return self._mark(id, helpful=True)

    def mark_harmful(self, id: str) -> CallToolResult:
        """Count an insight as outdated or wrong: it will rank lower and carry a warning."""
        return self._mark(id, helpful=False)

    def delete_insight(self, id: str, permanent: bool = True) -> CallToolResult:
        """Delete an insight permanently. With permanent=false it goes to the archive."""
        bank = self._bank()
        return result({"deleted": delete(bank, find_insight(bank, id).id, for_good=permanent), "permanent": permanent})

    def export_memory(self, format: Literal["json", "markdown"] = "json") -> CallToolResult:
        """Export all insights."""
        text = exported(self._bank(), format)
        return result(json.loads(text) if format == "json" else None, text, exact=True)

    def _bank(self) -> MemoryBank:
        return self._service.bank_for("")

    def _mark(self, id: str, *, helpful: bool) -> CallToolResult:
        bank = self._bank()
        return result(preview(mark_record(bank, find_insight(bank, id).id, helpful, used=True)))


def find_insight(bank: MemoryBank, id: str) -> MemoryRecord:
    """The insight with this id. Raises UserError if there is none."""
    return find_record(bank, id, "insight", "list_index and search_insights")


def detail(record: MemoryRecord) -> dict[str, Any]:
    """An insight in full, without fields that are None; with a warning if its trust is below 0."""
    insight = {name: value for name, value in as_insight(record).items() if value is not None}
    if feedback(record) < 0:
        insight["warning"] = f"low trust: marked helpful {record.n_helpful}, harmful {record.n_harmful}"
    return insight if record.status == "active" else insight | {"status": record.status}


def preview(record: MemoryRecord) -> dict[str, Any]:
    """An insight with the beginning of its content."""
    insight = detail(record)
    content = insight.pop("content")
    return insight | {"preview": content[:PREVIEW]}
