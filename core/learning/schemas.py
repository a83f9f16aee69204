"""JSON schemas of replies, for models whose output can be constrained to one."""

from __future__ import annotations

LONGEST = 600  # characters of a lesson's content, unless more is asked for
THOUGHTS = 1200  # characters of what a model works out before it answers


def object_schema(properties: dict) -> dict:
    """An object with exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(longest: int) -> dict:
    """A text of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def lessons_schema(max_items: int, max_content: int = LONGEST) -> dict:
    """{thoughts, items: 1 to max_items of {title, description, content}}.

    The lengths keep a small model from running on. A text ends there in mid-sentence, so they leave room for the
    sentences that the prompt asks for.
    """
    item = object_schema(
        {"title": text_schema(100), "description": text_schema(400), "content": text_schema(max_content)}
    )
    items = {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}
    return object_schema({"thoughts": text_schema(THOUGHTS), "items": items})
