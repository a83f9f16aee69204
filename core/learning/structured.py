"""Reading structured replies: JSON or the paper's plain forms, without ever changing what a string says."""

from __future__ import annotations

import json
import re
from typing import Any

from core.learning.damaged_json import MAX_CHARS, Cut, repaired
from core.models.reply_text import escape_latex, spoken, storable
from core.types import Lesson

_MAX_WORK = 2_000_000  # characters read in vain before a text counts as garbage
_MAX_REPAIRS = 20
_CALLS = ("arguments", "parameters", "input", "function", "function_call", "tool_calls")  # where a tool call keeps them
_VALID_START = re.compile(r"\{\s*+\"")
_DAMAGED_START = re.compile(r"(?:\[\s*+)?\{\s*+(?:[\"'“‘/#]|[A-Za-z_][\w -]{0,60}:)")
_ITEM = re.compile(r"^[ \t]*#+[ \t]*memory item\b.*$", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(r"^[ \t]*#+[ \t]*(title|description|content)\b[ \t]*:?[ \t]*", re.IGNORECASE | re.MULTILINE)
# `success or failure` is the question said again, and no answer.
_STATUS = re.compile(
    r"^[ \t*_#>]*status[ \t*_]*:[\s*_\"'`]*(success|failure)\b"
    r"(?![\"'`*]*[ \t]*(?:or\b|[/|,])[ \t\"'`*]*(?:success|failure)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_BLANK = re.compile(r"<[^<>]*>")  # a field of the form that was left as it stood in the prompt


def parse_json(text: str | None, key: str) -> dict | None:
    """The last JSON object in a text (bare, fenced, among words or a tool's arguments) with the key, or None.

    What a reasoning model thinks aloud, and objects inside other objects, do not count. Damage is repaired outside
    strings only, so LaTeX survives; a string that the text breaks off in is a `core.learning.damaged_json.Cut`.
    """
    found = _objects(_readable(spoken(text)), key)
    return found[-1][0] if found else None


def parse_status(text: str | None) -> str | None:
    """success | failure from a judge's reply, or None. The last statement counts; "unsuccessful" is not success."""
    text = _readable(spoken(text))
    found = _objects(text, "status")
    answer, end = found[-1] if found else ({}, 0)
    if late := _STATUS.findall(text, end):
        return late[-1].lower()
    status = answer.get("status")
    if isinstance(status, str) and not isinstance(status, Cut) and status.strip().lower() in ("success", "failure"):
        return status.strip().lower()
    lines = _STATUS.findall(text)
    return lines[-1].lower() if lines else None


def parse_lessons(text: str | None, max_items: int, *, truncated: bool = False) -> tuple[list[Lesson], int]:
    """(lessons, number dropped): what lacks a title, description or content, repeats or is too many is dropped.

    truncated   the reply was cut off (finish_reason length): its last item is not trusted and counts as dropped
    """
    text = spoken(text)
    items = _from_markdown(text) if _ITEM.search(text) else _from_objects(_readable(text))
    if truncated:
        items[-1:] = [None]
    lessons = list(dict.fromkeys(item for item in items if item is not None))[:max_items]
    return lessons, len(items) - len(lessons) if items else int(bool(text.strip()))


def _from_objects(text: str) -> list[Lesson | None]:
    """From {"items": [...]}, or without it from a list of lessons or lessons one after the other."""
    found = _objects(text, "items")
    if not found:
        return [_lesson(item) for item, _ in _objects(text, "title")]
    items = found[-1][0]["items"]
    items = [items] if isinstance(items, dict) else items
    return [_lesson(item) for item in items] if isinstance(items, list) else []


def _from_markdown(text: str) -> list[Lesson | None]:
    blocks = _ITEM.split(text.replace("```markdown", "").replace("```", ""))[1:]
    items: list[Lesson | None] = []
    for block in blocks:
        parts = _FIELD.split(block)  # [before, name, text, name, text, ...]
        items.append(_lesson({name.lower(): body for name, body in zip(parts[1::2], parts[2::2], strict=True)}))
    return items


def _lesson(item: Any) -> Lesson | None:
    if not isinstance(item, dict):
        return None
    fields = {name: item.get(name) for name in ("title", "description", "content")}
    if not all(isinstance(value, str) and value.strip() and not isinstance(value, Cut) for value in fields.values()):
        return None
    if all(_BLANK.fullmatch(value.strip()) for value in fields.values()):
        return None
    return Lesson(**{name: storable(value.strip()) for name, value in fields.items()})


def _readable(text: str) -> str:
    return escape_latex(text[-MAX_CHARS:])


def _objects(text: str, key: str) -> list[tuple[dict, int]]:
    """Every object with the key and where it ends: the valid ones, and what can be repaired after the last of them."""
    mentions = [match.end() for match in re.finditer(rf"(?<!\w){re.escape(key)}\\*[\"'”’]?\s*:", text)]
    if not mentions:
        return []
    found = _valid_objects(text, key)
    begin = found[-1][1] if found else 0
    if mentions[-1] > begin:
        found += _damaged_objects(text, key, begin, mentions[-1])
    return [(storable(value), end) for value, end in found]


def _valid_objects(text: str, key: str) -> list[tuple[dict, int]]:
    decoder = json.JSONDecoder(strict=False)
    found: list[tuple[dict, int]] = []
    start, work = _VALID_START.search(text), 0
    while start and work < _MAX_WORK:
        try:
            value, end = decoder.raw_decode(text, start.start())
            found += [(holder, end) for holder in _holders(value, key)]
        except json.JSONDecodeError as error:
            work += error.pos - start.start() + 1000
            end = start.start() + 1
        except RecursionError:
            break
        start = _VALID_START.search(text, end)
    return found


def _damaged_objects(text: str, key: str, begin: int, last_mention: int) -> list[tuple[dict, int]]:
    found: list[tuple[dict, int]] = []
    place = begin
    for _ in range(_MAX_REPAIRS):
        start = _DAMAGED_START.search(text, place, last_mention)
        if start is None:
            break
        value, end = repaired(text, start.start()) or (None, len(text))
        holders = _holders(value, key)
        found += [(holder, end) for holder in holders]
        # What ran on to the end without the key was no object: the next brace is tried.
        place = end if holders or end < len(text) else start.start() + 1
    if not found and (bare := re.compile(rf"\"{re.escape(key)}\"\s*:").search(text, begin)):
        value, _ = repaired("{" + text[bare.start() :], 0) or (None, 0)
        found = [(holder, len(text)) for holder in _holders(value, key)]
    return found


def _holders(value: Any, key: str, depth: int = 4) -> list[dict]:
    """The objects with the key that a value is, lists, or passes to a tool."""
    if depth == 0:
        return []
    if isinstance(value, list):
        return [holder for item in value for holder in _holders(item, key, depth - 1)]
    if not isinstance(value, dict):
        return []
    if key in value:
        return [value]
    found: list[dict] = []
    for passed in (value[name] for name in _CALLS if name in value):
        if isinstance(passed, str):  # JSON in a string, as providers pass arguments
            found += [holder for holder, _ in _objects(_readable(passed), key)]
        else:
            found += _holders(passed, key, depth - 1)
    return found
