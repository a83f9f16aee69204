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

    kind   one word for counting: timeout, connection, rate_limit, server, bad_reply, bad_request, local; env for
           everything an environment raises; and those of AttemptOver
    usage  a core.types.Usage: what answers took that were paid for and refused; None where there were none
    kept   it came out of the response cache, so that nothing was paid now
    """

    usage: Any = None
    kept: bool = False

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
