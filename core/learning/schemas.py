"""The JSON schemas that a model is held to where it can be; their lengths leave room for what a prompt asks for."""

from __future__ import annotations


def object_schema(properties: dict) -> dict:
    """A JSON object with just these keys, all of them required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(longest: int) -> dict:
    """A text of 1 to `longest` characters."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def lessons_schema(max_items: int, max_content: int = 600) -> dict:
    """At most max_items of {title, description, content}.

    A decoder that is held to the lengths stops in mid-sentence there: they keep a small model from running on, and must
    leave room for the sentences that the prompt asks for.
    """
    item = object_schema(
        {"title": text_schema(100), "description": text_schema(240), "content": text_schema(max_content)}
    )
    return object_schema({"items": {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}})
