"""What the page reads: a small index of every episode, and the whole episodes packed, opened only when looked at."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.memory.store.bank_file import read_records
from core.memory.store.schema import to_dict
from core.run.records import answer_of, usage_of
from results.load import Run
from results.studies import slug

CHUNK_CHARS = 400_000  # of episodes in one packed piece: what opening one of them costs
QUERY_CHARS = 240  # of a task's query in the index


def index_of(named: list[tuple[Run, str]]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """(index, [(element id, packed episodes)]). A run's `starts` are the first positions of its pieces.

    A row of the index is [task, status, label, steps, tokens, retrieved, lessons, attempts, error].
    """
    places: dict[str, int] = {}
    tasks, listed, pieces = [], [], []
    for number, (run, label) in enumerate(named):
        rows = []
        for row in run.rows:
            if row["task_id"] not in places:
                places[row["task_id"]] = len(tasks)
                tasks.append([row["task_id"], row["task_type"], row["query"][:QUERY_CHARS]])
            rows.append([places[row["task_id"]], *_facts(row)])
        starts = []
        for start, text in _packed(run):
            pieces.append((f"r{number}c{len(starts)}", text))
            starts.append(start)
        listed.append({"key": slug(label), "label": label, "n_tasks": run.n_tasks, "starts": starts, "rows": rows})
    keys = [run["key"] for run in listed]
    for number, run in enumerate(listed):
        run["key"] += f"-{number}" if keys.count(run["key"]) > 1 else ""
    return {"runs": listed, "tasks": tasks}, pieces


def embedded(value: Any) -> str:
    """JSON that may stand in a <script> element: ASCII, and nothing in it can end the element or open a comment."""
    return (
        json.dumps(value, separators=(",", ":")).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def _facts(row: dict) -> list[Any]:
    used = usage_of(row)
    chosen = answer_of(row)
    return [
        row["status"],
        row["verdict"]["label"],
        len(chosen["steps"]),
        used.tokens,
        len(row["retrieved"]),
        len(row["lessons"]),
        len(row["trajectories"]),
        (chosen["error"] or "")[:120],
    ]


def _packed(run: Run) -> Iterator[tuple[int, str]]:
    """(position of its first episode, base64 of gzip of JSON lines) for each piece of the run."""
    known = lessons_of(run)
    lines: list[str] = []
    size = start = 0
    for place, row in enumerate(run.rows):
        line = json.dumps(_with_lessons(row, known), separators=(",", ":"))
        if lines and size + len(line) > CHUNK_CHARS:
            yield start, _pack(lines)
            lines, size, start = [], 0, place
        lines.append(line)
        size += len(line)
    if lines:
        yield start, _pack(lines)


def _pack(lines: list[str]) -> str:
    return base64.b64encode(gzip.compress("\n".join(lines).encode("ascii"), 6, mtime=0)).decode("ascii")


def _with_lessons(row: dict, known: dict[str, dict]) -> dict:
    """The row with the texts of what it retrieved, and without what it says twice."""
    retrieved = [{**found, **known.get(found["id"], {})} for found in row["retrieved"]]
    kept = {key: value for key, value in row.items() if key not in ("records", "index", "schema")}
    return kept | {"retrieved": retrieved}


def lessons_of(run: Run) -> dict[str, dict]:
    """{record id: {items, task_id, outcome}} of all that the run could retrieve; what was made here wins."""
    known = {
        record["id"]: {key: record[key] for key in ("items", "task_id", "outcome")}
        for row in run.rows
        for record in row["records"]
    }
    memory = run.config.get("memory") or {}
    for path in (memory.get("path"), run.path / "bank.sqlite"):
        if path is not None and any(found["id"] not in known for row in run.rows for found in row["retrieved"]):
            known = _in_bank(Path(path), memory.get("namespace", "default")) | known
    return known


def _in_bank(path: Path, namespace: str) -> dict[str, dict]:
    """The records of a bank file; nothing where it cannot be read: the report then shows their ids alone."""
    try:
        records = read_records(path, namespace)
    except UserError:
        return {}
    names = ("items", "task_id", "outcome")
    return {record.id: {name: to_dict(record)[name] for name in names} for record in records}
