"""Trackers (`tracker=`): services that are told how a run goes. They never stop a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.errors import UserError

log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Inherit from it and override what you need: each method does nothing by default."""

    def start(self, run_dir: str, config: dict[str, Any]) -> None:
        """The run begins, or is continued. config: resolved, without secrets."""

    def log(self, step: int, values: dict[str, Any]) -> None:
        """An episode was recorded: {success (absent for an infra error), infra_error, lessons}."""

    def finish(self, summary: dict[str, Any]) -> None:
        """The stream is over."""


def logged(status: str, n_lessons: int) -> dict[str, Any]:
    """The values of an episode for a tracker. An infra_error is no failure: it has no `success`."""
    known = {} if status == "infra_error" else {"success": status == "success"}
    return known | {"infra_error": status == "infra_error", "lessons": n_lessons}


@dataclass(kw_only=True)
class NoTracker(Tracker):
    """tracker=none."""


@dataclass(kw_only=True)
class WandbTracker(Tracker):
    """tracker=wandb. At its first error it is logged and the run goes on without it.

    mode   offline (files in the run directory, `wandb sync` sends them later), online or disabled
    """

    project: str
    mode: str = "offline"
    _run: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        from importlib.util import find_spec

        if find_spec("wandb") is None:
            raise UserError("tracker=wandb needs the extra `wandb`: run `make setup`, or pip install wandb.")

    def start(self, run_dir: str, config: dict[str, Any]) -> None:
        def begin() -> None:
            import wandb

            self._run = wandb.init(
                project=self.project, mode=self.mode, dir=run_dir, config=config, settings=wandb.Settings(silent=True)
            )

        self._safely(begin)

    def log(self, step: int, values: dict[str, Any]) -> None:
        if self._run is not None:
            self._safely(lambda: self._run.log(values, step=step))

    def finish(self, summary: dict[str, Any]) -> None:
        if self._run is not None:
            self._safely(lambda: (self._run.summary.update(summary), self._run.finish()))

    def _safely(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises must not cost the run
            log.warning("tracker=wandb stopped: %s: %s", type(error).__name__, error)
            self._run = None
