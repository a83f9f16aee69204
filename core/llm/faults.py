"""What went wrong at a provider: one of our errors for each of litellm's, by status code, class and cause."""

from __future__ import annotations

from core.errors import InfraError, StopRun, TransientError
from core.llm.retry import retry_after

RETRIED = {408: "timeout", 409: "conflict", 429: "rate_limit"}  # and every 5xx
_REFUSED = ("ConnectError", "ConnectionRefusedError")
_BROKEN_OFF = ("RemoteProtocolError", "ReadError", "WriteError", "APIConnectionError", "ConnectionResetError")
_UNREADABLE = ("JSONDecodeError", "UnicodeDecodeError", "APIResponseValidationError")


def explain(error: Exception, model: str, api_base: str | None) -> Exception:
    """StopRun (no call can succeed), TransientError (worth another try) or InfraError (this request will never do)."""
    where = api_base or "its server"
    short = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    status = getattr(error, "status_code", None) or 0
    if status in (401, 403) or "issing credentials" in short or ("issing" in short and "API key" in short):
        return StopRun(f"{model} refused the key: {short}")
    if "LLM Provider NOT provided" in short:
        return StopRun(f"llm.model={model} names no provider that litellm knows: write it as provider/model.")
    if _is(error, ("UnsupportedParamsError",)):
        return StopRun(f"{model} does not take these decoding parameters: {short}")
    if _caused_by(error, _REFUSED):
        return TransientError(f"{model} cannot be reached at {where}: {_root(error)}.", "unreachable")
    if status == 404:
        return StopRun(f"{model} is not known at {where}: {short}")
    if kind := _final(error, short):
        return InfraError(f"{model}: {short}", kind)
    if kind := _transient(error, status):
        asked = retry_after(getattr(error, "litellm_response_headers", None))
        return TransientError(f"{model}: {short}", kind, asked)
    return InfraError(f"{model}: {short}", "bad_request")


def _final(error: Exception, short: str) -> str | None:
    if _is(error, ("ContextWindowExceededError",)):
        return "context_overflow"
    lowered = short.lower()
    filtered = "content management policy" in lowered or "content_filter" in lowered
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


def _is(error: BaseException, names: tuple[str, ...]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _caused_by(error: BaseException | None, names: tuple[str, ...]) -> bool:
    for _ in range(10):  # a chain of causes may loop
        if error is None:
            return False
        if _is(error, names):
            return True
        error = error.__cause__ or error.__context__
    return False
