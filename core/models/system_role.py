"""Models without a system role (Gemma, early Mistral, o1-mini): what their servers say, and messages without it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.types import Message

SYSTEM = ("system", "developer")  # roles whose messages are instructions
_READ_CHARS = 2000  # of an error's text; further on it may quote the request
# The role, named as one: "system role", "system messages", "role: system", "'system'".
_NAMED = (
    r"(?:(?:system|developer)[\s_-](?:and \w+ )?(?:role|message|prompt|instruction|turn)s?\b"
    r"|\broles?\W{1,4}(?:system|developer)\b|['\"`](?:system|developer)\\?['\"`])"
)
_REFUSED = (
    r"(?:(?:\bnot|n't|\bcannot|\bno longer)\b[\w\s]{0,20}?\b(?:support|allow|enabl|accept|permit|implement|valid"
    r"|recogni|availabl|one of|handl|have|take)\w*|\bunsupported|\bdisallowed|\bforbidden|\bdisabled|\binvalid"
    r"|\bunexpected|\bunknown|\bunrecogni\w+|\bno support|\bliteral_error|\bbut (?:got|found|was)\b)"
)
_ROLE_REFUSED = (
    rf"{_NAMED}[^\n]{{0,80}}?{_REFUSED}|\bno (?:system|developer) (?:role|message)"
    rf"|{_REFUSED}(?:(?!supported|permitted|allowed|expected|one of|must be)[^\n]){{0,60}}?{_NAMED}"
)
# The roles that there are, as a list without the system's.
_ROLES_LISTED = (
    r"\b(?:only|must|should|permitted|allowed|expected|supported|valid|one of)\b(?:(?!system|developer)[^\n]){0,40}?"
    r"\buser\b['\"`]?(?: roles?)?(?:,|/|\s|and|or)+['\"`]?(?:assistant|model)\b"
    r"(?![\s,'\"`]*(?:and|or)?[\s'\"`]*(?:system|developer))"
)
# Only user and assistant, in turns: said by templates that count a system message as one of them.
_TURNS = (
    r"\broles? (?:must|should|need to) alternate|\balternat\w+ (?:between )?['\"]?user"
    r"|\b(?:first (?:message|turn)|conversations?)\b[^.\n]{0,40}\b(?:must|should|has to)\b[^.\n]{0,20}\buser\b"
)
_ELSE = (
    r"too long|too large|exceed|context (?:length|window|size)|max\w* (?:context|tokens?|length)"
    r"|content[ _](?:policy|filter|management)|\bsafety\b|\bmoderation|overloaded"
)
_OTHER_CAUSES = (401, 402, 403, 408, 429)  # the status codes of keys, credit and limits


def refuses_system(error: Exception) -> bool:
    """Whether a server's error says that it takes no system message, in whatever words."""
    if getattr(error, "status_code", None) in _OTHER_CAUSES:
        return False
    said = f"{error} {getattr(error, 'body', None) or ''}"[:_READ_CHARS]
    if re.search(_ELSE, said, re.IGNORECASE):
        return False
    return any(re.search(form, said, re.IGNORECASE) for form in (_ROLE_REFUSED, _ROLES_LISTED, _TURNS))


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
