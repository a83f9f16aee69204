"""The message in a provider's answer in one form, whatever field and shape a server gives it.

`canonical` rewrites the JSON body of a chat completion before a client library reads it: litellm and the openai SDK
then read the same, and neither refuses a shape that it does not know. `misplaced_text` reads a reply whose text stands
in the field for the model's reasoning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from core.errors import TransientError
from core.reply_marks import answer_of, behind_thoughts, next_turns, tagged_answers

# Fields with the model's reasoning, by how often they are seen; the first with a text counts.
_REASONING = (
    *("reasoning_content", "reasoning", "reasoning_details", "thinking", "thoughts", "thinking_blocks"),
    *("thinking_content", "reasoning_text", "thought", "thought_process", "analysis"),
)
_THOUGHT_PARTS = re.compile(r"think|reason|thought", re.IGNORECASE)
_TEXT_KEYS = ("text", "content", "value", "thinking", "reasoning", "summary", "output_text")
# Where one part of a text ends and the next begins a new line: "Thought: I look." "Action: look"
_NEW_LINE = re.compile(r"[\w.!?:;)}\]*`]\Z"), re.compile(r"[A-Z#*{\\][a-zA-Z#*\"\s{]")
SETTING = (
    "the reply's text came in the field for reasoning and the content was empty: start the server without its "
    "reasoning parser, or with the one of this model (vLLM and SGLang: --reasoning-parser; llama-server: "
    '--reasoning-format; LM Studio: "separate reasoning_content"), or switch thinking on for the model'
)
# A reply that an agent's, judge's or distiller's reader finds something in, at the end of the text.
_STATED = re.compile(
    r"\\(?:boxed|fbox)\s*\{\s*[^{}\s]|####\s*\S"
    r"|\banswer(?:\s+is\b|\s*[:=])[\s*:$(\[`\"']{0,6}(?:-?\d|\\|(?-i:[A-J])\b|(?m:\S+(?:[ ]\S+){0,2}[.\s]*$))"
    r"|(?m:^[ \t*_#>•-]*action[ \t]*\d*[ \t*_]*:[ \t]*\S)"
    r"|(?m:^[ \t*_#]*status[ \t*_]*:[ \t*_\"'`]*(?:success|failure)\b)|(?m:^[ \t]*```[ \t]*\Z)|答案(?:是|为|：|:)\s*\S",
    re.IGNORECASE,
)
_LESSON = re.compile(r"#[ \t]*memory item\b.*##[ \t]*content\b", re.IGNORECASE | re.DOTALL)
_LONE = re.compile(r"\W{0,3}(?:[A-Za-z]|[-+]?[$€£]?[\d.,/]*\d\s?%?)\W{0,3}")
_END_CHARS = 300  # of a text, where it states its answer


def canonical(body: Any) -> Any:
    """The body of a chat completion with each message in one form; the same object if nothing had to be changed.

    content            a text: parts of a text are joined, parts with reasoning moved, images and unknown parts left
                       out; an object is written as JSON
    reasoning_content  from any of the fields that servers use for it
    tool_calls         also from the earlier `function_call`; arguments are a text
    """
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list):
        return body
    changed = [_choice(choice) if isinstance(choice, dict) else choice for choice in choices]
    return body if changed == choices else body | {"choices": changed}


def canonical_bytes(content: bytes) -> bytes:
    """The same for a body as it was received; what is no JSON is left as it is."""
    if b'"choices"' not in content:
        return content
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return content
    changed = canonical(body)
    return content if changed is body else json.dumps(changed).encode()


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    if not isinstance(message, dict):
        given = choice.get("delta")  # of a server that streams unasked, or speaks the form before chats
        text = choice.get("text")
        message = given if isinstance(given, dict) else {"content": text} if isinstance(text, str) else None
        if message is None:
            return choice
    return choice | {"message": _message(message, choice)}


def _message(message: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    content, thoughts, refusal = _content(message.get("content"))
    found = (_flat(place.get(name)) for place in (message, choice) for name in _REASONING)
    reasoning = next((text for text in found if text.strip()), thoughts)
    changed = dict(message)
    if not isinstance(message.get("role"), str):
        changed["role"] = "assistant"
    if content is not message.get("content"):
        changed["content"] = content
    if reasoning and reasoning != message.get("reasoning_content"):
        changed["reasoning_content"] = reasoning
    if refusal and not message.get("refusal"):
        changed["refusal"] = refusal
    if calls := _calls(message):
        changed["tool_calls"] = calls
        changed.pop("function_call", None)
    if isinstance(content, str) and content.strip() and not reasoning and not answer_of(content).strip():
        # Thoughts in marks of their own and nothing else: the model said nothing, and no field holds its reply.
        changed["reasoning_content"] = None
    return changed


def _content(content: Any) -> tuple[Any, str, str]:
    """(text, reasoning, refusal) of a message's content; the same object where it is a text already."""
    if content is None or isinstance(content, str):
        return content, "", ""
    if isinstance(content, dict):
        if not (
            isinstance(content.get("type"), str)
            and any(isinstance(content.get(key), (str, list)) for key in _TEXT_KEYS)
        ):
            parts = content.get("parts")
            return _content(parts) if isinstance(parts, list) else (json.dumps(content, ensure_ascii=False), "", "")
        content = [content]
    if not isinstance(content, list):
        return (json.dumps(content) if isinstance(content, (int, float)) else None), "", ""
    texts, thoughts, refusals = [], [], []
    for part in content:
        kind = str(part.get("type") or "") if isinstance(part, dict) else ""
        if kind == "refusal":
            refusals.append(_flat(part.get("refusal")))
        elif _THOUGHT_PARTS.search(kind) or (isinstance(part, dict) and part.get("thought") is True):
            thoughts.append(_flat(part))
        elif isinstance(part, str) or isinstance(part.get("text") if isinstance(part, dict) else None, (str, dict)):
            texts.append(part if isinstance(part, str) else _flat(part["text"]))
    return _joined(texts) if texts or not refusals else None, "\n".join(thoughts), "\n".join(refusals)


def _flat(value: Any, depth: int = 4) -> str:
    """The text in a field that is a text, an object with one, or a list of these."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth:
        return _joined([text for item in value if (text := _flat(item, depth - 1))])
    if isinstance(value, dict) and depth:
        texts = (_flat(value[key], depth - 1) for key in _TEXT_KEYS if key in value)
        return next((text for text in texts if text), "")
    return ""


def _joined(texts: list[str]) -> str:
    """Parts of a text as one: joined as they are, except that what begins a new line does so."""
    text = ""
    for part in texts:
        new = len(text) > 1 and _NEW_LINE[0].search(text) and _NEW_LINE[1].match(part)
        text += ("\n" if new else "") + part
    return text


def _calls(message: dict[str, Any]) -> list[Any]:
    """Tool calls in the form of today's API; [] if there are none, or some that cannot be read."""
    given = message.get("tool_calls")
    given = [given] if isinstance(given, dict) else given
    if not given and isinstance(message.get("function_call"), dict):
        given = [{"function": message["function_call"]}]
    if not isinstance(given, list):
        return []
    calls = []
    for number, call in enumerate(given):
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return []
        said = function.get("arguments")
        said = said if isinstance(said, str) else json.dumps({} if said is None else said, ensure_ascii=False)
        about = {"id": call.get("id") or f"call_{number}", "type": call.get("type") or "function"}
        calls.append(call | about | {"function": {"name": function["name"], "arguments": said}})
    return calls


def misplaced_text(reasoning: str, schema: Mapping[str, Any] | None) -> tuple[str, str]:
    """(reply, reasoning) of an answer that has its text in the field for reasoning, and no content.

    schema   the JSON schema that was asked for, if any

    Raises TransientError if the text may as well be thoughts, of which nothing may be read.
    """
    thoughts, reply = behind_thoughts(reasoning)
    if thoughts and reply.strip():
        return reply, thoughts
    if not thoughts and (_has_a_key(reasoning, schema.get("required", [])) if schema else states_reply(reasoning)):
        return reasoning, ""
    raise TransientError(f"the answer has no content, and its reasoning holds no reply: {SETTING}", "bad_reply")


def _has_a_key(text: str, keys: list[str]) -> bool:
    """Whether a text ends with a JSON object that has one of the keys: servers that hold no schema leave some out."""
    end = re.sub(r"[`\s]+\Z", "", text)
    return end.endswith("}") and any(re.search(rf"[\"']?\b{re.escape(key)}[\"']?\s*:", text) for key in keys)


def states_reply(text: str) -> bool:
    """Whether a text ends as a reply does, with an answer, an action or an object, and not as thoughts do."""
    text = text.strip()
    own = next((text[:place] for place in next_turns(text, observed=True) if _ends_stating(text[:place])), text)
    return bool(_ends_stating(own) or _LONE.fullmatch(own) or _LESSON.search(own))


def _ends_stating(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    end = "\n".join(lines[-2:])[-_END_CHARS:]
    return bool(
        _STATED.search(end) or tagged_answers(end) or (re.search(r"\}\s*+(?:```\s*+)?\Z", text) and '":' in text)
    )
