"""llm.client=openai: the openai SDK without litellm, for the user's own OpenAI-compatible servers.

It loads in a third of litellm's time, and takes half of litellm's time for a call. Responses are read as litellm reads
them: same records, errors, retries and cost. tests/models/test_direct.py compares both.
"""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

from core.models.faults import end_of

PROVIDER = "hosted_vllm"  # its responses are not changed by litellm
# The parameters of a role that litellm sends to such a server unchanged.
TAKEN = frozenset("temperature seed max_tokens response_format top_p stop reasoning_effort".split())
_THOUGHT = re.compile(r"<(?:think|thinking|budget:thinking)>(.*?)</(?:think|thinking|budget:thinking)>(.*)", re.DOTALL)


def complete(client: Any, model: str, timeout_s: float, request: dict[str, Any]) -> Any:
    """A chat completion in the form of litellm's. Raises openai's errors, and JSONDecodeError if it is not JSON.

    client   openai.OpenAI, without retries of its own
    model    litellm's name
    """
    import openai

    try:
        raw = client.chat.completions.with_raw_response.create(
            model=model.partition("/")[2], timeout=timeout_s, **request
        )
    except openai.APIStatusError as error:
        # retry.explain reads Retry-After from there
        setattr(error, "litellm_response_headers", error.response.headers)  # noqa: B010
        raise
    return response_of(json.loads(raw.text))


def response_of(body: Any) -> Any:
    """The body of a response of status 200, in litellm's form. Raises AnsweredError for an error within it."""
    error = body.get("error") if isinstance(body, dict) else None
    if error and (not isinstance(error, dict) or error.get("message") or error.get("code") is not None):
        said = error if isinstance(error, dict) else {"message": error}
        raise AnsweredError(str(said.get("message")), said.get("code", 422))
    if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
        raise AnsweredError("the answer holds no list of choices", 500)
    try:
        choices = [_choice(each) for each in body["choices"]]
    except (KeyError, TypeError, AttributeError) as broken:
        raise AnsweredError(f"a choice of the answer is none: {broken!r}", 500) from broken
    return SimpleNamespace(
        choices=choices,
        usage=body.get("usage"),  # read by token_counts.py, whatever it holds
        model=body.get("model"),
        provider=body.get("provider"),
        system_fingerprint=body.get("system_fingerprint"),
    )


class AnsweredError(Exception):
    """An error that a server reports within a response of status 200."""

    def __init__(self, said: str, status_code: Any) -> None:
        super().__init__(said)
        self.status_code = status_code


def _choice(choice: dict[str, Any]) -> Any:
    message = choice["message"]
    calls = [SimpleNamespace(function=SimpleNamespace(**call["function"])) for call in message.get("tool_calls") or ()]
    reasoning, content = _thoughts_apart(message)
    native = choice.get("finish_reason")
    end = end_of(native) or "stop"  # one that is none is found by retry.error_within
    return SimpleNamespace(
        message=SimpleNamespace(
            content=content,
            tool_calls=calls,
            reasoning_content=reasoning,
            provider_specific_fields={"refusal": message.get("refusal")},
        ),
        finish_reason="tool_calls" if calls and native in (None, "stop") else end,
        provider_specific_fields={"native_finish_reason": native, "error": choice.get("error")},
    )


def _thoughts_apart(message: dict[str, Any]) -> tuple[str | None, str | None]:
    """(reasoning, content) of a message, whether the server separates them or marks reasoning by tags in the text."""
    content = message.get("content")
    for name in ("reasoning_content", "reasoning"):
        if name in message:
            return message[name] or None, content
    match = _THOUGHT.match(content or "")
    return (match[1], match[2]) if match else (None, content)
