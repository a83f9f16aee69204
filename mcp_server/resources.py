"""The bank as resources: lesson://ID for each lesson and bank://status, which say what get_detail and bank_status say.

They follow the tools' rules on whose memory is read. A list holds the active lessons of the caller's own memory.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, Completion, ListResourcesResult, Resource

from core.control_tokens import escape
from core.escaping import printable
from mcp_server import checks
from mcp_server.tools import MemoryTools

if TYPE_CHECKING:
    from mcp_server.service import Service

LESSON, STATUS = "lesson://{memory_id}{?agent_id}", "bank://status{?agent_id}"
PAGE = 100  # lessons in one part of the list
MOST_COMPLETED = 100  # by the protocol


class Resources:
    """What the server gives as resources. Errors are UserErrors with one sentence."""

    def __init__(self, service: Service) -> None:
        self._service, self._tools = service, MemoryTools(service)

    def templates(self) -> list[dict[str, Any]]:
        """The arguments of the SDK's `ResourceManager.add_template`, for each kind of resource."""
        return [
            {
                "fn": self.lesson,
                "uri_template": LESSON,
                "name": "lesson",
                "title": "A lesson",
                "description": "Everything about one memory, as get_detail shows it.",
                "mime_type": "text/markdown",
            },
            {
                "fn": self.status,
                "uri_template": STATUS,
                "name": "status",
                "title": "Status of the memory bank",
                "description": "Counts, embedder and model, as bank_status gives them.",
                "mime_type": "application/json",
            },
        ]

    def lesson(self, memory_id: str, agent_id: str = "") -> str:
        return self._tools.get_detail(memory_id, agent_id).content[0].text

    def status(self, agent_id: str = "") -> str:
        return self._tools.bank_status(agent_id).content[0].text

    def listed(self, cursor: str | None) -> ListResourcesResult:
        """A part of the list, newest lesson first; with --require-agent-id nothing, as a list names no agent.

        cursor   of the part before; None: from the beginning. Raises MCPError for one that this server did not give.
        """
        if self._service.require_agent and not self._service.bound:
            return ListResourcesResult(resources=[])
        status = Resource(
            uri="bank://status", name="status", title="Status of the memory bank", mime_type="application/json"
        )
        lessons = self._service.bank_for("").titles()[::-1]
        rest = lessons if cursor is None else _after(lessons, *_read(cursor))
        shown = [
            Resource(uri=f"lesson://{quote(id, safe='')}", name=id, title=_line(title), mime_type="text/markdown")
            for id, title in rest[:PAGE]
        ]
        more = _cursor(len(rest) - PAGE, rest[PAGE - 1][0]) if len(rest) > PAGE else None
        return ListResourcesResult(resources=[*([status] if cursor is None else []), *shown], next_cursor=more)

    def completed(self, uri: str, argument: str, beginning: str, agent_id: str) -> Completion:
        """The ids of active lessons that begin so. Names of agents are not told."""
        if uri != LESSON or argument != "memory_id":
            return Completion(values=[], total=0, has_more=False)
        beginning = checks.text("memory_id", beginning, 200, empty=True)
        ids = [id for id, _ in self._service.bank_for(agent_id).titles()[::-1] if id.startswith(beginning)]
        return Completion(values=ids[:MOST_COMPLETED], total=len(ids), has_more=len(ids) > MOST_COMPLETED)


def _line(title: str) -> str:
    """A title, which others wrote, as one line that does no harm on a screen or in a prompt."""
    return escape(printable(" ".join(title.split())))[:200]


def _cursor(left: int, id: str) -> str:
    return base64.urlsafe_b64encode(f"{left} {id}".encode()).decode()


def _read(cursor: str) -> tuple[int, str]:
    try:
        left, _, id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(" ")
        return int(left), id
    except ValueError:  # no base64, no UTF-8, no number
        raise MCPError(INVALID_PARAMS, "the cursor is none of this server's: list from the beginning.") from None


def _after(lessons: list[tuple[str, str]], left: int, id: str) -> list[tuple[str, str]]:
    """The lessons after one. If that one has gone meanwhile: as many as were left, since new ones come before it."""
    place = next((place for place, (known, _) in enumerate(lessons) if known == id), None)
    return lessons[place + 1 :] if place is not None else lessons[max(len(lessons) - max(left, 0), 0) :]
