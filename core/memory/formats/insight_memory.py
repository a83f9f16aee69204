"""The file of the insight memory server (mcp-learning-memory 0.2.1, memory.json): {version, insights: [insight]}.

An insight is {id, title, tags, content, helpful, harmful, trustScore, created, lastUsed, sourceUrl}, times in ISO. The
server's README names the fields and shows no file, so more forms than this one are read: insights by id, or no object
around them, times in milliseconds, counts and times with longer names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.memory.filter import normal_tag
from core.memory.formats.portable import Portable, whole
from core.memory.moment import added_at, last_use
from core.memory.policies.trust import feedback
from core.types import Lesson, MemoryRecord, content_id

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

VERSION = 1
KEY = 800  # characters of the content in an insight's key: as much as MiniLM reads
MILLISECONDS = 1e11  # a larger time is in milliseconds: in seconds it would be after the year 5138
ID = re.compile(r"ace-(\d{6,12})")
LAST = "insights: the last number"  # key of a namespace value: so that ids of deleted insights are not reused


def write(bank: MemoryBank, path: Path, namespace: str | None) -> int:
    """Write the active records; returns how many."""
    insights = [as_insight(record) for record in bank.records(namespace, "active")]
    value = {"version": VERSION, "insights": insights}
    path.write_text(
        json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", errors="replace", newline="\n"
    )
    return len(insights)


def as_insight(record: MemoryRecord) -> dict[str, Any]:
    """Convert a record to an insight; several lessons become one text."""
    texts = ["\n\n".join(filter(None, (item.description, item.content))) for item in record.items]
    if len(texts) > 1:
        texts = [f"{item.title}\n{text}" for item, text in zip(record.items, texts)]
    insight = {
        "id": record.id,
        "title": " / ".join(item.title for item in record.items),
        "tags": list(record.tags),
        "content": "\n\n".join(texts),
        "helpful": record.n_helpful,
        "harmful": record.n_harmful,
        "trustScore": round(feedback(record), 3),
        "created": iso(added_at(record)),
        "lastUsed": iso(last_use(record)),
        "sourceUrl": record.provenance.get("url"),
    }
    return insight if record.outcome == "success" else insight | {"success": False}


def iso(moment: datetime | None) -> str | None:
    """A time as JavaScript writes it, 2026-01-31T09:30:00.000Z; None for None."""
    return moment and moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def next_id(bank: MemoryBank, beside: Iterable[str] = ()) -> tuple[str, int]:
    """(id, number) for the next insight in the bank's namespace. beside: further ids in use."""
    taken = [int(found[1]) for id in (*bank.ids(), *beside) if (found := ID.fullmatch(id))]
    number = max(int(bank.fact(LAST) or 0), *taken, 0) + 1
    return f"ace-{number:06}", number


def query_of(title: str, tags: Iterable[str], content: str) -> str:
    """An insight's query in the bank, whose embedding is its key: title, tags and the beginning of its content."""
    return (f"{title} ({', '.join(tags)})" if tags else title) + f"\n{content[:KEY]}"


def read(path: Path, bank: MemoryBank) -> Portable:
    """Read a memory.json. UserError names the entry that does not fit.

    An insight whose id belongs to another insight in the bank gets the next free id, so that two files can be merged.
    """
    found: dict[str, MemoryRecord] = {}
    insights = _insights(path)
    known = {key: record for record in bank.records(bank.namespace) for key in _keys(record)}
    for number, insight in enumerate(insights, 1):
        try:
            record = _record(insight, bank.namespace)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UserError(f"{path}: insight {number} cannot be read: {error}.") from error
        if same := next((known[key] for key in _keys(record) if key in known), None):
            record = replace(record, id=same.id)
        other = found.get(record.id) or bank.get(record.id)
        if not record.id or (other is not None and not _versions_of_one(record, other)):
            record = replace(record, id=next_id(bank, (*found, *(str(each.get("id")) for each in insights)))[0])
        found.setdefault(record.id, record)
    return Portable(records=list(found.values()))


def _insights(path: Path) -> list[dict]:
    value = whole(path)
    value = value.get("insights", value) if isinstance(value, dict) else value
    if isinstance(value, dict) and value and all(isinstance(each, dict) for each in value.values()):
        value = [{"id": id} | each for id, each in value.items()]
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UserError(f"{path} holds no list of insights.")
    return value


def _versions_of_one(record: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether two records with the same id are versions of the same insight."""
    return _title(record) == _title(other) or record.created_at == other.created_at != ""


def _title(record: MemoryRecord) -> str:
    return record.items[0].title if record.items else ""


def _keys(record: MemoryRecord) -> list[tuple[str, ...]]:
    """Keys that identify an insight regardless of its id: (title, time added) and its text."""
    made = [("made", _title(record), record.created_at)] if record.created_at else []
    return [*made, ("says", record.text)]


def _record(insight: dict, namespace: str) -> MemoryRecord:
    title, content = _text(insight, "title"), _text(insight, "content")
    tags = tuple(dict.fromkeys(normal_tag(tag) for tag in insight.get("tags") or ()))
    created, used = (_time(insight, *names) for names in (("created", "createdAt"), ("lastUsed", "lastUsedAt")))
    success, query = bool(insight.get("success", True)), query_of(title, tags, content)
    return MemoryRecord(
        id=str(insight.get("id") or ""),
        original_query=query,
        items=(Lesson(title=title, description="", content=content),),
        source_trajectory_id="",
        score=float(success),
        outcome="success" if success else "failure",
        label_source="import",
        task_id=content_id("task", query),
        namespace=namespace,
        created_at=iso(created) or "",
        tags=tags,
        n_helpful=_count(insight, "helpful", "helpfulCount"),
        n_harmful=_count(insight, "harmful", "harmfulCount"),
        last_used=used and used.timestamp(),
        provenance={"source": "insight memory", "kind": "insight"}
        | ({"url": str(insight["sourceUrl"])} if insight.get("sourceUrl") else {}),
    )


def _text(insight: dict, name: str) -> str:
    value = insight.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"it has no {name}")
    return value.strip()


def _count(insight: dict, *names: str) -> int:
    """The count under the first of these names that is present; 0 if none is."""
    value = next((insight[name] for name in names if insight.get(name) is not None), 0)
    if not isinstance(value, (int, float)) or value != int(value) or value < 0:
        raise ValueError(f"{names[0]}={value!r} is no count")
    return int(value)


def _time(insight: dict, *names: str) -> datetime | None:
    """The time under the first of these names that is present: ISO, or seconds or milliseconds since 1970."""
    value = next((insight[name] for name in names if insight.get(name)), None)
    if value is None:
        return None
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value / 1000 if value > MILLISECONDS else value, UTC)
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
