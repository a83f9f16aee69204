"""A reply that a gateway streams although nobody asked for a stream, put together so that it is read like any other."""

from __future__ import annotations

import json
from typing import Any

_ONCE = ("role", "id", "type")  # parts of a message that are told again, and do not grow


def unstreamed(content: bytes) -> bytes:
    """The body of a chat completion from one of server-sent events, or of lines of JSON; anything else as it is.

    A stream that breaks off, with neither an end of the reply nor a [DONE], is left as it is: half a reply is none.
    """
    if content.lstrip()[:1] == b"{" and b'"delta"' not in content:
        return content
    said = [line.removeprefix(b"data:").strip() for line in content.splitlines()]
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant"}
    end = "stop" if b"[DONE]" in said else None
    try:
        for chunk in (json.loads(line) for line in said if line[:1] == b"{"):
            whole |= {name: value for name, value in chunk.items() if value is not None}
            for part in chunk.get("choices") or ():
                end = part.get("finish_reason") or end
                _add(message, part.get("message") or part.get("delta") or {"content": part.get("text")})
    except (ValueError, RecursionError, TypeError, AttributeError):  # not in this form
        return content
    if "error" not in whole and (end is None or len(message) == 1):
        return content
    if "tool_calls" in message:
        message["tool_calls"] = [*message["tool_calls"].values()]
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": end}]
    return json.dumps(whole).encode()


def _add(whole: dict[Any, Any], part: dict[Any, Any]) -> None:
    """Add what a chunk tells of a message: texts and lists grow, tool calls by their index."""
    for name, value in part.items():
        if name == "tool_calls" and value is not None:
            value = {call.get("index", number): call for number, call in enumerate(value)}
        if isinstance(value, dict):
            _add(whole.setdefault(name, {}), value)
        elif isinstance(value, str | list) and name not in _ONCE:
            whole[name] = whole.get(name, type(value)()) + value
        elif value is not None:
            whole.setdefault(name, value)
