"""The one layer of retries: transient errors are tried again, with jitter, bounded by count and by total time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from core.errors import TransientError

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
