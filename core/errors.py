"""The errors of this project. Code that catches an error decides by its type, never by its text.

UserError       a mistake that the user can correct; main prints its one sentence and exits
StopRun         no further call or write can succeed (no key, server gone, disk full); as above, but the run can be
                resumed
InfraError      a model or an env broke in one episode: recorded as infra_error, never as a failure, and retried
TransientError  an InfraError that another try may avoid (rate limit, timeout, 5xx)
AttemptOver     a limit that the agent reached by its own doing: its attempt ends there, and is judged, counted and
                learned from. Raised in a judge, a selector or a distiller it is handled as any InfraError
OverBudget      an AttemptOver: a call was refused because the run's or the episode's budget is used up
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any


class UserError(Exception):
    """Bad input. The message is one clear sentence that says what to do."""


class StopRun(UserError):
    """The run cannot go on. Everything recorded is safe, and the same command resumes it.

    usage, kept   as of InfraError
    """

    usage: Any = None
    kept: bool = False


class InfraError(Exception):
    """A model or an env broke. The message names the cause and is recorded with the episode.

    kind     one word for counting: timeout, connection, rate_limit, server, bad_reply, bad_request, refused (a 403
             though the key has worked), local; env for everything an environment raises; and those of AttemptOver
    usage    a core.types.Usage: usage of rejected responses, which are paid for; None if there were none
    kept     the error comes from the response cache, so nothing was paid now
    retries  number of tries before the last one
    status   HTTP status of the server's answer; 0: none
    """

    usage: Any = None
    kept: bool = False
    retries: int = 0
    status: int = 0

    def __init__(self, message: str, kind: str = "env") -> None:
        super().__init__(message)
        self.kind = kind


class TransientError(InfraError):
    """An InfraError that another try may avoid.

    retry_after   seconds that the server asked to wait, or None
    loading       it said that it is loading its model: such a try does not count
    tries         after so many it is given up, where the configuration allows more; None: no such limit
    """

    loading: bool = False

    def __init__(
        self, message: str, kind: str = "server", retry_after: float | None = None, tries: int | None = None
    ) -> None:
        super().__init__(message, kind)
        self.retry_after, self.tries = retry_after, tries


class AttemptOver(InfraError):
    """Ends an agent's attempt, which is then evaluated in the state reached. `kind` becomes the attempt's `ended_by`:

    context         the conversation outgrew the model's context window
    content_filter  the provider's filter refused the conversation, or left nothing of the answer
    time            episode_timeout_s was over before the next step
    budget          see OverBudget
    """


class OverBudget(AttemptOver):
    """A call was refused. whole_run: the run's budget is used up and the run ends; else the episode's, and the attempt
    ends.
    """

    def __init__(self, message: str, *, whole_run: bool) -> None:
        super().__init__(message, "budget")
        self.whole_run = whole_run


# Checks of a part's settings. Each raises UserError with one sentence: the key, its value and the allowed values.


def check_numbers(
    part: object, group: str, *names: str, least: float = -inf, most: float = inf, whole: bool = False
) -> None:
    """Check that each named field of a part is from `least` to `most`, or None. group: its group in the config."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not (isinstance(value, int if whole else (int, float)) and least <= value <= most):
            limits = f"of at least {least}" if most == inf else f"from {least} to {most}"
            raise UserError(f"{group}.{name}={value}: give a {'whole ' if whole else ''}number {limits}.")


def check_positive(part: object, group: str, *names: str) -> None:
    """Check that each named field of a part is above 0, or None."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise UserError(f"{group}.{name}={value}: give a number above 0.")


def check_choice(part: object, group: str, name: str, known: Sequence[str | bool | None]) -> None:
    """Check that the named field of a part is one of the known values."""
    value = getattr(part, name)
    if value not in known:
        words = ["null" if word is None else str(word).lower() if isinstance(word, bool) else word for word in known]
        raise UserError(f"{group}.{name}={value}: choose {', '.join(words[:-1])} or {words[-1]}.")


def check_returned(right: bool, where: str, what: str, found: object) -> None:
    """Raise UserError unless `right`, for a method of a part from outside that returns something else than it must.

    where   the method, such as MyMemory.retrieve
    what    what it must return
    """
    if not right:
        raise UserError(f"{where} must return {what}; it returned {found!r:.120}.")


# {library: its extra}
EXTRAS = {"pandas": "tables", "mpmath": "tables", "scipy": "report", "matplotlib": "report", "pyarrow": "parquet"}


def extra_for(error: ModuleNotFoundError) -> str | None:
    """The sentence for a library of one of our extras that is not installed; None for any other library."""
    if error.name not in EXTRAS:
        return None
    extra = f"`pip install 'reasoningbank-harness[{EXTRAS[error.name]}]'`"
    return f"this needs {error.name}: {extra}, or make setup in a checkout."


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The two known names with the most similar spelling, the most similar first; [] if none is similar."""
    from difflib import get_close_matches

    return get_close_matches(name, [*known], n=2, cutoff=0.6)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: ": did you mean X?", or "." if no known name is similar."""
    near = nearest(name, known)
    return f": did you mean {' or '.join(near)}?" if near else "."
