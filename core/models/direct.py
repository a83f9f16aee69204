"""The direct client: a server with OpenAI's API is asked over HTTP, without litellm, which takes seconds to load.

Requests are what litellm would send, and answers are read as litellm reads them: the same records, errors, retries and
costs. tests/models/test_direct.py compares both.
"""

from __future__ import annotations

import json
import os
import re
from types import SimpleNamespace
from typing import Any

from core.models.faults import end_of

# Providers with OpenAI's API, and the address of each; None: the user's own server, at llm.api_base.
PROVIDERS = {
    "hosted_vllm": None,
    "openai": "https://api.openai.com/v1",
    "dashscope": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "deepseek": "https://api.deepseek.com/beta",
    "openrouter": "https://openrouter.ai/api/v1",
}
OWN_SERVER = "hosted_vllm"
# The parameters of a role that are sent to each of them unchanged.
TAKEN = frozenset("temperature seed max_tokens response_format top_p stop reasoning_effort".split())
_NO_THINKING = ("openai", "dashscope")  # take no budget of tokens for it
# What a budget of tokens for thinking is called by servers that know efforts, from the largest; litellm's numbers.
_EFFORTS = {4096: "high", 2048: "medium", 1024: "low", 0: "minimal"}
_PATHS = {"completion": "chat/completions", "embedding": "embeddings"}
_OPENAI_THINKS = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)(?!-chat)")  # OpenAI's own models that take no max_tokens
_THOUGHT = re.compile(r"<(?:think|thinking|budget:thinking)>(.*?)</(?:think|thinking|budget:thinking)>(.*)", re.DOTALL)


def address_of(model: str) -> str | None:
    """The address of a model's provider if `api_base` gives none, as litellm finds it; None: there is none."""
    provider = model.partition("/")[0]
    named = (os.environ.get(f"{provider}_{name}".upper()) for name in ("base_url", "api_base"))
    return next(filter(None, named), PROVIDERS.get(provider)) if provider in PROVIDERS else None


def key_variable(model: str) -> str:
    """The environment variable with the key for a provider's own address, unless the configuration names one."""
    return f"{model.partition('/')[0]}_api_key".upper()


def taken(model: str) -> frozenset[str]:
    """The parameters of a role that a model may be sent, by litellm's name of the model."""
    provider, _, name = model.partition("/")
    if provider == "openai" and _OPENAI_THINKS.match(name):
        return TAKEN - {"top_p" if name.startswith("o") else "stop"}
    return TAKEN if provider in _NO_THINKING else TAKEN | {"thinking"}


def ask(http: Any, address: str, key: str | None, function: str, model: str, timeout_s: float, request: Any) -> Any:
    """A chat completion or an embedding, in the form of litellm's. Raises httpx's errors, StatusError for a status
    that is no success, AnsweredError for an error within the answer, UnreadableError if it is not JSON.

    http       a client of `client_maker`
    function   completion | embedding
    model      litellm's name
    request    the arguments of litellm's function
    """
    answer = http.post(
        f"{address.rstrip('/')}/{_PATHS[function]}",
        content=json.dumps(body_of(model, request)),  # ASCII, as half a surrogate has no UTF-8
        headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}),
        timeout=timeout_s,
    )
    if not answer.is_success:
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        raise StatusError(answer.status_code, f"{status}: {answer.text}")
    if "body" not in answer.extensions:
        kind = answer.headers.get("content-type", "of no type")
        what = "a stream that breaks off" if "data:" in answer.text[:200] else "no JSON"
        raise UnreadableError(f"the answer is {what} (content type {kind}): {answer.text[:200]}")
    body = answer.extensions["body"]
    return response_of(body) if function == "completion" else embeddings_of(body)


def body_of(model: str, request: dict[str, Any]) -> dict[str, Any]:
    """The body of a request for litellm's arguments, in the provider's own dialect."""
    provider, _, name = model.partition("/")
    body: dict[str, Any] = {key: value for key, value in request.items() if key != "extra_body"} | {"model": name}
    if provider == "openai" and _OPENAI_THINKS.match(name) and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    if provider == OWN_SERVER and (thinking := body.pop("thinking", None)):
        effort = next(word for least, word in _EFFORTS.items() if thinking["budget_tokens"] >= least)
        body.setdefault("reasoning_effort", effort)
    if provider == "deepseek":
        body = _thinking_switched(body)
    if provider == "openrouter" and "messages" in body:
        body["usage"] = {"include": True}  # what the call cost
    return body | (request.get("extra_body") or {})


def _thinking_switched(body: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek's thinking is on or off, and when it is on, a reply that goes back must have some."""
    effort, thinking = body.pop("reasoning_effort", None), body.pop("thinking", None)
    if effort is None and thinking is None:
        return body
    kind = "disabled" if thinking is None and effort == "none" else "enabled"
    messages = body["messages"]
    if kind == "enabled":
        messages = [m | {"reasoning_content": " "} if m["role"] == "assistant" else m for m in messages]
    return body | {"thinking": {"type": kind}, "messages": messages}


class StatusError(Exception):
    """An answer of a status that is no success."""

    def __init__(self, status_code: int, said: str) -> None:
        super().__init__(said)
        self.status_code = status_code


class UnreadableError(Exception):
    """An answer of status 200 that is not JSON: cut off, a page, a stream of events."""


class AnsweredError(Exception):
    """An error that a server reports within a response of status 200."""

    def __init__(self, said: str, status_code: Any) -> None:
        super().__init__(said)
        self.status_code = status_code


def response_of(body: Any) -> Any:
    """The body of a completion of status 200, in litellm's form. Raises AnsweredError for an error within it."""
    _check_error(body)
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


def embeddings_of(body: Any) -> Any:
    """The body of embeddings of status 200, in litellm's form. Raises AnsweredError for an error within it."""
    _check_error(body)
    if not isinstance(body, dict):
        raise AnsweredError("the answer holds no list of embeddings", 500)
    return SimpleNamespace(data=body.get("data"), usage=body.get("usage"), model=body.get("model"))


def _check_error(body: Any) -> None:
    error = body.get("error") if isinstance(body, dict) else None
    if error and (not isinstance(error, dict) or error.get("message") or error.get("code") is not None):
        said = error if isinstance(error, dict) else {"message": error}
        raise AnsweredError(str(said.get("message")), said.get("code", 422))


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
