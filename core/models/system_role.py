"""Models without a system role (Gemma, early Mistral, o1-mini): messages without it, and when to try them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.models.faults import refused_for
from core.types import Message

SYSTEM = ("system", "developer")  # roles whose messages are instructions


def may_refuse_system(error: Exception) -> bool:
    """Whether an error may come from a server that takes no system message: if it calls the request wrong.

    It is none if the words say that the length or the content was wrong. Some template engines say so with a 500; then
    the words must name the role.
    """
    status, said = getattr(error, "status_code", None), f"{error} {getattr(error, 'body', None) or ''}"
    if status == 500:
        return re.search(r"\b(?:system|roles?)\b", said, re.IGNORECASE) is not None
    return status in (400, 422) and refused_for(status, said) is None


def without_system(messages: Sequence[Message]) -> list[Message]:
    """The messages with each system message as the user's; neighbours of one role are one message.

    So the instructions stand in front of the first user message, and roles alternate.
    """
    made: list[Message] = []
    for message in messages:
        role = "user" if message["role"] in SYSTEM else message["role"]
        if made and made[-1]["role"] == role:
            made[-1] = made[-1] | {"content": f"{made[-1]['content']}\n\n{message['content']}"}
        else:
            made.append(message | {"role": role})
    return made
