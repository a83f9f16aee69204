"""Retrieval asked again, from a run's bank and its episodes: was what a task was shown the nearest that there was?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from core.memory.store.bank_file import read_records

if TYPE_CHECKING:
    from results.load import Run

CLOSE = 1e-3  # in cosine: what is nearer by less may be rounding
# The keys under which retrieval is the cosine of two queries and nothing else: a bank that only grows, searched whole.
PLAIN_MEMORY = {"path": None, "unit": "record", "key": "query", "index": "flat", "hygiene": None, "consolidate": None}
PLAIN_RETRIEVAL = dict.fromkeys(("unit", "key", "min_score", "domain", "outcome", "min_confidence"))


def can_be_asked(run: Run) -> bool:
    """Whether the run's retrieval is plain enough, and its bank there."""
    retrieval = run.config.get("retrieval") or {}
    plain = all(run.memory.get(key) == value for key, value in PLAIN_MEMORY.items())
    plain = plain and all(retrieval.get(key) == value for key, value in PLAIN_RETRIEVAL.items())
    named = retrieval.get("_target_", "") == "core.memory.policies.cosine.Cosine" and not retrieval.get("tags")
    return plain and named and (run.path / "bank.sqlite").is_file()


def nearer(run: Run) -> Iterator[tuple[dict[str, Any], str]]:
    """(row, record) of each task that was not shown a record that was nearer than one it was shown, or was free.

    What there was when it began are the records of the episodes that it had `seen`, less those of the task itself.
    """
    import numpy as np

    records = read_records(run.path / "bank.sqlite", run.memory.get("namespace", "default"), vectors=True)
    made = {record.id: np.array(record.query_embedding) for record in records if record.query_embedding}
    queries = {record.original_query: made[record.id] for record in records if record.id in made}
    born = [(row["index"], row["task_id"], r["id"]) for row in run.rows for r in row["records"] if r["id"] in made]
    for row in run.rows:
        if row["status"] == "infra_error" or row["query"] not in queries:
            continue
        shown = {hit["id"]: hit["score"] for hit in row["retrieved"]}
        there = [id for index, task, id in born if index < row["seen"] and task != row["task_id"] and id not in shown]
        full = len(shown) >= run.config["retrieval"]["top_k"]
        least = min(shown.values(), default=-1.0) + CLOSE if full else -2.0
        best = max(there, key=lambda id: made[id] @ queries[row["query"]], default=None)
        if best is not None and made[best] @ queries[row["query"]] > least:
            yield row, best
