"""Checks of a run's records against each other: ids, which are hashes of content, and the bank.

They find mistakes and hasty changes. Who owns the disk can change all files alike, and nothing finds that. A text from
which a secret was removed (core/redact.py) is passed over: it was hashed with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from analysis.evidence import Check, NotChecked, is_own_kind, known_records, where
from analysis.invariants import CLOSE, is_plain, made_elsewhere
from analysis.runs import Run, read_banks
from core.memory.records import is_altered, ticked, was_told
from core.redact import HIDDEN
from core.run.files import PROMPTS, lines_of
from core.run.records import every_try, records_of
from core.run.unfinished import trajectory_of
from core.types import MemoryRecord, content_id, trajectory_id

SHORT = 600  # characters of a query that is embedded whole; of a longer one the part that others do not share counts


def content_ids(run: Run) -> Iterator[str]:
    """An attempt or a record whose id is not the hash of its content, or that is of another episode."""
    require_unscrubbed(run)
    for row in every_try(run.path):
        for attempt in row["trajectories"]:
            if not hidden(attempt) and trajectory_id(row["task_id"], trajectory_of(attempt)) != attempt["id"]:
                yield f"{where(row)}: attempt {attempt['sample']} is not what its id was made from"
        yield from made_elsewhere(row)


def changed_prompts(run: Run) -> Iterator[str]:
    """Prompts of judge, selector or extractor (prompts.jsonl) that are not those that were sent."""
    require_unscrubbed(run)
    for row in lines_of(run.path, PROMPTS):
        if not hidden(row) and content_id(row["messages"]) != row["id"]:
            yield f"prompts.jsonl: {row['id']} is not what its id was made from"


def odd_endings(run: Run) -> Iterator[str]:
    """Attempts that ended by reaching the goal and are stored as a failure, or without it and as a success."""
    for row in every_try(run.path):
        for attempt in row["trajectories"]:
            if attempt["ended_by"] in ("goal", "end") and attempt["success"] != (attempt["ended_by"] == "goal"):
                said = "success" if attempt["success"] else "failure"
                yield f"{where(row)}: attempt {attempt['sample']} is a {said}, ended_by is {attempt['ended_by']}"


def changed_lessons(run: Run) -> Iterator[str]:
    """A record in the bank, or one that was retrieved, with other lessons than those that its id was made from."""
    made = {record.id: record for row in every_try(run.path) for record in records_of(row)}
    for stored in run.banked:
        if stored.id in made and is_altered(stored, made[stored.id]):
            yield f"record {stored.id} in the bank holds other lessons than its episode"
    records = known_records(run)
    retrieved = {hit["id"] for row in run.rows for hit in row["retrieved"]} - made.keys()
    for id in sorted(retrieved):
        for record in records[id]:
            if not came_from(record):
                yield f"record {id}, which was retrieved, is not what its id was made from"


def came_from(record: MemoryRecord) -> bool:
    """Whether a record's id is the hash of its content; True where it is no such hash (a client's, a merged one).

    In a bank that others had filled its tick is later than the index of its episode, which was hashed.
    """
    if was_told(record):
        return record.id == content_id("told", record.domain, record.text)
    by_a_run = record.provenance.get("run") and record.source_trajectory_id and not record.parents
    if not by_a_run or record.provenance.get("hygiene") or hidden(record.text):
        return True
    return any(ticked(record, index).id == record.id for index in range(record.tick, -1, -1))


def hidden(value: Any) -> bool:
    """Whether a secret was removed from a text, or from JSON data."""
    return HIDDEN in (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def require_unscrubbed(run: Run) -> None:
    """Raise NotChecked if `scrub_episodes` may have changed the texts that ids were made from."""
    if run.config.get("scrub_episodes"):
        raise NotChecked("scrub_episodes=true changed the texts that ids were made from")


def other_queries(run: Run) -> Iterator[str]:
    """Retrievals whose scores are not those of the task's own query, so that another text was searched for."""
    import numpy as np

    if not is_plain(run) or not is_own_kind(run):
        return
    stored = [record for record in read_banks(run, must=False, vectors=True) if record.query_embedding]
    vectors = {record.id: np.array(record.query_embedding) for record in stored}
    queries = {record.original_query: vectors[record.id] for record in stored if len(record.original_query) < SHORT}
    short = {record.id for record in stored if len(record.original_query) < SHORT}
    rows = [row for row in run.rows if row["query"] in queries]
    hits = [(row, hit) for row in rows for hit in row["retrieved"] if hit["id"] in short]
    other = [row for row, hit in hits if abs(vectors[hit["id"]] @ queries[row["query"]] - hit["score"]) > CLOSE]
    if other:
        yield f"{len(other)} of {len(hits)} lessons were found by another text than the task's query: {where(other[0])}"


LOOK: tuple[Check, ...] = (changed_prompts, odd_endings, other_queries)
BROKEN: tuple[Check, ...] = (content_ids, changed_lessons)
