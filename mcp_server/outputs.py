"""What each tool answers with: the JSON schemas (`outputSchema`) of `structuredContent`, and the tools' titles.

A schema names the fields that clients can rely on and their types. Fields that it does not name may come as well.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT, WHOLE, NUMBER, YES_NO = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))

TITLES = {
    "retrieve_memory": "Retrieve lessons for a task",
    "extract_memory": "Learn from an attempt",
    "task_status": "Status of an extraction",
    "save_lesson": "Save a lesson",
    "mark_helpful": "Mark a memory as helpful",
    "mark_harmful": "Mark a memory as harmful",
    "get_detail": "Show a memory",
    "bank_status": "Status of the memory bank",
    "add_insight": "Add an insight",
    "list_index": "List what is stored",
    "search_insights": "Search insights",
    "delete_insight": "Delete an insight",
    "export_memory": "Export all memories",
    "contrast_attempts": "Learn from several attempts",
}


def record(required: str = "", **fields: Schema) -> Schema:
    """The schema of an object. required: the fields that are always there, separated by blanks."""
    return {"type": "object", "properties": fields} | ({"required": required.split()} if required else {})


def many(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def or_null(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


_USAGE = {
    "helpful": WHOLE,
    "harmful": WHOLE,
    "trust": NUMBER,
    "last_used": TEXT,
    "warning": TEXT,
    "sourceUrl": TEXT,
}
_MEMORY = {
    "memory_id": TEXT,
    "score": NUMBER,
    "similarity": or_null(NUMBER),
    "title": TEXT,
    "description": TEXT,
    "content": TEXT,
    "success": YES_NO,
    "agent_id": TEXT,
}
_STORED = {
    "memory_id": TEXT,
    "state": TEXT,
    "titles": many(TEXT),
    "duplicate_of": TEXT,
    "replaced_by": TEXT,
    "why": many(TEXT),
}
_LEARNED = {
    **_STORED,
    "success": YES_NO,
    "extracted_count": WHOLE,
    "memories": many(record("title description", title=TEXT, description=TEXT)),
    "best": WHOLE,
    "outcomes": many(TEXT),
}
_MARKED = record("memory_id helpful harmful trust", memory_id=TEXT, **_USAGE)
_SAVED = record("status memory_id state titles", status=TEXT, **_STORED)
_BEGUN = record(
    "status task_id async_mode agent_id",
    status=one_of("success", "processing", "completed", "failed"),
    message=TEXT,
    task_id=TEXT,
    async_mode=YES_NO,
    agent_id=TEXT,
    waits_for_model=TEXT,
    **_LEARNED,
)
_STATUS = record(
    "version agent_id records embedder model pending_jobs failed_jobs preset retrieval clock changes",
    version=TEXT,
    bank=TEXT,
    agent_id=TEXT,
    records={"type": "object", "additionalProperties": WHOLE},
    embedder=record("name", name=TEXT, loaded=or_null(TEXT), dim=WHOLE, since=TEXT, texts_in_windows=WHOLE),
    model=or_null(TEXT),
    model_is_missing=TEXT,
    pending_jobs=WHOLE,
    failed_jobs=WHOLE,
    preset=TEXT,
    settings=TEXT,
    retrieval=TEXT,
    clock=TEXT,
    changes=WHOLE,
    retrieved_by_words=WHOLE,
)

_MEMORY_TOOLS = {
    "retrieve_memory": record(
        "status min_score_threshold filtered_count memories formatted_prompt",
        status=one_of("success", "no_memories"),
        min_score_threshold=or_null(NUMBER),
        filtered_count=WHOLE,
        memories=many(record(" ".join(_MEMORY), **_MEMORY)),
        formatted_prompt=TEXT,
    ),
    "extract_memory": _BEGUN,
    "contrast_attempts": _BEGUN,
    "task_status": record(
        "status task_id since",
        status=one_of("processing", "completed", "failed"),
        task_id=TEXT,
        since=TEXT,
        error=TEXT,
        **_LEARNED,
    ),
    "save_lesson": _SAVED,
    "add_insight": _SAVED,
    "mark_helpful": _MARKED,
    "mark_harmful": _MARKED,
    "get_detail": record("text", text=TEXT),
    "bank_status": _STATUS,
    "list_index": record(
        "total insights",
        total=WHOLE,
        insights=many(
            record(
                "memory_id title tags success helpful harmful trust",
                memory_id=TEXT,
                title=TEXT,
                tags=many(TEXT),
                success=YES_NO,
                **_USAGE,
            )
        ),
    ),
    "search_insights": record("insights", insights=many(record(" ".join(_MEMORY), **_MEMORY, **_USAGE))),
    "delete_insight": record("deleted for_good", deleted=many(TEXT), for_good=YES_NO),
    "export_memory": record("text", text=TEXT),
}

_FACTS = {
    "id": TEXT,
    "title": TEXT,
    "tags": many(TEXT),
    "helpful": WHOLE,
    "harmful": WHOLE,
    "trustScore": NUMBER,
    "created": TEXT,
    "lastUsed": TEXT,
    "sourceUrl": TEXT,
    "success": YES_NO,
    "status": TEXT,
    "warning": TEXT,
}
_ALWAYS = "id title tags helpful harmful trustScore"
_PREVIEW = record(f"{_ALWAYS} preview", **_FACTS, preview=TEXT)
_INSIGHT = record(f"{_ALWAYS} content", **_FACTS, content=TEXT)
_MAYBE = {name: or_null(TEXT) for name in ("created", "lastUsed", "sourceUrl")}
_EXPORTED = record(f"{_ALWAYS} content", **_FACTS | _MAYBE, content=TEXT)
_FOUND = record(f"score {_ALWAYS} preview", score=NUMBER, **_FACTS, preview=TEXT)

_ACE_TOOLS = {
    "add_insight": record(f"{_ALWAYS} preview message status", **_FACTS, preview=TEXT, message=TEXT, why=many(TEXT)),
    "list_index": record("total insights", total=WHOLE, insights=many(_PREVIEW)),
    "search_insights": record(
        "insights", insights=many(record("score id title", score=NUMBER, **_PREVIEW["properties"]))
    ),
    "get_detail": _INSIGHT,
    "mark_helpful": _PREVIEW,
    "mark_harmful": _PREVIEW,
    "delete_insight": record("deleted permanent", deleted=many(TEXT), permanent=YES_NO),
    "export_memory": record(version=WHOLE, insights=many(_EXPORTED), text=TEXT),
}


def output_schema(profile: str, tool: str) -> Schema:
    """The schema of a tool's structured content; two profiles have tools of the same name."""
    return (_ACE_TOOLS if profile == "ace" else _MEMORY_TOOLS)[tool]
