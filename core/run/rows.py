"""What the files of a run may hold: the types that a run writes them from, checked by msgspec when they are read.

A line with an unknown or missing key, another type, a word that is none of its words, or a number out of its range is
refused.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from core.types import CUT_OFF, Episode, Lesson, MemoryRecord, Message, Step, Trajectory, Usage, Verdict

LARGEST = 1.7e308  # what is larger is infinite; NaN is in no range
Count = Annotated[int, Meta(ge=0)]
Finite = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Reward = Annotated[float, Meta(ge=-1, le=1)]
Outcome = Literal["success", "failure"]


@dataclass(kw_only=True)
class RetrievedRow:
    """A retrieved record in an episode's row (`retrieved_rows` in workflows/episode.py)."""

    id: str
    score: float
    n_items: int
    n_shown: int
    items: tuple[Lesson, ...] = ()
    followed: bool = False
    n_cited: int = 0
    step: int = 0
    sample: int = 0


@dataclass(kw_only=True)
class ValidatedRow:
    """A lesson that was tried on earlier tasks (`Gate` in workflows/validate.py)."""

    id: str
    tasks: tuple[str, ...]
    won_with: Count
    won_without: Count
    status: Literal["active", "quarantined", "archived"]


NARROWER: dict[tuple[type, str], Any] = {  # {(class, field): its type if not None, where the class itself says less}
    (Episode, "status"): Literal["success", "failure", "infra_error", "stopped"],
    (Episode, "reward"): Reward,
    (Episode, "retrieved"): tuple[RetrievedRow, ...],
    (Episode, "validated"): tuple[ValidatedRow, ...],
    (Trajectory, "ended_by"): Literal["goal", "end", "step_limit", "stuck", "infra_error", *CUT_OFF],
    (Trajectory, "reward"): Reward,
    (Verdict, "label"): Outcome,
    (Verdict, "confidence"): Share,
    (MemoryRecord, "outcome"): Outcome,
    (MemoryRecord, "status"): Literal["active", "quarantined", "archived", "superseded"],
    (MemoryRecord, "score"): Share,
    (MemoryRecord, "confidence"): Share,
    (MemoryRecord, "trust"): Share,
}
DERIVED = {
    Step: {"step_num": int, "status": Literal["ongoing", "success", "failure"]}
}  # keys that `with_derived_keys` adds


@dataclass(kw_only=True)
class RolloutLine:
    """A line of rollouts.jsonl (core/run/unfinished.py)."""

    index: int
    sample: int
    trajectory: Trajectory


@dataclass(kw_only=True)
class FailedCallLine:
    """A line of calls.jsonl (core/models/meter.py) without a reply."""

    role: str
    task: str
    requested: str
    messages: str
    error: str | None
    retries: int
    usage: Usage | None
    latency_s: float
    schema: int = 1
    sample: Any = None
    n_messages: int = 0
    ended: float = 0.0


@dataclass(kw_only=True)
class CallLine(FailedCallLine):
    """A line of calls.jsonl with a reply."""

    model: str
    from_cache: bool
    text: Any = None
    reasoning: Any = None
    finish_reason: Any = None
    sent: Any = None
    paid: Usage | None = None
    failed: Any = None
    provider: str | None = None
    system_fingerprint: str | None = None
    fallback: str | None = None
    prompt_cut: Any = None
    usage_corrected: Any = None


@dataclass(kw_only=True)
class PromptLine:
    """A line of prompts.jsonl (core/models/meter.py)."""

    id: str
    messages: tuple[Message, ...]


@dataclass(kw_only=True)
class TimingLine:
    """A line of timings.jsonl (core/run/records.py)."""

    index: int
    task_id: str
    ended: float
    wall_s: float
    retrieve_s: float | None
    cached_tokens: int | None


@dataclass(kw_only=True)
class Fingerprint:
    """What of a manifest's fingerprint is read. There may be more keys, as in the following two."""

    config: dict[str, Any]
    prompts: dict[str, Any]
    dataset: dict[str, Any]


@dataclass(kw_only=True)
class Manifest:
    """What of manifest.json is read (core/run/manifest.py)."""

    run: str
    config: dict[str, Any]
    fingerprint: Fingerprint
    task_ids: tuple[str, ...]
    command: tuple[str, ...]
    bank_labels: tuple[str, ...]
    overridden: tuple[str, ...]
    models: dict[str, Any]
    starts: tuple[dict[str, Any], ...]


@dataclass(kw_only=True)
class Summary:
    """What of summary.json a reader relies on (core/run/metrics.py)."""

    n: int
    n_tasks: int
    complete: bool
    n_infra_error: int
    consolidation: dict[str, Any] | None = None
    calls: dict[str, Any] = field(default_factory=dict)
    fallbacks: dict[str, Any] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)


def checked(row: dict[str, Any], kind: type) -> dict[str, Any]:
    """The row of a line. Raises ValueError for one that is not written from a dataclass of this kind."""
    if kind is CallLine and row.get("error") is not None:
        kind = FailedCallLine
    msgspec.convert(row, closed(kind))
    if kind is Episode and not row["chosen"] < len(row["trajectories"]) == len(row["verdicts"]):
        raise ValueError("Expected a verdict on each attempt, and one of them to be chosen")
    return row


def check_whole(content: Any, kind: type) -> None:
    """Raise ValueError for the content of a whole file that lacks a field of this dataclass, or has another type."""
    msgspec.convert(content, kind)


@cache
def closed(kind: Any) -> Any:
    """The type of the same values, of which msgspec refuses unknown keys, negative whole numbers, NaN and infinity."""
    if is_dataclass(kind):
        return _struct(kind)
    if get_origin(kind) in (Annotated, Literal):
        return kind
    if args := tuple(map(closed, get_args(kind))):
        return reduce(or_, args) if get_origin(kind) in (Union, UnionType) else get_origin(kind)[args]
    return {int: Count, float: Finite}.get(kind, kind)


def _struct(kind: Any) -> Any:
    hints, found = get_type_hints(kind), []
    for each in fields(kind):
        hint = hints[each.name]
        narrower = NARROWER.get((kind, each.name), hint)
        of_it = (each.name, closed(narrower | None if NoneType in get_args(hint) else narrower))
        needed = each.default is MISSING and each.default_factory is MISSING
        found.append(of_it if needed else (*of_it, None))  # what stands where it is missing does not matter
    found += DERIVED.get(kind, {}).items()
    return msgspec.defstruct(kind.__name__, found, kw_only=True, forbid_unknown_fields=True)
