"""The errors of this project. Code that catches one goes by its type, never by its text.

UserError       a mistake that the user can correct; main prints its one sentence and exits
StopRun         nothing further can succeed (no key, server gone, disk full); as above, and the run can be resumed
InfraError      a model or an env broke in one episode: recorded as infra_error, never a failure, tried again
TransientError  an InfraError that is worth another try (rate limit, timeout, 5xx)
AttemptOver     what an agent ran into by its own doing: its attempt ends there, and is judged, counted and learned
                from. To a judge, a selector or a distiller the same error is an InfraError like others
OverBudget      an AttemptOver: a call that was refused because the run's or the episode's budget is used up
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
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

    kind     one word for counting: timeout, connection, rate_limit, server, bad_reply, bad_request, local; env for
             everything an environment raises; and those of AttemptOver
    usage    a core.types.Usage: what answers took that were paid for and refused; None where there were none
    kept     it came out of the response cache, so that nothing was paid now
    retries  how often the call was repeated before
    """

    usage: Any = None
    kept: bool = False
    retries: int = 0

    def __init__(self, message: str, kind: str = "env") -> None:
        super().__init__(message)
        self.kind = kind


class TransientError(InfraError):
    """An InfraError that another try may avoid. retry_after: seconds that the server asked to wait, or None."""

    def __init__(self, message: str, kind: str = "server", retry_after: float | None = None) -> None:
        super().__init__(message, kind)
        self.retry_after = retry_after


class AttemptOver(InfraError):
    """Ends an agent's attempt, which is then evaluated by what it reached. The kind is what the attempt ended by:

    context         the conversation outgrew the model's context window
    content_filter  the provider's filter refused the conversation, or left nothing of the answer
    time            episode_timeout_s was over before the next step
    budget          see OverBudget
    """


class OverBudget(AttemptOver):
    """No call was made. whole_run: the run's budget is used up, so it ends; else the episode's, so its attempt ends."""

    def __init__(self, message: str, *, whole_run: bool) -> None:
        super().__init__(message, "budget")
        self.whole_run = whole_run


# Checks of a part's settings. Each raises UserError with one sentence: the key, its value and what to give.


def check_numbers(
    part: object, group: str, *names: str, least: float = -inf, most: float = inf, whole: bool = False
) -> None:
    """Each named field of a part lies from `least` to `most`, or is None. group: where its keys stand in the config."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not (isinstance(value, int if whole else (int, float)) and least <= value <= most):
            limits = f"of at least {least}" if most == inf else f"from {least} to {most}"
            raise UserError(f"{group}.{name}={value}: give a {'whole ' if whole else ''}number {limits}.")


def check_positive(part: object, group: str, *names: str) -> None:
    """Each named field of a part is above 0, or None."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise UserError(f"{group}.{name}={value}: give a number above 0.")


def check_choice(part: object, group: str, name: str, known: Sequence[str | None]) -> None:
    """The named field of a part is one of the known values."""
    value = getattr(part, name)
    if value not in known:
        words = ["null" if word is None else word for word in known]
        raise UserError(f"{group}.{name}={value}: choose {', '.join(words[:-1])} or {words[-1]}.")


def is_url(path: str | Path) -> bool:
    """Whether a bank's path is the URL of a PostgreSQL database rather than a file."""
    return str(path).startswith(("postgresql:/", "postgres:/"))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Of the known names the two that are spelt most like this one, the nearest first; [] where none is near."""
    from difflib import get_close_matches

    return get_close_matches(name, [*known], n=2, cutoff=0.6)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses a name: ": did you mean X?", or "." where no known name is near."""
    near = nearest(name, known)
    return f": did you mean {' or '.join(near)}?" if near else "."
