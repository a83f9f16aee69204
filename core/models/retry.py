"""The one layer of retries: transient errors are tried again, with jitter, bounded by count and by total time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from core.errors import AttemptOver, InfraError, StopRun, TransientError
from core.redact import Redactor

Out = TypeVar("Out")

FIRST_WAIT_S = 0.5  # before the second attempt, at most; doubled each time up to LONGEST_WAIT_S
LONGEST_WAIT_S = 30.0
log = logging.getLogger("run.retries")  # main.log has a line each, the progress line their number


@dataclass(frozen=True, kw_only=True)
class Retry:
    """At most `attempts` calls for one answer, and none that would begin later than total_s seconds after the first."""

    attempts: int
    total_s: float

    def __call__(self, call: Callable[[], Out], closing: threading.Event) -> tuple[Out, int]:
        """(what `call` returned, how many tries had failed before it). Setting `closing` ends waiting and retrying.

        After the last try its TransientError is raised, with the number of tries before it as its attribute `retries`.
        """
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            sleep_using_event,
            stop_after_attempt,
            stop_before_delay,
            stop_when_event_set,
        )

        retrying = Retrying(
            retry=retry_if_exception_type(TransientError),
            stop=stop_after_attempt(self.attempts) | stop_before_delay(self.total_s) | stop_when_event_set(closing),
            wait=_wait,
            sleep=sleep_using_event(closing),
            before_sleep=self._tell,
            reraise=True,
        )
        try:
            result = retrying(call)
        except TransientError as error:
            error.retries = retrying.statistics["attempt_number"] - 1
            raise
        return result, retrying.statistics["attempt_number"] - 1

    def _tell(self, state: Any) -> None:
        error = state.outcome.exception()
        cause = f"{error.kind}: {error}"
        log.warning(
            "try %d of %d failed, the next in %.1f s: %s",
            state.attempt_number,
            self.attempts,
            state.upcoming_sleep,
            cause,
        )


def _wait(state: Any) -> float:
    """Seconds to wait: a little more than the server asked for, else random below a doubling bound (full jitter)."""
    from tenacity import wait_random, wait_random_exponential

    error = state.outcome.exception()
    if error.retry_after is not None:
        return error.retry_after + wait_random(0, min(1.0, 0.1 * error.retry_after))(state)
    return wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S)(state)


def retry_after(headers: Any) -> float | None:
    """Seconds from a Retry-After header, which holds a number or an HTTP date (RFC 9110, 10.2.3); None without one."""
    from datetime import UTC, datetime

    text = str((headers or {}).get("retry-after") or "").strip()
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


# What went wrong at a provider: litellm's errors translated into core/errors.py, by status code, class and cause.

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


# How much of a provider a run may use at once: calls in flight, requests and tokens per minute.


@dataclass(kw_only=True)
class Limiter:
    """Shared by all models of one provider; `slot` waits until a call may leave. None is no limit.

    Requests and tokens are token buckets: a minute's worth may leave at once, then they refill evenly. When a server
    asks one call to wait, `pause` makes all of them wait, so that not every thread runs into the same rate limit.

    closing   once it is set, no call leaves any more
    """

    max_in_flight: int | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._in_flight = 0
        self._requests = _Bucket(self.requests_per_min, self.clock())
        self._tokens = _Bucket(self.tokens_per_min, self.clock())
        self._not_before = 0.0

    @contextmanager
    def slot(self, tokens: int) -> Iterator[_Slot]:
        """Wait for a place for a call of about that many tokens; set `used` on the slot to what it really took."""
        with self._changed:
            while (wait := self._wait(tokens)) > 0:
                self._changed.wait(min(wait, 1.0))  # also woken when a call ends; a second, to notice `closing`
            self._in_flight += 1
            self._requests.take(1)
            self._tokens.take(tokens)
        slot = _Slot(used=tokens)
        try:
            yield slot
        finally:
            with self._changed:
                self._in_flight -= 1
                self._tokens.take(slot.used - tokens)
                self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """No call leaves for that long."""
        with self._changed:
            self._not_before = max(self._not_before, self.clock() + seconds)

    def _wait(self, tokens: int) -> float:
        """Seconds until a call may leave; 0 when it may now. Raises InfraError when the model is being closed."""
        if self.closing.is_set():
            raise InfraError("the run is ending", "closed")
        now = self.clock()
        if self.max_in_flight is not None and self._in_flight >= self.max_in_flight:
            return 60.0
        waits = (self._not_before - now, self._requests.wait(1, now), self._tokens.wait(tokens, now))
        return max(0.0, *waits)

    def strictest(self, others: Iterable[Limiter]) -> Limiter:
        """One limiter with the lowest of each limit, for models that share a provider."""
        every, limits = [self, *others], {}
        for name in ("max_in_flight", "requests_per_min", "tokens_per_min"):
            known = [limit for limiter in every if (limit := getattr(limiter, name)) is not None]
            limits[name] = min(known, default=None)
        return Limiter(**limits, closing=self.closing, clock=self.clock)


@dataclass
class _Slot:
    used: int


class _Bucket:
    """A token bucket, full at first, refilled by `per_min` a minute. It may fall below zero."""

    def __init__(self, per_min: int | None, now: float) -> None:
        self._per_min, self._level, self._at = per_min, float(per_min or 0), now

    def wait(self, amount: float, now: float) -> float:
        if self._per_min is None:
            return 0.0
        self._level = min(self._per_min, self._level + (now - self._at) * self._per_min / 60)
        self._at = now
        missing = min(amount, self._per_min) - self._level  # more than a whole bucket leaves when it is full
        return max(0.0, missing) * 60 / self._per_min

    def take(self, amount: float) -> None:
        self._level -= amount
