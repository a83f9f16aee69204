"""The files of the paper's authors (github.com/google-research/reasoning-bank, WebArena/induce_memory.py and
memory_management.py): a bank of JSON lines {task_id, query, think_list, action_list, status: success | fail,
memory_items, template_id} and, beside it, a cache of JSON lines {id, text, embedding}, id being the task's.

Their memory_items are the model's text split at empty lines, unparsed. Here they are parsed as the paper's format
("# Memory Item 1", "## Title", ...); other text becomes one item. The cache also has queries without a record, and some
tasks twice: the last embedding of a task counts.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.learning.structured import parse_lessons
from core.memory.formats.portable import Portable, rows, unit
from core.types import Lesson, MemoryRecord, content_id

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

EMBEDDER = "gemini-embedding-001"  # the authors' default; the cache does not name its embedder
MANY = 10_000  # max. items of a record: practically no limit


def write(bank: MemoryBank, path: Path, namespace: str | None) -> int:
    """Write the active records and, beside them, `<name>_embeddings.jsonl`; returns how many."""
    records = [record for record in bank.records(namespace) if record.status == "active"]
    to_write = partial(Path.open, mode="w", encoding="utf-8", newline="\n")
    with to_write(path) as bank_file, to_write(_own(path)) as cache:
        for record in records:
            items = [
                f"# Memory Item {number}\n## Title {item.title}\n## Description {item.description}\n"
                f"## Content {item.content}"
                for number, item in enumerate(record.items, 1)
            ]
            row = {
                "task_id": record.task_id,
                "query": record.original_query,
                "think_list": [],
                "action_list": [],
                "status": "success" if record.outcome == "success" else "fail",
                "memory_items": items,
                "template_id": None,
            }
            bank_file.write(json.dumps(row) + "\n")
            embedding = list(record.query_embedding)
            cache.write(
                json.dumps({"id": record.task_id, "text": record.original_query, "embedding": embedding}) + "\n"
            )
    return len(records)


def read(path: Path, bank: MemoryBank) -> Portable:
    """Read a bank and its cache, if there is one. UserError names the line that does not fit."""
    cache, vectors = _cache(path), {}
    if cache.exists():
        for number, row in rows(cache):
            try:
                vectors[str(row["id"])] = unit(row["embedding"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{cache} line {number} holds no embedding: {error}.") from error
    records = {}
    for number, row in rows(path):
        try:
            record = _record(row, vectors, bank.namespace)
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} line {number} holds no experience: {error}.") from error
        if record.items:
            records.setdefault(record.id, record)
    return Portable(records=list(records.values()), embedder=EMBEDDER)


def _record(row: dict, vectors: dict[str, tuple[float, ...]], namespace: str) -> MemoryRecord:
    found, task = row["memory_items"], str(row["task_id"])
    text = found if isinstance(found, str) else "\n\n".join(found)
    query, success = str(row.get("query") or ""), row.get("status") == "success"
    return MemoryRecord(
        id=content_id("authors", task, query, text),
        original_query=query or task,
        query_embedding=vectors.get(task, ()),
        items=_items(text),
        source_trajectory_id="",
        score=float(success),
        outcome="success" if success else "failure",
        label_source="import",
        task_id=task,
        namespace=namespace,
        provenance={"source": "authors", "template_id": row.get("template_id")},
    )


def _items(text: str) -> tuple[Lesson, ...]:
    items, _ = parse_lessons(text, MANY)
    if items or not text.strip():
        return tuple(items)
    lines = text.strip().splitlines()
    return (Lesson(title=lines[0].strip("# ")[:120], description="", content=text.strip()),)


def _cache(path: Path) -> Path:
    """Path of a bank's embeddings: its own file (as in WebArena), or the folder's (default of the authors' code)."""
    return _own(path) if _own(path).exists() else path.with_name("embeddings.jsonl")


def _own(path: Path) -> Path:
    return path.with_name(f"{path.stem}_embeddings.jsonl")
