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
    r"|recogni|availabl|one of|handl)\w*|\bunsupported|\bdisallowed|\bforbidden|\bdisabled|\binvalid|\bunexpected"
    r"|\bunknown|\bunrecogni\w+|\bno support|\bliteral_error|\bonly (?:the )?(?:roles? )?['\"]?user)"
)
_ROLE_REFUSED = re.compile(rf"{_NAMED}[^\n]{{0,80}}?{_REFUSED}|{_REFUSED}[^\n]{{0,60}}?{_NAMED}", re.IGNORECASE)
# Only user and assistant, in turns: said by templates that count a system message as one of them.
_TURNS = re.compile(
    r"\broles? (?:must|should|need to) alternate|\balternat\w+ (?:between )?['\"]?user"
    r"|\bonly ['\"]?user['\"]?(?: role)?,? (?:and|or) ['\"]?(?:assistant|model)\b"
    r"|\bvalid roles?\W{1,4}['\"]?user\b|\bshould be ['\"]user['\"] or ['\"]assistant"
    r"|\b(?:first (?:message|turn)|conversations?)\b[^.\n]{0,40}\bmust (?:be|start|begin|come)\b[^.\n]{0,20}\buser\b",
    re.IGNORECASE,
)
_ELSE = re.compile(
    r"too long|too large|exceed|context (?:length|window|size)|max\w* (?:context|tokens?|length)"
    r"|content[ _](?:policy|filter|management)|\bsafety\b|\bmoderation|overloaded",
    re.IGNORECASE,
)
_OTHER_CAUSES = (401, 402, 403, 408, 429)  # the status codes of keys, credit and limits


def refuses_system(error: Exception) -> bool:
    """Whether a server's error says that it takes no system message, in whatever words."""
    if getattr(error, "status_code", None) in _OTHER_CAUSES:
        return False
    said = f"{error} {getattr(error, 'body', None) or ''}"[:_READ_CHARS]
    return not _ELSE.search(said) and bool(_ROLE_REFUSED.search(said) or _TURNS.search(said))


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
