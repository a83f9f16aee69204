"""The message in a provider's answer in one form, whatever shape a server gives it.

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
from core.reply_marks import behind_thoughts, plain_reply

_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")  # the first with a text counts
_TEXT_KEYS = ("text", "content", "thinking", "reasoning", "summary", "value")
SETTING = (
    "the reply's text came in the field for reasoning and the content was empty: start the server without its "
    "reasoning parser, or with the one of this model (vLLM and SGLang: --reasoning-parser; llama-server: "
    '--reasoning-format; LM Studio: "separate reasoning_content"), or switch thinking on for the model'
)


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


def canonical_body(content: bytes, encoding: str = "utf-8") -> tuple[bytes, Any]:
    """(the same for a body as it was received, parsed). Raises ValueError or RecursionError for what is no JSON."""
    body = json.loads(content.decode(encoding, "replace").removeprefix("\ufeff"))
    changed = canonical(body)
    return (content if changed is body else json.dumps(changed).encode()), changed


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    if not isinstance(message, dict):
        given = choice.get("delta")  # of a server that streams unasked, or speaks the form before chats
        text = choice.get("text")
        message = given if isinstance(given, dict) else {"content": text} if isinstance(text, str) else None
        if message is None:
            return choice
    return choice | {"message": _message(message)}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    content, thoughts, refusal = _content(message.get("content"))
    reasoning = next((text for name in _REASONING if (text := _flat(message.get(name))).strip()), thoughts)
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
    if isinstance(content, str) and content.strip() and not reasoning and not plain_reply(content).strip():
        # Thoughts in marks of their own and nothing else: the model said nothing, and no field holds its reply.
        changed["reasoning_content"] = None
    return changed


def _content(content: Any) -> tuple[Any, str, str]:
    """(text, reasoning, refusal) of a message's content; the same object where it is a text already."""
    if content is None or isinstance(content, str):
        return content, "", ""
    if isinstance(content, dict) and not isinstance(content.get("type"), str):
        parts = content.get("parts")  # Gemini's
        return _content(parts) if isinstance(parts, list) else (json.dumps(content, ensure_ascii=False), "", "")
    if not isinstance(content, (list, dict)):
        return json.dumps(content), "", ""
    texts, thoughts, refusals = [], [], []
    for part in content if isinstance(content, list) else [content]:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if kind == "refusal":
            refusals.append(_flat(part.get("refusal")))
        elif "think" in kind or "reason" in kind or (isinstance(part, dict) and part.get("thought")):
            thoughts.append(_flat(part))
        elif isinstance(part, str) or (isinstance(part, dict) and (kind.endswith("text") or "type" not in part)):
            texts.append(_flat(part))
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
    """Parts of a text as one. What begins as a line does becomes one: "Thought: I look." "Action: look"."""
    text = ""
    for part in texts:
        new = text[-1:].strip() and re.match(r"[A-Z][a-z]+:|#|```", part)
        text += ("\n" if new else "") + part
    return text


def _calls(message: dict[str, Any]) -> list[Any]:
    """Tool calls in the form of today's API; [] if there are none, or some that cannot be read."""
    given = message.get("tool_calls")
    if not given and isinstance(message.get("function_call"), dict):
        given = [{"function": message["function_call"]}]
    calls = []
    for number, call in enumerate(given if isinstance(given, list) else []):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return []
        said = function.get("arguments")
        said = said if isinstance(said, str) else json.dumps({} if said is None else said, ensure_ascii=False)
        about = {"id": call.get("id") or f"call_{number}", "type": call.get("type") or "function"}
        calls.append(call | about | {"function": {"name": function["name"], "arguments": said}})
    return calls


def apart(text: str, marks: Mapping[str, str] | None) -> tuple[str, str]:
    """(reply, reasoning) of a text whose model sets its thoughts apart by declared marks; None: by none."""
    if not marks:
        return text, ""
    thoughts, closed, reply = text.partition(marks["close"])
    if closed:  # the opening mark may have been the prompt's
        return reply, thoughts.partition(marks["open"])[2] or thoughts
    return ("", text) if text.lstrip().startswith(marks["open"]) else (text, "")  # they were cut off


def misplaced_text(reasoning: str, schema: Mapping[str, Any] | None) -> tuple[str, str]:
    """(reply, reasoning) of an answer that has its text in the field for reasoning, and no content.

    schema   the JSON schema that was asked for, if any

    Raises TransientError if the text may as well be thoughts, of which nothing may be read.
    """
    thoughts, reply = behind_thoughts(reasoning)
    if thoughts and reply.strip():
        return reply, thoughts
    try:
        found = json.loads(reasoning) if schema else None
    except ValueError:
        found = None
    if schema and isinstance(found, dict) and set(schema.get("required", ())) <= set(found):
        return reasoning, ""
    raise TransientError(
        f"the answer has no content, and its reasoning holds no reply: {SETTING}", "bad_reply", tries=2
    )
