"""What agents and their model say to each other, in whichever common form of an API: OpenAI's chat and Responses,
Anthropic's messages, Gemini's contents. Nothing here raises for what it does not know: an agent may send anything.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

Json = dict[str, Any]
# What asks a model, by the end of the path; of another path no text is sent.
ASKS = ("/completions", "/responses", "/messages", ":generateContent", ":streamGenerateContent", "/embeddings")
ASKS += ("/count_tokens", ":countTokens")


def parsed(data: bytes) -> Json:
    """The object that some bytes hold; {} for anything else."""
    with suppress(ValueError, RecursionError):
        return _dict(json.loads(data))
    return {}


def messages_of(asked: Json) -> list[Json]:
    """The conversation of a request."""
    found = asked.get("messages") or asked.get("input") or asked.get("contents") or []
    found = _dicts(found) if isinstance(found, list) else [{"role": "user", "content": found}]
    first = asked.get("system") or asked.get("instructions") or asked.get("systemInstruction")
    if not first:
        return found
    return [{"role": "system"} | (first if isinstance(first, dict) else {"content": first}), *found]


def told(content: bytes) -> Json:
    """The answer of a server as one object: its JSON, or what its stream of events comes to; {} for neither."""
    if whole := parsed(content):
        return whole
    texts: list[str] = []
    for line in content.split(b"\n"):
        event = parsed(line.strip().removeprefix(b"data:")) if line.lstrip().startswith(b"data:") else {}
        for part in (_dict(event.get("response")), _dict(event.get("message")), event):
            for name in ("usage", "usageMetadata"):
                if usage := _dict(part.get(name)):
                    whole[name] = whole.get(name, {}) | {k: v for k, v in usage.items() if v is not None}
            whole |= {"model": part["model"]} if part.get("model") else {}
        texts += [content_text(_dict(each.get("content"))) for each in _dicts(event.get("candidates"))]
        given = next(iter(_dicts(event.get("choices"))), {}).get("delta") or event.get("delta")
        if isinstance(given, str):
            texts.append(given)
        delta = _dict(given)
        said = [delta.get("content"), delta.get("text"), delta.get("partial_json")]
        functions = (_dict(call.get("function")) for call in _dicts(delta.get("tool_calls")))
        texts += [part for part in (*said, *(each.get("arguments") for each in functions)) if isinstance(part, str)]
    return whole | {"text": "".join(texts)} if whole or any(texts) else {}


def usage_of(said: Json) -> Json | None:
    """The token counts of an answer in the names of `token_counts`; None where it has none.

    Anthropic counts what was read from its cache, and written into it, apart; Gemini has names of its own.
    """
    if of_gemini := _dict(said.get("usageMetadata")):
        made = _number(of_gemini, "candidatesTokenCount") + _number(of_gemini, "thoughtsTokenCount")
        cached = {"cached_tokens": _number(of_gemini, "cachedContentTokenCount")}
        prompt = _number(of_gemini, "promptTokenCount")
        return {"prompt_tokens": prompt, "completion_tokens": made, "prompt_tokens_details": cached}
    usage = _dict(said.get("usage"))
    read, written = (_number(usage, f"cache_{what}_input_tokens") for what in ("read", "creation"))
    if read or written:
        prompt = _number(usage, "input_tokens") + read + written
        made, cached = _number(usage, "output_tokens"), {"cached_tokens": read}
        return {"prompt_tokens": prompt, "completion_tokens": made, "prompt_tokens_details": cached}
    return usage or None


def text_of(said: Json) -> str:
    """What an answer says, the calls of tools in it as JSON."""
    if _is(said.get("text")):
        return said["text"]
    parts = [_dict(each.get("message")) or {"content": each.get("text")} for each in _dicts(said.get("choices"))[:1]]
    parts += [_dict(each.get("content")) for each in _dicts(said.get("candidates"))[:1]]
    return "\n".join(filter(None, map(content_text, parts or _dicts(said.get("output")) or [said])))


def content_text(message: Json) -> str:
    """The text of a message: of its parts, its calls of tools and their results."""
    parts, found = message.get("content") or message.get("parts"), []
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            inner = part.get("text") or part.get("content")
            if isinstance(inner, list):
                inner = "\n".join(filter(None, (content_text({"content": [each]}) for each in inner)))
            found.append(str(inner) if inner else "")
            if part.get("input"):
                found.append(_call(part.get("name"), part["input"]))
            if called := _dict(part.get("functionCall")):
                found.append(_call(called.get("name"), called.get("args")))
            if answered := _dict(part.get("functionResponse")):
                found.append(json.dumps(answered.get("response"), ensure_ascii=False))
    for call in _dicts(message.get("tool_calls")):
        function = _dict(call.get("function"))
        found.append(_call(function.get("name"), function.get("arguments")))
    if message.get("arguments"):  # a call, in the Responses API
        found.append(_call(message.get("name"), message["arguments"]))
    found.append(message["output"] if _is(message.get("output")) else "")
    return "\n".join(filter(None, found))


def end_of(said: Json) -> str:
    choice = next(iter(_dicts(said.get("choices"))), {})
    return str(choice.get("finish_reason") or said.get("stop_reason") or "stop")


def transcript(messages: list[Json], answer: str) -> str:
    """What an agent and its model said to each other: a conversation, and the last answer.

    The prompt, which the attempt's opening holds, is left out: all before the model's first message.
    """
    first = next((place for place, each in enumerate(messages) if _is_models(each)), len(messages))
    lines = [
        f"{'agent' if _is_models(each) else 'result'}: {text}"
        for each in messages[first:]
        if (text := content_text(each))
    ]
    return "\n".join([*lines, f"agent: {answer}"])


def _is_models(message: Json) -> bool:
    return message.get("role") in ("assistant", "model") or message.get("type") in ("function_call", "reasoning")


def _call(name: Any, given: Any) -> str:
    return f"{name}({given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)})"


def _is(value: Any) -> bool:
    return isinstance(value, str)


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _number(usage: Json, name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
