"""Structured replies: JSON schemas for replies, and their parsers.

A reply is JSON or one of the paper's plain formats. Damaged JSON is mended by json-repair, LaTeX's backslashes whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from core.jsonl import in_strings
from core.models.reply_text import escape_latex, without_surrogates
from core.reply_marks import next_turns, own_turn, plain_reply
from core.types import Lesson

CONTENT_CHARS = 600  # maximum of a lesson's content, unless the caller passes more
THOUGHT_CHARS = 1200  # maximum of a model's reasoning before its answer


def object_schema(properties: dict) -> dict:
    """An object with exactly these keys, each with its schema."""
    about = {"properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "object", **about}


def text_schema(longest: int) -> dict:
    """A text of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def lessons_schema(max_items: int, max_content: int = CONTENT_CHARS) -> dict:
    """{thoughts, items: 1 to max_items of {title, description, content}}.

    The maximum lengths stop small models from writing endlessly. They cut texts in mid-sentence, so they leave room for
    more than the prompt asks for.
    """
    item = object_schema(
        {"title": text_schema(100), "description": text_schema(400), "content": text_schema(max_content)}
    )
    items = {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}
    return object_schema({"thoughts": text_schema(THOUGHT_CHARS), "items": items})


# Parsing of replies that may not follow a schema.

_MAX_CHARS = 100_000  # only the end of a reply is read: bounds, like `tries`, the time on garbage
_DECODER = json.JSONDecoder(strict=False)
# Keys that hold a tool call's arguments.
_CALLS = ("arguments", "parameters", "input", "function", "function_call", "tool_calls")
_MAX_REPAIRED = 20_000  # characters passed to json-repair: bounds its time on garbage
# What a string holds only if the quote that ends it was left out: the next key, or a comment behind that quote.
_SWALLOWED = re.compile(r"[\"'](?:title|description|content)[\"']\s*:|[\"'],?\s+(?:\#|//|/\*)")
_BEHIND = frozenset(("", *",;:}]\"'“/#"))  # what may follow a string
_START = re.compile(r"\{\s*+(?:[\"'“‘/#]|[A-Za-z_][\w -]{0,60}:)")
_ITEM = re.compile(r"^[ \t]*#+[ \t]*memory item\b.*$", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(r"^[ \t]*#+[ \t]*(title|description|content)\b[ \t]*:?[ \t]*", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*+```[ \t]*+(?P<language>[\w+-]*+)[ \t]*$|```[ \t]*$", re.MULTILINE)
_GLUED = re.compile(r"```(?:markdown)?[ \t]*+(?=#)")  # an item that begins on the line of its fence
# `success or failure` repeats the question and is not an answer.
_STATUS = re.compile(
    r"^[ \t*_#>{]*status[ \t*_]*:[\s*_\"'`]*(success|failure)\b"
    r"(?![\"'`*]*[ \t]*(?:or\b|[/|,])[ \t\"'`*]*(?:success|failure)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_SHARE = r"(\d{1,3}(?:\.\d{1,17})?|\.\d{1,17})[ \t]*+(%?)"  # 0.8, .8, 80 %
_CONFIDENCE = re.compile(
    rf"^[ \t*_#>]*+confidence[ \t*_]*+:[\s*_\"'`]*+{_SHARE}[ \t*_\"'`]*+[.,;]?[ \t]*+(?:$|\()",
    re.IGNORECASE | re.MULTILINE,
)
# What a reply has given when it may run on and invent the next task: a label; an item of the plain format.
_LABELLED = re.compile(r"\bstatus\W{1,6}(?:success|failure)\b", re.IGNORECASE)
_WRITTEN = re.compile(r"^[ \t]*#+[ \t]*content\b", re.IGNORECASE | re.MULTILINE)
_BLANK = re.compile(r"<[^<>]*>")  # a placeholder copied from the prompt


def parse_json(text: str | None, key: str) -> dict | None:
    """The last JSON object with the key in a text (bare, fenced, within prose or in a tool's arguments), or None.

    Thoughts and objects nested in other objects are ignored. A string whose end is uncertain is None.
    """
    objects = _objects(_escaped_end(plain_reply(text)), key)
    return without_surrogates(objects[-1][0]) if objects else None


def parse_status(text: str | None) -> str | None:
    """success | failure from a judge's reply, or None. The last statement counts; "unsuccessful" is not success."""
    for stated in _stated(text, "status", _STATUS, lambda answer: [str(answer.get("status", "")).strip()]):
        if stated and stated[-1].lower() in ("success", "failure"):
            return stated[-1].lower()
    return None


def parse_confidence(text: str | None, key: str = "status") -> float | None:
    """A judge's confidence in [0, 1] from its reply, written as a share or in per cent; None if there is none.

    key   of the answer's object that the confidence is in
    """
    form = re.compile(rf"^\s*{_SHARE}\s*$")
    for stated in _stated(text, key, _CONFIDENCE, lambda answer: form.findall(str(answer.get("confidence", "")))):
        if stated:
            number, percent = stated[-1]
            share = float(number) / (100 if percent else 1)
            return share if share <= 1 else None
    return None


def _stated(text: str | None, key: str, form: re.Pattern, within: Callable[[dict], list]) -> Iterator[list]:
    """The statements after the answer's object, those `within` it, and those anywhere: the last of the first counts.

    key    of the answer's object
    form   of a statement in plain text
    """
    text = _escaped_end(_first_turn(plain_reply(text), _LABELLED))
    objects = _objects(text, key)
    answer, end = objects[-1] if objects else ({}, 0)
    yield form.findall(text, end)
    yield within(answer)
    yield form.findall(text)


def parse_lessons(text: str | None, max_items: int, *, truncated: bool = False) -> tuple[list[Lesson], int]:
    """(lessons, number of dropped items). Dropped are incomplete items, repetitions and items beyond `max_items`.

    truncated   the reply was cut off (finish_reason length): its last item counts as dropped
    """
    text = _first_turn(plain_reply(text), _WRITTEN, blank_line=True)
    items = _from_markdown(text) if _ITEM.search(text) else _from_objects(_escaped_end(text))
    if truncated:
        items[-1:] = [None]
    lessons = list(dict.fromkeys(item for item in items if item is not None))[:max_items]
    return lessons, len(items) - len(lessons) if items else int(bool(text.strip()))


def parse_thoughts(text: str | None) -> str:
    """What a reply with lessons says before them, without its label; "" if it says nothing."""
    text = _first_turn(plain_reply(text), _WRITTEN, blank_line=True)
    if _ITEM.search(text):
        before = _ITEM.split(_GLUED.sub("```\n", text))[0].replace("```markdown", "").replace("```", "")
        return re.sub(r"^\W*thoughts\W*:\W*", "", before.strip(), flags=re.IGNORECASE).strip()
    objects = _objects(_escaped_end(text), "items")
    return str(objects[-1][0].get("thoughts", "")).strip() if objects else ""


def _from_objects(text: str) -> list[Lesson | None]:
    """Lessons from {"items": [...]}, else from a list of lessons or consecutive lesson objects."""
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
    """(an item up to the fence that closes the reply's format, whether the next item is inside a fence).

    fenced   whether this item is inside a fence. Code fences that belong to the lesson come in pairs: in a fenced item
             the first names a language, or text and the next item follow the second
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
    fields: list[Any] = [item.get(name) for name in ("title", "description", "content")]
    if not all(isinstance(value, str) and value.strip() for value in fields):
        return None
    title, description, content = (without_surrogates(own_turn(value).strip()) for value in fields)
    if not (title and description and content):
        return None
    if all(_BLANK.fullmatch(value) for value in (title, description, content)):
        return None
    return Lesson(title=title, description=description, content=content)


def _first_turn(text: str, given: re.Pattern, *, blank_line: bool = False) -> str:
    """The text up to where the model, having given its answer, invents the prompt's next turn.

    blank_line   which a blank line must precede: a lesson may quote what a prompt says
    """
    first = given.search(text)
    places = (place for place in next_turns(text) if first and place > first.end())
    ends = (place for place in places if not blank_line or re.search(r"\n[ \t\r]*\n\Z", text[place - 20 : place]))
    return text[: next(ends, len(text))]


def _escaped_end(text: str) -> str:
    return escape_latex(text[-_MAX_CHARS:])


def _objects(text: str, key: str) -> list[tuple[dict, int]]:
    """(object with the key, its end): all valid objects, then the damaged ones after the last valid one, repaired."""
    objects = _read(text, key, _valid, 0, tries=500)
    begin = objects[-1][1] if objects else 0
    repairs = _read(text, key, _repaired, begin, tries=20)
    bare = re.compile(rf"\"{re.escape(key)}\"\s*:").search(text, begin)
    if bare and not repairs:  # the opening brace is missing
        repairs = _read(text[: bare.start()] + "{" + text[bare.start() :], key, _repaired, bare.start(), tries=1)
    return _before_the_next_turn(text, objects + repairs)


def _repaired(text: str, begin: int) -> tuple[Any, int]:
    """(the damaged value that opens at `begin`, the end of the text); value None if it cannot be repaired.

    json-repair may end a string too early or too late, or a reply may stop within it: such a string is None.
    """
    from json_repair import repair_json

    end = min(begin + _MAX_REPAIRED, next((place for place in next_turns(text) if place > begin), len(text)))
    damaged = re.sub(r"(?<!\\)\\/", "/", text[begin:end])  # an escape that json-repair does not know
    try:
        value = repair_json(damaged, return_objects=True, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None, len(text)
    written = _unescaped(damaged)
    return in_strings(value, lambda said: said if _is_closed(said, written) else None), len(text)


def _is_closed(said: str, damaged: str) -> bool:
    r"""Whether a string stands in a damaged text, its escapes read, in quotes behind which JSON goes on.

    Not one that may end too early, as within \text{5"}, or that holds what follows a quote that was left out.
    """
    if said.count("{") > said.count("}") or _SWALLOWED.search(said):
        return False
    places = (damaged.find(begin + said + end) for begin, end in ('""', "''", "“”"))
    return any(damaged[place + len(said) + 2 :].lstrip()[:1] in _BEHIND for place in places if place >= 0)


def _unescaped(text: str) -> str:
    """A damaged text with JSON's escapes read, wherever they stand."""
    known = {"n": "\n", "r": "\r", "t": "\t"}
    read = re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda found: chr(int(found[1], 16)) if found[1] else known.get(found[2], found[2]),
        text,
        flags=re.DOTALL,
    )
    return read.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # an escape may be half a letter


def _before_the_next_turn(text: str, objects: list[tuple[dict, int]]) -> list[tuple[dict, int]]:
    """Without the objects that a model writes after its answer, for a task that it invents itself."""
    if len(objects) < 2:
        return objects
    turn = next((place for place in next_turns(text) if place >= objects[0][1]), len(text))
    return [(found, end) for found, end in objects if end <= turn]


def _read(text: str, key: str, read: Callable, begin: int, *, tries: int) -> list[tuple[dict, int]]:
    """(object with the key, its end) for the objects that `read` parses at opening brackets, at most `tries`."""
    objects: list[tuple[dict, int]] = []
    last = text.rfind(key)
    while tries and (start := _START.search(text, begin)) and start.start() < last:
        value, end = read(text, start.start())
        holders = _holders(value, key)
        objects += [(holder, end) for holder in holders]
        # If `read` reached the end of the text without finding the key, try the next bracket.
        begin = end if holders or end < len(text) else start.start() + 1
        tries -= 1
    return objects


def _valid(text: str, begin: int) -> tuple[Any, int]:
    """(the JSON value that opens at `begin`, its end); value None if it is invalid."""
    try:
        return _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):  # nested thousands of levels deep
        return None, len(text)


def _holders(value: Any, key: str, depth: int = 6) -> list[dict]:
    """The objects with the key: the value itself, items of a list, or a tool call's arguments (also as JSON text)."""
    if isinstance(value, str):
        return [holder for holder, _ in _objects(_escaped_end(value), key)]
    if isinstance(value, dict):
        if key in value:
            return [value]
        value = [value[name] for name in _CALLS if name in value]
    if not isinstance(value, list) or depth == 0:
        return []
    return [holder for item in value for holder in _holders(item, key, depth - 1)]
