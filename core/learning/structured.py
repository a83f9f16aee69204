"""Structured replies: the JSON schemas that models are held to, and how replies are read.

A reply is JSON or one of the paper's plain forms; reading it never changes what a string says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from core.learning.damaged_json import Cut, repaired
from core.models.reply_text import escape_latex, storable, strip_thinking
from core.types import Lesson

CONTENT_CHARS = 600  # of a lesson's content, unless more is asked for
THOUGHT_CHARS = 1200  # of what a model works out before it answers


def object_schema(properties: dict) -> dict:
    """An object with exactly these keys, each with its schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(longest: int) -> dict:
    """A text of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def lessons_schema(max_items: int, max_content: int = CONTENT_CHARS) -> dict:
    """{thoughts, items: 1 to max_items of {title, description, content}}.

    The lengths keep a small model from running on. A text ends there in mid-sentence, so they leave room for the
    sentences that the prompt asks for.
    """
    item = object_schema(
        {"title": text_schema(100), "description": text_schema(400), "content": text_schema(max_content)}
    )
    items = {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}
    return object_schema({"thoughts": text_schema(THOUGHT_CHARS), "items": items})


# Reading a reply that is held to no schema, or not quite.

_MAX_CHARS = 200_000  # of a reply, its end; with what is tried of it the bound on the time garbage can take
_CALLS = ("arguments", "parameters", "input", "function", "function_call", "tool_calls")  # where a tool call keeps them
_START = re.compile(r"\{\s*+(?:[\"'“‘/#]|[A-Za-z_][\w -]{0,60}:)")
_ITEM = re.compile(r"^[ \t]*#+[ \t]*memory item\b.*$", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(r"^[ \t]*#+[ \t]*(title|description|content)\b[ \t]*:?[ \t]*", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*+```[ \t]*+(?P<language>[\w+-]*+)[ \t]*$|```[ \t]*$", re.MULTILINE)
_GLUED = re.compile(r"```(?:markdown)?[ \t]*+(?=#)")  # an item that begins on its fence's line
# `success or failure` is the question said again, and no answer.
_STATUS = re.compile(
    r"^[ \t*_#>]*status[ \t*_]*:[\s*_\"'`]*(success|failure)\b"
    r"(?![\"'`*]*[ \t]*(?:or\b|[/|,])[ \t\"'`*]*(?:success|failure)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_SHARE = r"(\d{1,3}(?:\.\d{1,17})?|\.\d{1,17})[ \t]*+(%?)"  # 0.8, .8, 80 %
_CONFIDENCE = re.compile(
    rf"^[ \t*_#>]*+confidence[ \t*_]*+:[\s*_\"'`]*+{_SHARE}[ \t*_\"'`]*+[.,;]?[ \t]*+(?:$|\()",
    re.IGNORECASE | re.MULTILINE,
)
_BLANK = re.compile(r"<[^<>]*>")  # a field of the form that was left as it stood in the prompt


def parse_json(text: str | None, key: str) -> dict | None:
    """The last JSON object in a text (bare, fenced, among words or a tool's arguments) with the key, or None.

    What a reasoning model thinks aloud, and objects inside other objects, do not count. Damage is repaired outside
    strings only, so LaTeX survives; a string that the text breaks off in is a `core.learning.damaged_json.Cut`.
    """
    objects = _objects(_readable(strip_thinking(text)), key)
    return storable(objects[-1][0]) if objects else None


def parse_status(text: str | None) -> str | None:
    """success | failure from a judge's reply, or None. The last statement counts; "unsuccessful" is not success."""
    text = _readable(strip_thinking(text))
    objects = _objects(text, "status")
    answer, end = objects[-1] if objects else ({}, 0)
    in_answer = [answer["status"].strip()] if _is_whole(answer.get("status")) else []
    for stated in (_STATUS.findall(text, end), in_answer, _STATUS.findall(text)):
        if stated and stated[-1].lower() in ("success", "failure"):
            return stated[-1].lower()
    return None


def parse_confidence(text: str | None) -> float | None:
    """A judge's confidence in [0, 1] from its reply, given as a share or in per cent; None where none can be read.

    As with the status the last statement counts: after the answer's object, else in it, else anywhere.
    """
    text = _readable(strip_thinking(text))
    objects = _objects(text, "status")
    answer, end = objects[-1] if objects else ({}, 0)
    in_answer = re.findall(rf"^\s*{_SHARE}\s*$", str(answer.get("confidence", "")))
    for stated in (_CONFIDENCE.findall(text, end), in_answer, _CONFIDENCE.findall(text)):
        if stated:
            number, percent = stated[-1]
            share = float(number) / (100 if percent else 1)
            return share if share <= 1 else None
    return None


def parse_lessons(text: str | None, max_items: int, *, truncated: bool = False) -> tuple[list[Lesson], int]:
    """(lessons, number dropped): what lacks a title, description or content, repeats or is too many is dropped.

    truncated   the reply was cut off (finish_reason length): its last item is not trusted and counts as dropped
    """
    text = strip_thinking(text)
    items = _from_markdown(text) if _ITEM.search(text) else _from_objects(_readable(text))
    if truncated:
        items[-1:] = [None]
    lessons = list(dict.fromkeys(item for item in items if item is not None))[:max_items]
    return lessons, len(items) - len(lessons) if items else int(bool(text.strip()))


def _from_objects(text: str) -> list[Lesson | None]:
    """From {"items": [...]}, or without it from a list of lessons or lessons one after the other."""
    objects = _objects(text, "items")
    if not objects:
        return [_lesson(item) for item, _ in _objects(text, "title")]
    items = objects[-1][0]["items"]
    items = [items] if isinstance(items, dict) else items
    return [_lesson(item) for item in items] if isinstance(items, list) else []


def _from_markdown(text: str) -> list[Lesson | None]:
    before, *blocks = _ITEM.split(_GLUED.sub("```\n", text))
    fenced = len(_FENCE.findall(before)) % 2 == 1
    items: list[Lesson | None] = []
    for number, block in enumerate(blocks, 1):
        block, fenced = _to_the_fence(block, fenced, last=number == len(blocks))
        # [before, name, text, name, text, ...]
        _, *fields = _FIELD.split(block.replace("```markdown", "").replace("```", ""))
        items.append(_lesson({name.lower(): body for name, body in zip(fields[::2], fields[1::2], strict=True)}))
    return items


def _to_the_fence(block: str, fenced: bool, last: bool) -> tuple[str, bool]:
    """(an item up to the fence that closes the reply's form, whether the next item stands in a fence).

    fenced   whether this item does. Code fences of the lesson's own come in pairs, of which the first names a language
             where the item is fenced itself, or words and the next item follow the second
    """
    fences = list(_FENCE.finditer(block, max((match.end() for match in _FIELD.finditer(block)), default=0)))
    in_code = False
    if fenced and not last and fences and len(fences) % 2 == 0 and block[fences[-1].end() :].strip():
        return block, True
    for place, fence in enumerate(fences, 1):
        if in_code or fence["language"]:
            in_code = bool(fence["language"])
        elif fenced or place == len(fences):
            return block[: fence.start()], (len(fences) - place) % 2 == 1
        else:
            in_code = True
    return block, fenced


def _lesson(item: Any) -> Lesson | None:
    if not isinstance(item, dict):
        return None
    fields = [item.get(name) for name in ("title", "description", "content")]
    if not all(_is_whole(value) and value.strip() for value in fields):
        return None
    title, description, content = (storable(value.strip()) for value in fields)
    if all(_BLANK.fullmatch(value) for value in (title, description, content)):
        return None
    return Lesson(title=title, description=description, content=content)


def _is_whole(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Cut)


def _readable(text: str) -> str:
    return escape_latex(text[-_MAX_CHARS:])


def _objects(text: str, key: str) -> list[tuple[dict, int]]:
    """Every object with the key and where it ends: the valid ones, and what can be repaired after the last of them."""
    objects = _read(text, key, _valid_reader(), 0, tries=2000)
    begin = objects[-1][1] if objects else 0
    repairs = _read(text, key, repaired, begin, tries=20)
    bare = re.compile(rf"\"{re.escape(key)}\"\s*:").search(text, begin)
    if bare and not repairs:  # the opening brace is missing
        repairs = _read(text[: bare.start()] + "{" + text[bare.start() :], key, repaired, bare.start(), tries=1)
    return objects + repairs


def _read(text: str, key: str, read: Callable, begin: int, *, tries: int) -> list[tuple[dict, int]]:
    """The objects with the key that `read` finds behind the opening brackets, and where each ends."""
    objects: list[tuple[dict, int]] = []
    last = text.rfind(key)
    while tries and (start := _START.search(text, begin)) and start.start() < last:
        value, end = read(text, start.start())
        holders = _holders(value, key)
        objects += [(holder, end) for holder in holders]
        # What ran on to the end of the text without the key was no object: the next bracket is tried.
        begin = end if holders or end < len(text) else start.start() + 1
        tries -= 1
    return objects


def _valid_reader() -> Callable[[str, int], tuple[Any, int]]:
    """A reader of valid JSON for one text: (value, end), the value None where there is none.

    Text that is no JSON after all is read again from every bracket in it, so how much is read in vain has a bound.
    """
    left = 20 * _MAX_CHARS
    decode = json.JSONDecoder(strict=False).raw_decode

    def read(text: str, begin: int) -> tuple[Any, int]:
        nonlocal left
        if left > 0:
            try:
                return decode(text, begin)
            except json.JSONDecodeError as error:
                left -= error.pos - begin
            except (ValueError, RecursionError):  # a number of thousands of digits; nested thousands of levels deep
                left -= len(text) - begin
        return None, len(text)

    return read


def _holders(value: Any, key: str, depth: int = 6) -> list[dict]:
    """The objects with the key that a value is, lists, or passes to a tool: there also as JSON in a string."""
    if isinstance(value, str):
        return [holder for holder, _ in _objects(_readable(value), key)]
    if isinstance(value, dict):
        if key in value:
            return [value]
        value = [value[name] for name in _CALLS if name in value]
    if not isinstance(value, list) or depth == 0:
        return []
    return [holder for item in value for holder in _holders(item, key, depth - 1)]
