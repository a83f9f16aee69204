"""What went wrong at a provider: litellm's errors translated into core/errors.py, by status code, class and cause."""

from __future__ import annotations

import os
from typing import Any

from core.errors import AttemptOver, InfraError, StopRun, TransientError
from core.models.retry import retry_after
from core.redact import Redactor

READ, TOLD = 20_000, 300  # characters of what a provider said that are looked at, and that are told
RETRIED = {408: "timeout", 409: "conflict", 429: "rate_limit"}  # and every 5xx
# An account without credit, where the status alone does not say so. Gemini's "exceeded your current quota" is a limit
# of requests a minute, so the words that OpenAI sends with its code count for nothing.
_NO_CREDIT = {
    400: ("credit balance is too low", "billing_hard_limit_reached"),
    429: ("insufficient_quota", "billing_not_active"),
}
_FAILED = ("error", "network_error")  # reasons to end an answer, which litellm renames to "stop"
# What servers say of a request that is longer than the model's context window, beside what litellm knows by itself.
_TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "exceed context limit",
    "available context size",
    "exceed_context_size",
    "context window",
    "prompt is too long",
    "input is too long",
    "prompt too long",
    "maximum number of tokens allowed",
)
_FILTERED = (
    "content management policy",
    "content_filter",
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "requires moderation",
)
_REFUSED = ("ConnectError", "ConnectionRefusedError")
_BROKEN_OFF = ("RemoteProtocolError", "ReadError", "WriteError", "APIConnectionError", "ConnectionResetError")
_UNREADABLE = ("JSONDecodeError", "UnicodeDecodeError", "APIResponseValidationError")


def explain(error: Exception, model: str, api_base: str | None, key_env: str | None = None) -> Exception:
    """What to raise: StopRun (no call can succeed), TransientError (worth another try), AttemptOver (what is in this
    request will never do: an agent ran into that by itself) or InfraError (the provider will not have it).

    key_env   the variable that holds the key; what is told of the error holds neither that nor another secret
    """
    where = api_base or "its server"
    short = f"{type(error).__name__}: {_brief(str(error), key_env)}"
    status = getattr(error, "status_code", None) or 0
    if not isinstance(status, int):  # of an error within an answer, which may call it anything
        status = int(status) if str(status).isdecimal() else 500
    if kind := _own_doing(error, status, f"{short} {str(getattr(error, 'body', None))[:300]}"):
        return AttemptOver(f"{model}: {short}", kind)
    if status in (401, 403) or "issing credentials" in short or ("issing" in short and "API key" in short):
        return StopRun(f"{model} refused the key: {short}")
    if "LLM Provider NOT provided" in short:
        return StopRun(f"llm.model={model} names no provider that litellm knows: write it as provider/model.")
    if _no_credit(status, f"{error} {getattr(error, 'body', None)}"):
        return _stop_without_credit(model, short)
    if _is(error, ("UnsupportedParamsError",)):
        return StopRun(f"{model} does not take these decoding parameters: {short}")
    if _caused_by(error, _REFUSED):
        return TransientError(f"{model} cannot be reached at {where}: {_root(error)}.", "unreachable")
    if status == 404:
        return StopRun(f"{model} is not known at {where}: {short}")
    if kind := _transient(error, status):
        asked = retry_after(getattr(error, "litellm_response_headers", None))
        return TransientError(f"{model}: {short}", kind, asked)
    return InfraError(f"{model}: {short}", "bad_request")


def within(choice: Any, model: str, key_env: str | None = None) -> Exception | None:
    """The error behind an answer of status 200 that tells of a failure or was ended by one; None for a real answer."""
    extra = getattr(choice, "provider_specific_fields", None) or {}
    error, reason = extra.get("error"), extra.get("native_finish_reason") or choice.finish_reason
    if not error and str(reason).lower() not in _FAILED:
        return None
    said = error if isinstance(error, dict) else {"message": error}
    code, message = str(said.get("code") or ""), str(said.get("message") or "no reason given")
    status = int(code) if code.isdecimal() else 0
    short = f"{code} {_brief(message, key_env)}".strip()
    if _no_credit(status, f"{code} {message}"):
        return _stop_without_credit(model, short)
    if kind := _own_doing(None, status or 400, f"{code} {message}"):
        return AttemptOver(f"{model}: {short}", kind)
    return TransientError(f"{model}: the provider failed within its answer: {short}", RETRIED.get(status, "server"))


def _brief(said: str, key_env: str | None) -> str:
    """The beginning of what a provider said, as one line. Redacted before it is cut: nobody knows half a secret."""
    redact = Redactor(os.environ, {key_env} if key_env else set())
    return " ".join(redact(said[:READ]).split())[:TOLD]


def _no_credit(status: int, said: str) -> bool:
    return status == 402 or any(words in said.lower() for words in _NO_CREDIT.get(status, ()))


def _stop_without_credit(model: str, said: str) -> StopRun:
    return StopRun(f"{model}: the account has no credit left; top it up, and the same command resumes ({said}).")


def _own_doing(error: Exception | None, status: int, said: str) -> str | None:
    """The kind of AttemptOver behind a refusal; None where the request's content is not to blame.

    A limit of tokens a minute also tells of a request that is too large, but is the account's: 429, tried again.
    """
    said, refused = said.lower(), status in (400, 403, 413, 422)
    if _is(error, ("ContextWindowExceededError",)) or (refused and any(words in said for words in _TOO_LONG)):
        return "context"
    filtered = refused and any(words in said for words in _FILTERED)
    return "content_filter" if _is(error, ("ContentPolicyViolationError",)) or filtered else None


def _transient(error: Exception, status: int) -> str | None:
    if _caused_by(error, _UNREADABLE) or "invalid response from LLM" in str(error):
        return "bad_reply"
    if _caused_by(error, ("Timeout", "APITimeoutError", "ReadTimeout")):
        return "timeout"
    if status in RETRIED:
        return RETRIED[status]
    if _caused_by(error, _BROKEN_OFF) and status not in range(400, 500):
        return "connection"
    return "server" if status >= 500 else None


def _root(error: BaseException) -> str:
    """What the operating system said: "connection refused", an unknown host."""
    while not isinstance(error, OSError) and (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return getattr(error, "strerror", None) or str(error).splitlines()[0]


def _is(error: BaseException | None, names: tuple[str, ...]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _caused_by(error: BaseException | None, names: tuple[str, ...]) -> bool:
    for _ in range(10):  # a chain of causes may loop
        if error is None:
            return False
        if _is(error, names):
            return True
        error = error.__cause__ or error.__context__
    return False
