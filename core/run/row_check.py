"""Checks of what is read from a line of a run: keys, types, words and ranges.

A run that goes on looks so at lines without a checksum only. What tables, reports and the audit read of episodes is
always looked at: a checksum is against accidents, and whoever changes a line on purpose can make one that fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from core.types import CUT_OFF, Episode, MemoryRecord, Message, Step, Trajectory, Usage, Verdict

Check = Callable[[Any, str], None]
STATUSES = ("success", "failure", "infra_error", "stopped")
ENDS = ("goal", "end", "step_limit", "stuck", *CUT_OFF, "infra_error")
WORDS = {  # {(class, field): its words}
    (Episode, "status"): STATUSES,
    (Trajectory, "ended_by"): ENDS,
    (Verdict, "label"): ("success", "failure", None),
    (MemoryRecord, "outcome"): ("success", "failure"),
    (MemoryRecord, "status"): ("active", "quarantined", "archived", "superseded"),
}
RANGES = {  # {(class, field): (least, most)}; other whole numbers are at least 0
    (Episode, "reward"): (-1.0, 1.0),
    (Trajectory, "reward"): (-1.0, 1.0),
    (Verdict, "confidence"): (0.0, 1.0),
    (MemoryRecord, "score"): (0.0, 1.0),
    (MemoryRecord, "confidence"): (0.0, 1.0),
    (MemoryRecord, "trust"): (0.0, 1.0),
}
DERIVED = {Step: {"step_num": int, "status": str}}  # keys that `placed` adds (core/run/upgrade.py)


def check_episode(row: dict[str, Any]) -> None:
    """Raise ValueError for a row of episodes.jsonl that no run writes."""
    _of(Episode)(row, "")
    n = len(row["trajectories"])
    if row["chosen"] not in range(n) or len(row["verdicts"]) != n:
        raise ValueError(f"holds chosen {row['chosen']}, and {n} attempts and {len(row['verdicts'])} verdicts")


def check_rollout(row: dict[str, Any]) -> None:
    """Raise ValueError for a row of rollouts.jsonl that no run writes."""
    _ROLLOUT(row, "")


def check_call(row: dict[str, Any]) -> None:
    """Raise ValueError for a row of calls.jsonl that no meter writes (core/models/meter.py)."""
    (_FAILED if row.get("error") else _ANSWERED)(row, "")


def check_prompt(row: dict[str, Any]) -> None:
    """Raise ValueError for a row of prompts.jsonl that no meter writes."""
    _PROMPT(row, "")


def check_timing(row: dict[str, Any]) -> None:
    """Raise ValueError for a row of timings.jsonl that no run writes."""
    _TIMING(row, "")


def check_summary(found: dict[str, Any]) -> None:
    """Raise ValueError for a summary that no run writes."""
    _SUMMARY(found, "")


def check_manifest(found: dict[str, Any]) -> None:
    """Raise ValueError for a manifest that no run writes."""
    if "config" not in found:
        raise ValueError("is another program's")
    _MANIFEST(found, "")
    _FINGERPRINT(found["fingerprint"], "fingerprint.")


@cache
def _of(hint: Any) -> Check:
    """The check of a value of this type."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _dataclass(hint)
    if origin in (Union, UnionType):
        return _either(_of(next(arg for arg in args if arg is not NoneType)), NoneType in args)
    if origin is tuple or hint is tuple:
        return _each(list, "a list", _of(args[0] if args else Any), enumerate)
    if origin is dict or hint is dict:
        return _each(dict, "an object", _of(args[1] if args else Any), dict.items)
    if hint is float:
        return _number
    return {str: _text, int: _count, bool: _switch, _SECONDS: _real}.get(hint, _anything)


def _dataclass(kind: Any) -> Check:
    hints, needed, more = get_type_hints(kind), {}, dict(DERIVED.get(kind, {}))
    for each in fields(kind):
        mandatory = each.default is MISSING and each.default_factory is MISSING
        (needed if mandatory else more)[each.name] = hints[each.name]
    return _object(needed, more, kind)


def _object(
    needed: dict[str, Any], more: dict[str, Any] | None = None, kind: Any = None, *, closed: bool = True
) -> Check:
    """The check of an object with these keys.

    more     keys that it need not have
    kind     the class whose fields the keys are
    closed   it has no other keys
    """
    must, checks = needed.keys(), {key: _of(hint) for key, hint in (needed | (more or {})).items()}
    words = {key: WORDS[kind, key] for key in checks if (kind, key) in WORDS}
    ranges = {key: RANGES[kind, key] for key in checks if (kind, key) in RANGES}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"holds {where[:-1] or 'something'} that cannot be read as an object")
        if lacking := must - value.keys():
            raise ValueError(f"lacks {where}{min(lacking)}")
        for key, part in value.items():
            if key in checks:
                checks[key](part, f"{where}{key}.")
            elif closed:
                raise ValueError(f"holds an unknown {where}{key}")
        for key, known in words.items():
            if key in value and value[key] not in known:
                raise ValueError(f"holds {where}{key} {value[key]!r}, which is none of {', '.join(map(str, known))}")
        for key, (least, most) in ranges.items():
            if value.get(key) is not None and not least <= value[key] <= most:
                raise ValueError(f"holds {where}{key} {value[key]}, which is not from {least:g} to {most:g}")

    return check


def _either(other: Check, nullable: bool) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None or not nullable:
            other(value, where)

    return check


def _each(kind: type, called: str, part: Check, pairs: Callable[[Any], Any]) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, kind):
            raise ValueError(f"holds {where[:-1]} that cannot be read as {called}")
        if part is not _anything:
            for key, each in pairs(value):
                part(each, f"{where}{key}.")

    return check


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"holds {where[:-1]} that cannot be read as a text")


def _switch(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"holds {where[:-1]} that cannot be read as true or false")


def _count(value: Any, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"holds {where[:-1]} that cannot be read as a whole number of at least 0")


def _number(value: Any, where: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"holds {where[:-1]} that cannot be read as a number")


def _real(value: Any, where: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"holds {where[:-1]} that cannot be read as a number")


def _anything(_value: Any, _where: str) -> None:
    pass


_SECONDS = "seconds"  # any number, also NaN
_ANY_CALL = {"role": str, "task": str, "requested": str, "messages": str, "error": str | None, "retries": int}
_ANY_CALL |= {"usage": Usage | None, "latency_s": float}
_MORE: dict[str, Any] = dict.fromkeys("schema sample n_messages ended text reasoning finish_reason sent".split(), Any)
_MORE |= dict.fromkeys("paid failed provider system_fingerprint fallback prompt_cut usage_corrected".split(), Any)
_ANSWERED = _object(_ANY_CALL | {"model": str, "from_cache": bool}, _MORE)
_FAILED = _object(_ANY_CALL, _MORE)
_PROMPT = _object({"id": str, "messages": tuple[Message, ...]})
_TIMING = _object({"index": int}, {"ended": _SECONDS, "wall_s": _SECONDS}, closed=False)
_ROLLOUT = _object({"index": int, "sample": int, "trajectory": Trajectory})
_SUMMARY = _object(
    {"n": int, "n_tasks": int, "complete": bool, "n_infra_error": int},
    {"consolidation": dict | None, "calls": dict, "fallbacks": dict},
    closed=False,
)
_TEXTS = tuple[str, ...]
_MANIFEST = _object(
    {"config": dict, "fingerprint": dict},
    {"run": str, "models": dict, "starts": tuple[dict, ...]}
    | dict.fromkeys(("task_ids", "command", "bank_labels", "overridden"), _TEXTS),
    closed=False,
)
_FINGERPRINT = _object({"config": dict, "prompts": dict}, {"dataset": dict}, closed=False)
