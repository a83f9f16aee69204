"""What a server's words mean: why a reply ended, and whether a refusal is about the request's own content.

Only a few words are known, of those that every server uses. A refusal in other words is found by asking once more with
a shorter prompt, or without the system message (remote.py), or it is an error that says so. core/models/retry.py makes
exceptions of what is found here.
"""

from __future__ import annotations

import json
import re
from typing import Any

# (what it means, words in the server's reason for a reply's end as `_word` writes them), the first match counts. None:
# the server broke the reply off. So does a reason without any of these words.
_ENDS: tuple[tuple[str | None, str], ...] = (
    ("content_filter", r"filter|safety|sensitive|refus|moderat|guardrail|toxic|block|prohibit|recitation|polic|spii"),
    (None, r"not_finished|cancel|abort|time|rate_limit|user|unspecified|resource"),
    ("context", r"context|error_limit"),
    (None, r"error|fail|overload|interrupt|unload"),
    ("length", r"length|max|limit|truncat"),
    ("tool_calls", r"tool_?(?:call|use)"),
    ("function_call", r"function_?call"),
    ("stop", r"stop|eos|end|done|complet|finish|normal|success"),
)
_NONE = ("", "none", "null")  # DashScope sends the text "null"


def end_of(reason: Any) -> str | None:
    """What a finish reason means, in any server's word: stop | length | tool_calls | function_call | content_filter |
    context (the window was full). None: the server broke the reply off, or says so in no word that is known.
    """
    word = _word(reason)
    return next((end for end, words in _ENDS if re.search(words, word)), None)


def _word(reason: Any) -> str:
    """A reason in lower case with underscores: "eosFound", "FINISH_REASON_STOP", {"type": "length"}."""
    if isinstance(reason, dict):
        reason = reason.get("type")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s.-]+", "_", str(reason or "").strip()).lower()
    return re.sub(r"^finish_?reason_", "", snake)


def reason_given(choice: Any, body: Any) -> str | None:
    """The server's own word for a reply's end; None if it gave none. litellm makes "stop" of words it does not know.

    choice   of the response, as litellm or direct.py returns it
    body     of the server's answer, as parsed; None if unknown: then what litellm kept of it
    """
    if isinstance(body, dict):
        for holder, key in (
            (_first(body.get("choices")), "finish_reason"),
            (_first(body.get("candidates")), "finishReason"),  # Gemini
            (body, "stop_reason"),  # Anthropic
            (body, "done_reason"),  # Ollama
        ):
            if isinstance(holder, dict) and key in holder:
                return None if _word(holder[key]) in _NONE else holder[key]
        if _first(body.get("choices")):
            return None
    kept = (getattr(choice, "provider_specific_fields", None) or {}).get("native_finish_reason")
    return kept or choice.finish_reason


def _first(several: Any) -> Any:
    return several[0] if isinstance(several, list) and several else None


# Why a request was refused --------------------------------------------------------------------------------------------

_READ, _READ_OF_ONE = 3000, 600  # characters read of an answer, and of one text in it, which may quote the prompt
# Statuses that are about the account, the address or the moment, whatever their text.
_NOT_THE_CONTENT = (401, 402, 404, 407, 408, 409, 429)
_LIMITS = r"per (?:minute|hour|day)|rate limit|daily|quota"
_ELSE = r"account|credit|billing|queue|memory|out of|deadline"
_REPLY = r"(?:max|output|completion) (?:\w+ )?tokens?"  # the reply's length and not the prompt's
_PROMPT = r"\b(?:prompt|inputs?|conversation|history|messages)\b"
_CONTENT = (
    r"content (?:\w+ )?(?:filter|polic|safety|risk|inspection|violat)|usage (?:polic|guideline)"
    r"|data inspection|polic\w+ violat|moderat|flagged|guard ?rail|safety|unsafe|inappropriate|sensitive|prohibited"
    r"|\bblocked\b|responsible ai|high risk|敏感|违规|不安全"
)
_PAGE = r"blocked|denied|rejected|not acceptable|firewall|安全"  # of a firewall, and not of a server's own
_LENGTH = (
    r"\bcontext\b|\bn ctx\b|model len|token limit|(?:got|[=(]) ?-\d|(?:输入|长度|超|prompt|tokens?).{0,16}[超过]"
    rf"|{_PROMPT}.{{0,60}}\b(?:too (?:long|large|big)|exceed\w*|longer|tokens|length|fit|shorten)\b"
    r"|(?:exceed\w*|too (?:long|large)|too many|longer|reduce|shorten|shorter)\b.{0,60}"
    r"\b(?:prompt|inputs?|messages(?! with)|tokens|conversation)\b"
)
_WINDOW = r"(?:context|model|sequence|seq|prompt)[^.\d]{0,40}?(\d[\d,]{2,})(?![\d.]*\d)"


def refused_for(status: int, text: str) -> str | None:
    """Why a request was refused: context | content_filter | region | rate_limit; None if the answer does not say.

    status, text   of the server's answer
    """
    if status in _NOT_THE_CONTENT:
        return None
    said, page = normalized(text), is_page(text)
    if status < 500 and re.search(r"(?:country|region|location)\b.{0,40}not supported|unsupported country", said):
        return "region"
    if re.search(_LIMITS, said):
        return "rate_limit" if status < 500 and re.search(_LENGTH, said) else None
    if re.search(_ELSE, said):
        return None
    if status < 500 and re.search(f"{_CONTENT}|{_PAGE}" if page else _CONTENT, said):
        return "content_filter"
    if status == 413 or page:
        return "context" if status == 413 else None
    if re.search(_REPLY, said) and not re.search(rf"{_PROMPT}|-\d", said):
        return None
    return "context" if re.search(_LENGTH, said) else None


def refused_within(text: str) -> str | None:
    """`refused_for` for an answer of status 200 that holds no reply."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return refused_for(400, text) if is_page(text) else None  # other texts may be a part of a reply
    choice = _first(body.get("choices")) if isinstance(body, dict) else None
    if isinstance(choice, dict):  # Gemini leaves out the message of a choice that it filtered
        filtered = not choice.get("message") and end_of(choice.get("finish_reason")) == "content_filter"
        return "content_filter" if filtered else None
    return refused_for(400, text)


def window_named(text: str) -> int | None:
    """The context window in tokens that an error names; None if it names none."""
    found = re.search(_WINDOW, normalized(text))
    return int(found[1].replace(",", "")) if found else None


def is_loading(text: str) -> bool:
    """Whether a server says of a 503 that its model is not there yet."""
    said = r"\bmodel\b.{0,80}\bload|\bload\w* .{0,40}\bmodel|not ready|starting|warming|estimated time"
    return re.search(said, normalized(text)) is not None


_PARAMETERS = (
    "temperature top_p stop seed max_tokens max_completion_tokens reasoning_effort response_format thinking".split()
)


def names_a_parameter(text: str) -> bool:
    """Whether an answer refuses a decoding parameter for this model, as OpenAI says it; every call would be refused."""
    try:
        error = json.loads(text)["error"]
        return error["code"] in ("unsupported_parameter", "unsupported_value") and error["param"] in _PARAMETERS
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def normalized(text: str) -> str:
    """A server's answer in one line of lower case, without quotes, tags and counts of tokens.

    Identifiers are written as words: "max_tokens" is "max tokens", "DataInspectionFailed" "data inspection failed".
    """
    if is_page(text):
        text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text[:50_000], flags=re.DOTALL | re.IGNORECASE)
    try:
        body = json.loads(text)
        body = {key: value for key, value in body.items() if key != "usage"} if isinstance(body, dict) else body
        text = json.dumps(body, ensure_ascii=False)
        text = re.sub(rf'("(?:[^"\\]|\\.){{{_READ_OF_ONE}}})(?:[^"\\]|\\.)*', r"\1", text)
    except (ValueError, RecursionError):
        pass
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[a-z])-(?=[a-z])|[_`'\"*’\\]", " ", text[: 2 * _READ])
    return " ".join(text.lower().split())[:_READ]


def is_page(text: str) -> bool:
    """Whether a text is a web page, not an API's answer."""
    return bool(re.match(r"\s*<(?:!doctype|html|head|body|\?xml)", text, re.IGNORECASE))
