"""The only layer of retries, and what a provider's error means: whether another try may help, or the run ends.

`explain` and `error_within` turn a provider's errors into those of core/errors.py. `Retry` repeats a call that ended in
a TransientError, up to a number of tries and a total time. Two other modules react to errors as well: if the server
asks for time (Retry-After, as with most 429s), endpoint.py lets all calls of this provider wait; after the last try,
the next model of `llm.fallbacks` answers (fallback.py).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import uniform
from typing import Any, TypeVar

from core.errors import AttemptOver, InfraError, StopRun, TransientError
from core.models import faults
from core.models.network import about_connection, causes, proxies_set
from core.models.waits import waiting
from core.redact import Redactor, redactor

Out = TypeVar("Out")

FIRST_WAIT_S = 0.5  # before the second try, at most; doubled each time up to LONGEST_WAIT_S
LONGEST_WAIT_S = 30.0
REASON_CHARS = 160  # of an error's text, where the progress line says why a call waits
log = logging.getLogger("run.retries")  # one line per retry in main.log; the progress line shows their number


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Makes at most `attempts` tries for one reply; none begins later than `total_s` seconds after the first.

    A try that failed because the server was still loading its model does not count.
    """

    attempts: int
    total_s: float

    def __call__(self, call: Callable[[], Out], closing: threading.Event) -> tuple[Out, int]:
        """Return (the result of `call`, number of failed tries before it). Setting `closing` ends waiting and retrying.

        Raises the last try's InfraError, whose attribute `retries` is the number of tries before it.
        """
        until, number, n_counted = time.monotonic() + self.total_s, 0, 0
        while True:
            try:
                return call(), number
            except InfraError as error:
                error.retries = number
                if not isinstance(error, TransientError):
                    raise
                n_counted += not error.loading
                wait_s, most = _wait_s(error, number), min(self.attempts, error.tries or self.attempts)
                if n_counted >= most or time.monotonic() + wait_s > until:
                    raise
                what = "the server is loading its model" if error.loading else f"try {n_counted} of {most} failed"
                log.warning("%s, next try in %.1f s: %s: %s", what, wait_s, error.kind, error)
                with waiting(wait_s, why_tried_again(error)):
                    if closing.wait(wait_s):
                        raise
                number += 1


def why_tried_again(error: TransientError, chars: int | None = REASON_CHARS) -> str:
    """Why a call is tried again, in at most so many characters: "429 rate_limit: m: RateLimitError: ..."."""
    status = f"{error.status} " if error.status else ""
    return f"{status}{error.kind}: {error}"[:chars]


def _wait_s(error: TransientError, number: int) -> float:
    """Seconds to wait: slightly more than Retry-After, else random below a bound that each earlier try doubles."""
    if error.retry_after is not None:
        return error.retry_after + uniform(0, min(1.0, 0.1 * error.retry_after))
    return uniform(0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(number, 30)))


def retry_after(headers: Any) -> float | None:
    """Seconds that a server asks to wait; None if no header says so in a form that can be read; inf: for ever.

    OpenAI's and Azure's headers in milliseconds are more exact, so they count before Retry-After, which is a number of
    seconds or an HTTP date (RFC 9110, 10.2.3).
    """
    named = {str(name).lower(): str(value).strip() for name, value in dict(headers or {}).items()}
    for name, unit in (("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            if (asked := float(named.get(name, "nan"))) >= 0:
                return asked * unit
        except ValueError:
            if (until := _until_date(named[name])) is not None:
                return until
    return None


def _until_date(text: str) -> float | None:
    """Seconds until an HTTP date; None if it is none."""
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


# Classification of a client's errors, by status code, class and cause.

READ_CHARS, QUOTED_CHARS = 20_000, 300  # of a provider's error text: characters that are read, and that are quoted
RETRIED = {408: "timeout", 409: "conflict", 429: "rate_limit"}  # and every 5xx
# Texts that mean "no credit", by status. OpenAI's "exceeded your current quota" is not among them, because Gemini sends
# the same words for its limit of requests per minute.
_NO_CREDIT = {
    400: ("credit balance is too low", "billing_hard_limit_reached"),
    429: ("insufficient_quota", "billing_not_active"),
}
# Statuses of a page that say the address is wrong; 401, 402, 403 and 407 are about keys, money and proxies.
_WRONG_ADDRESS = (*range(200, 401), *range(404, 407))
_UNREACHABLE = ("ConnectError", "ProxyError", "ConnectionRefusedError")
_DISCONNECTED = ("RemoteProtocolError", "ReadError", "WriteError", "APIConnectionError", "ConnectionResetError")
_UNREADABLE = ("UnreadableError", "JSONDecodeError", "UnicodeDecodeError", "APIResponseValidationError")


@dataclass(frozen=True, kw_only=True)
class FailedCall:
    """What is known of a failed call besides its exception.

    text         the body of the server's answer; "": unknown
    status       its status; 0: unknown
    headers      its headers
    worked       whether the server has answered a call with this key before
    max_tokens   of the request; None: not sent
    """

    text: str = ""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    worked: bool = False
    max_tokens: int | None = None


def explain(
    error: Exception, model: str, api_base: str | None, key_env: str | None = None, call: FailedCall = FailedCall()
) -> Exception:
    """The exception to raise for a failed call.

    StopRun         no call can succeed
    TransientError  another try may succeed
    AttemptOver     the request's content is too long or filtered: the agent's own doing
    InfraError      the provider rejects the request for another reason

    key_env   the environment variable with the key, which is redacted from the message like other secrets
    """
    status = call.status if call.status >= 400 else getattr(error, "status_code", None) or 0
    if not isinstance(status, int):  # from an error within a response, where it may be any value
        status = int(status) if str(status).isdecimal() else 500
    explained = _explained(error, model, api_base, status, key_env, call)
    if isinstance(explained, InfraError):
        explained.status = status
    if isinstance(explained, TransientError):
        explained.loading = status == 503 and faults.is_loading(call.text)
    return explained


def _explained(
    error: Exception, model: str, api_base: str | None, status: int, key_env: str | None, call: FailedCall
) -> Exception:
    short = f"{type(error).__name__}: {_brief(str(error), key_env)}"
    where = api_base or "its server"
    proxy_note = _proxy_note(call)
    kind = _refused_for(error, status, call)
    if kind in ("context", "content_filter"):
        return AttemptOver(f"{model}: {short}", kind)
    if kind == "max_tokens":
        said = f"max_tokens={call.max_tokens} alone fills the model's context window: give a smaller one"
        return InfraError(f"{model}: {said} ({short})", "bad_request")
    if kind == "region" and not call.worked:
        return StopRun(f"{model} does not serve the country or region of this machine: {short}")
    if (target := call.headers.get("location")) and 300 <= call.status < 400:
        return StopRun(f"{model}: {where} redirects ({call.status}) to {target}: give the address there as api_base.")
    is_page = call.status in _WRONG_ADDRESS and faults.is_page(call.text)
    if not call.worked and api_base and (status in (404, 405) or is_page):  # it answers, but not as a model's server
        of_openai = "an OpenAI-compatible address usually ends in /v1"
        usual = "Ollama's own has no path" if model.startswith("ollama") else of_openai
        at = f"api_base={api_base}, which answers {call.status or status}"
        return StopRun(f"{model} is not known at {at}: {usual} ({short}){proxy_note}")
    if status == 403 and call.worked:
        return InfraError(f"{model} refused this call, though the key has worked before: {short}", "refused")
    said = short.lower()
    if status in (401, 403, 407) or ("missing" in said and ("credentials" in said or "api key" in said)):
        return StopRun(f"{model} refused the key: {short}{proxy_note}")
    if "LLM Provider NOT provided" in short:
        return StopRun(f"llm.model={model} names no provider that litellm knows: write it as provider/model.")
    if _no_credit(status, f"{error} {getattr(error, 'body', None)}"):
        return _stop_without_credit(model, short)
    if _is_a(error, ("UnsupportedParamsError",)) or faults.names_a_parameter(call.text):
        return StopRun(f"{model} does not take these decoding parameters: {short}")
    if any(getattr(each, "errno", None) == errno.EMFILE for each in causes(error)):
        return StopRun(f"{model}: no more files may be open (ulimit -n): raise that, or give a lower max_concurrency.")
    if _caused_by(error, _UNREACHABLE):
        return TransientError(f"{model} cannot be reached at {where}: {about_connection(error)}.", "unreachable")
    if status == 404:
        return StopRun(f"{model} is not known at {where}: {short}")
    short += proxy_note
    transient = _transient_kind(error, status) or ("rate_limit" if kind == "rate_limit" else None)
    if transient:
        asked = retry_after(call.headers or getattr(error, "litellm_response_headers", None))
        if transient == "timeout" and not call.status:  # a 408 or 504 is an answer
            short = f"no answer within its timeout_s ({short}): raise it (llm.timeout_s), or make fewer calls at once"
        return TransientError(f"{model}: {short}", transient, asked)
    return InfraError(f"{model}: {short}", "bad_request")


def _proxy_note(call: FailedCall) -> str:
    """The end of a sentence that names the proxies that are set; "" if the answer may be the server's own: JSON."""
    kind = call.headers.get("content-type", "json")  # a server may leave the type out
    return "" if call.status and "json" in kind else proxies_set()


def error_within(choice: Any, model: str, key_env: str | None = None, body: Any = None) -> Exception | None:
    """The error that a response of status 200 reports, or that ended its reply early; None for a real reply.

    body   of the server's answer, as parsed; None: unknown
    """
    error = (getattr(choice, "provider_specific_fields", None) or {}).get("error")
    reason = faults.reason_given(choice, body)
    end = ("stop" if _has_content(choice) else None) if reason is None else faults.end_of(reason)
    if not error and end == "context":
        return AttemptOver(f"{model}: the context window was full before the reply's end ({reason})", "context")
    if not error and end is not None:
        return None
    said = error if isinstance(error, dict) else {"message": error}
    code = str(said.get("code") or "")
    message = str(said.get("message") or f"no reason given (finish_reason {reason})")
    status = int(code) if code.isdecimal() else 0
    short = f"{code} {_brief(message, key_env)}".strip()
    if _no_credit(status, f"{code} {message}"):
        return _stop_without_credit(model, short)
    kind = faults.refused_for(status or 400, f"{code} {message}") if error else None
    if kind in ("context", "content_filter"):
        return AttemptOver(f"{model}: {short}", kind)
    return TransientError(f"{model}: the provider failed within its answer: {short}", RETRIED.get(status, "server"))


def _brief(said: str, key_env: str | None) -> str:
    """The beginning of a provider's error text, in one line.

    First the secrets that this process knows are taken out, then this key, and only then is it cut short: a secret that
    was cut in two would not be known.
    """
    redact = Redactor(os.environ, {key_env} if key_env else set())
    said = redactor()(said[:READ_CHARS])
    return " ".join(redact(said).split())[:QUOTED_CHARS]


def _no_credit(status: int, said: str) -> bool:
    return status == 402 or any(words in said.lower() for words in _NO_CREDIT.get(status, ()))


def _stop_without_credit(model: str, said: str) -> StopRun:
    return StopRun(f"{model}: the account has no credit left; top it up, and the same command resumes ({said}).")


def _refused_for(error: Exception, status: int, call: FailedCall) -> str | None:
    """As faults.refused_for; "max_tokens" if that fills the context window and leaves no room for any prompt.

    A 429 for too many tokens per minute also speaks of a large request, but it is the account's limit: it is retried.
    """
    said = call.text if call.status else f"{error} {json.dumps(getattr(error, 'body', None) or '', default=str)}"
    kind = faults.refused_within(said) if call.status == 200 else faults.refused_for(status or 400, said)
    if kind is None and call.status not in (*RETRIED, 401, 402, 404):
        kind = "context" if _is_a(error, ("ContextWindowExceededError",)) else None
        kind = "content_filter" if _is_a(error, ("ContentPolicyViolationError",)) else kind
    if kind is None and call.status == 451 and call.worked:  # "Unavailable For Legal Reasons"
        kind = "content_filter"
    window = faults.window_named(said) if kind == "context" else None
    return "max_tokens" if window and call.max_tokens and call.max_tokens >= window else kind


def _has_content(choice: Any) -> bool:
    """Whether a reply holds anything at all: text, thoughts, a call of a tool."""
    message = getattr(choice, "message", None)
    named = ("content", "tool_calls", "reasoning_content", "function_call")
    extra = getattr(message, "provider_specific_fields", None) or {}
    return any(getattr(message, name, None) for name in named) or any(extra.values())


def _transient_kind(error: Exception, status: int) -> str | None:
    """The kind of TransientError for an error; None if a retry would not help."""
    if _caused_by(error, _UNREADABLE) or "invalid response from LLM" in str(error):
        return "bad_reply"
    if _caused_by(error, ("Timeout", "APITimeoutError", "TimeoutException")):
        return "timeout"
    if status in RETRIED:
        return RETRIED[status]
    if _caused_by(error, _DISCONNECTED) and status not in range(400, 500):
        return "connection"
    return "server" if status >= 500 else None


def _is_a(error: BaseException | None, names: tuple[str, ...]) -> bool:
    """Whether the error's class, or a base, has one of these names, so that the libraries need not be imported."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _caused_by(error: BaseException | None, names: tuple[str, ...]) -> bool:
    """Whether the class of the error, or of one of its causes, has one of these names."""
    return any(_is_a(each, names) for each in causes(error))
