"""The common form (`Portable`) into which every format is read, and its import into a bank."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.memory.filter import STATUSES
from core.memory.store.changes import RELATIONS
from core.textfile import read_text
from core.types import MemoryRecord

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

BATCH = 5_000  # max. records of one transaction
MOST = 2**53  # largest number accepted
LONGEST = 1.01  # max. norm of a unit vector, with rounding errors


@dataclass(kw_only=True)
class Portable:
    """Records and links read from a file.

    embedder   of the records' embeddings; None: unknown, so the records are embedded again
    links      {namespace: [(source, relation, target, note)]}
    """

    records: list[MemoryRecord]
    embedder: str | None = None
    links: dict[str, list[tuple[str, str, str, str]]] = field(default_factory=dict)


def check(bank: MemoryBank, found: Portable) -> None:
    """UserError for what does not fit into a bank; other errors for values of a wrong kind."""
    sizes = {len(r.query_embedding) for r in found.records if r.query_embedding}
    own = bank.dim() or bank.embedder.dim
    if found.embedder == bank.embedder.name and len(sizes | ({own} if own else set())) > 1:
        there = f", those of the bank {own}" if own else ""
        raise UserError(f"the embeddings have {', '.join(map(str, sorted(sizes)))} numbers{there}.")
    left_out = () if found.embedder == bank.embedder.name else ("query_embedding",)
    for record in found.records:
        _check(record, left_out)
    for namespace, links in found.links.items():
        _check_links(namespace, links)


def take_in(bank: MemoryBank, found: Portable, reason: str) -> tuple[int, int]:
    """Add records to a bank, through its write filter, keeping their namespaces; returns (added, stored already)."""
    added = 0
    for start in range(0, len(found.records), BATCH):
        records = found.records[start : start + BATCH]
        vectors = [_vector(bank, r) for r in records] if found.embedder == bank.embedder.name else None
        added += bank.add_many(records, vectors, reason, keep_namespaces=True)
    for namespace, links in found.links.items():
        with bank.of(namespace).change(f"{reason}, links") as change:
            for link in links:
                change.link(*link)
    return added, len(found.records) - added


def _check(record: MemoryRecord, left_out: tuple[str, ...]) -> None:
    """UserError for a field with an invalid value, which could break the searches of all tenants."""
    for name, (fits, wanted) in _FITTING.items():
        if name not in left_out and not fits(value := getattr(record, name)):
            shown = "" if name == "query_embedding" else f"={value!r:.60}"
            raise UserError(f"the record {record.id!r:.60} cannot be imported: {name}{shown} is not {wanted}.")


def _check_links(namespace: Any, links: list[tuple]) -> None:
    for link in links:
        known = len(link) in (3, 4) and _are_texts((namespace, *link)) and link[1] in RELATIONS
        if not known:
            raise UserError(
                f"the link {link!r:.90} cannot be imported: it is no source, relation ({', '.join(RELATIONS)}), target "
                "and note."
            )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return all(map(_is_text, value))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= MOST  # False for NaN


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_provenance(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    named = [value.get(name, []) for name in ("hygiene", "quarantine", "tasks")]
    return all(map(_are_listed_texts, named)) and ("validated" not in value or _is_trial(value["validated"]))


def _are_listed_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and _are_texts(value)


def _is_trial(value: Any) -> bool:
    """Whether it is what memory.validate notes of a record: see `Gate` in workflows/validate.py."""
    if not isinstance(value, dict) or not _are_listed_texts(value.get("tasks")):
        return False
    most = len(value["tasks"])
    return all(isinstance(n, int) and 0 <= n <= most for n in map(value.get, ("won_with", "won_without")))


def _is_direction(value: Any) -> bool:
    return math.hypot(*value) < LONGEST  # False for NaN


_TEXTS = "id namespace outcome domain task_id original_query source_trajectory_id label_source created_at"
_FITTING: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(_TEXTS.split(), (_is_text, "a text")),
    **dict.fromkeys("tick n_used n_used_success n_helpful n_harmful".split(), (_is_count, "a whole number from 0 on")),
    "items": (lambda value: all(_are_texts(vars(item).values()) for item in value), "lessons of three texts"),
    "tags": (_are_texts, "a list of texts"),
    "parents": (_are_texts, "a list of texts"),
    "score": (_is_number, "a number"),
    "trust": (_is_share, "a number from 0 to 1"),
    "confidence": (lambda value: value is None or _is_share(value), "a number from 0 to 1"),
    "last_used": (lambda value: value is None or _is_number(value), "a number"),
    "status": (lambda value: value in STATUSES, f"one of {', '.join(STATUSES)}"),
    "provenance": (_is_provenance, "an object: hygiene, quarantine and tasks lists of texts, validated a trial"),
    "query_embedding": (_is_direction, "a vector of length 1"),
}


def _vector(bank: MemoryBank, record: MemoryRecord) -> Any:
    """A record's embedding, float32 (d,), computed if it has none."""
    import numpy as np

    if record.query_embedding:
        return np.array(record.query_embedding, dtype=np.float32)
    return bank.embedder.embed([record.original_query])[0]


def rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, value) of a file of JSON lines; empty lines are skipped. UserError names a damaged one."""
    for number, line in enumerate(read_text(path).split("\n"), 1):  # a line of JSON may hold other ends of lines
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path} line {number} is damaged: {error}.") from error


def whole(path: Path) -> Any:
    """The value of a JSON file. UserError if it is damaged."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}.") from error


def unit(vector: list[float]) -> tuple[float, ...]:
    """A vector normalised to length 1; () for an empty or zero vector."""
    import numpy as np

    row = np.asarray(vector, dtype=np.float32)
    norm = float(np.linalg.norm(row))
    return tuple((row / norm).tolist()) if norm > 0 else ()
