"""The files of the server github.com/hanw39/ReasoningBank-MCP (src/storage/backends/json_backend.py there).

memories.json {version, total_count, memories: [{memory_id, agent_id, timestamp, success, title, description, content,
query, retrieval_count, last_retrieved, tags, metadata, merged_from}]}; beside it embeddings.json {embedding_model,
embedding_dim, embeddings: {memory_id: {query_text, vector, created_at}}} and archived_memories.json. A memory there has
one item: on export a record of several items becomes several memories, on import each memory a record of one item.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.memory.formats.portable import Portable, unit, whole
from core.types import Lesson, MemoryRecord, content_id

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank


def write(bank: MemoryBank, path: Path, namespace: str | None) -> int:
    """Write memories.json (or `path`), embeddings.json and archived_memories.json; returns the number of records."""
    folder, name = (path.parent, path.name) if path.suffix else (path, "memories.json")
    folder.mkdir(parents=True, exist_ok=True)
    live, archived, vectors = [], [], {}
    records = [r for r in bank.records(namespace) if r.status in ("active", "archived", "superseded")]
    names, keepers = _names(records), _keepers(bank, records)
    for record in records:
        for place, item in enumerate(record.items):
            memory = _memory(record, place, item, bank.embedder.name, names)
            kept = keepers.get((record.namespace, record.id))
            if kept is not None and (keeper := names.get((record.namespace, kept))):
                memory["metadata"]["duplicate_of"] = keeper
            (live if record.status == "active" else archived).append(memory)
            if not record.query_embedding:
                continue
            vectors[memory["memory_id"]] = {
                "query_text": record.original_query,
                "vector": list(record.query_embedding),
                "created_at": record.created_at,
            }
    embeddings = {"embedding_model": bank.embedder.name, "embedding_dim": bank.dim() or 0, "embeddings": vectors}
    _dump(folder / name, {"version": "1.0", "total_count": len(live), "memories": live})
    _dump(folder / "embeddings.json", {"version": "1.0"} | embeddings)
    if archived:
        _dump(folder / "archived_memories.json", {"version": "1.0", "memories": archived})
    return len(records)


def _names(records: list[MemoryRecord]) -> dict[tuple[str, str], str]:
    """{(namespace, id): id in the files}. The files have no namespaces: an id used by several becomes NAMESPACE/ID."""
    tenants = Counter(record.id for record in records)
    return {(r.namespace, r.id): r.id if tenants[r.id] == 1 else f"{r.namespace}/{r.id}" for r in records}


def _keepers(bank: MemoryBank, records: list[MemoryRecord]) -> dict[tuple[str, str], str]:
    """{(namespace, id of a superseded record): id of the record that it is a duplicate of}."""
    spaces = dict.fromkeys(record.namespace for record in records if record.status == "superseded")
    links = ((space, link) for space in spaces for link in bank.of(space).links())
    return {(space, link[0]): link[2] for space, link in links if link[1] == "duplicate_of"}


def _memory(
    record: MemoryRecord, place: int, item: Lesson, model: str, names: dict[tuple[str, str], str]
) -> dict[str, Any]:
    name = names[record.namespace, record.id]
    tasks = {"tasks": record.provenance["tasks"]} if "tasks" in record.provenance else {}  # behind a merge
    parents = [names.get((record.namespace, parent), parent) for parent in record.parents]
    return {
        "memory_id": name if len(record.items) == 1 else f"{name}-{place}",
        "agent_id": record.namespace,
        "timestamp": record.created_at,
        "success": record.outcome == "success",
        **vars(item),
        "query": record.original_query,
        "retrieval_count": record.n_used,
        "last_retrieved": None,
        "tags": list(record.tags),
        "metadata": {"embedding_model": model, "task_id": record.task_id, "record_id": record.id} | tasks,
    } | ({"merged_from": parents} if parents else {})


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8", errors="replace", newline="\n")


def read(path: Path, bank: MemoryBank) -> Portable:
    """Read memories.json (or `path`) and the files beside it. UserError names the memory that does not fit."""
    path = path / "memories.json" if path.is_dir() else path
    archive, cache = path.with_name("archived_memories.json"), path.with_name("embeddings.json")
    memories = [(memory, "active") for memory in _list(path)]
    memories += [(memory, "archived") for memory in (_list(archive) if archive.exists() else [])]
    held = whole(cache) if cache.exists() else {}
    vectors = held.get("embeddings", {})
    made_by = held.get("embedding_model", "unknown")
    if made_by == "unknown" and memories:  # as the server writes it
        made_by = (memories[0][0].get("metadata") or {}).get("embedding_model")
    seen: dict[tuple[str, str], MemoryRecord] = {}
    for memory, status in memories:
        try:
            record = _record(memory, status, _vector(memory, vectors), bank.namespace)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: memory {str(memory)[:60]} does not fit: {error}.") from error
        seen.setdefault((record.namespace, record.id), record)
    found = Portable(records=list(seen.values()), embedder=made_by)
    for source, relation, target, space in _links(found.records):
        found.links.setdefault(space, []).append((source, relation, target, ""))
    return found


def _links(records: list[MemoryRecord]) -> Iterator[tuple[str, str, str, str]]:
    """(source, relation, target, namespace) of what was merged or superseded: its query still finds the lesson."""
    memories: dict[tuple[str, str], list[str]] = {}  # (namespace, record's name in the file): ids of its memories
    for record in records:
        names = (
            {record.id, record.id.rpartition("-")[0]} if "record_id" in record.provenance["metadata"] else {record.id}
        )
        for name in names:
            memories.setdefault((record.namespace, name), []).append(record.id)
    for record in records:
        space = record.namespace
        for parent in record.parents:
            yield from ((record.id, "supersedes", id, space) for id in memories.get((space, parent), ()))
        keeper = record.provenance["metadata"].get("duplicate_of")
        if isinstance(keeper, str):
            yield from ((record.id, "duplicate_of", id, space) for id in memories.get((space, keeper), ()))


def _vector(memory: dict, vectors: dict) -> list[float]:
    """The embedding of a memory; [] if there is none, or only one of another memory with the same id."""
    held = vectors.get(memory["memory_id"], {})
    return held.get("vector", []) if held.get("query_text") in (None, "", memory.get("query")) else []


def _list(path: Path) -> list:
    value = whole(path)
    if not isinstance(value, dict) or not isinstance(value.get("memories"), list):
        raise UserError(f"{path} holds no list of memories.")
    return value["memories"]


def _record(memory: dict, status: str, vector: list[float], namespace: str) -> MemoryRecord:
    metadata = memory.get("metadata") or {}
    success = bool(memory.get("success", True))
    item = Lesson(**{name: str(memory.get(name) or "") for name in ("title", "description", "content")})
    query = str(memory.get("query") or item.title)
    tasks = [str(task) for task in metadata.get("tasks") or ()]  # source tasks of a merge: none of them may retrieve it
    return MemoryRecord(
        id=str(memory["memory_id"]),
        original_query=query,
        query_embedding=unit(vector),
        items=(item,),
        source_trajectory_id="",
        score=float(success),
        outcome="success" if success else "failure",
        label_source="import",
        task_id=str(metadata.get("task_id") or content_id("task", query)),
        namespace=str(memory.get("agent_id") or namespace),
        created_at=str(memory.get("timestamp") or ""),
        status=status,
        tags=tuple(str(tag) for tag in memory.get("tags") or ()),
        n_used=int(memory.get("retrieval_count") or 0),
        parents=tuple(str(parent) for parent in memory.get("merged_from") or ()),
        provenance={"source": "ReasoningBank-MCP", "metadata": metadata} | ({"tasks": tasks} if tasks else {}),
    )
