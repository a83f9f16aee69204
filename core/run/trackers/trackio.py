"""tracker=trackio: Trackio, a dashboard on this machine (`trackio show`), with its data in SQLite files."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from core.run.tracking import COLUMNS, TrackedRun, Tracker, Values, need, numbers


@dataclass(kw_only=True)
class TrackioTracker(Tracker):
    """A continued run goes on as the same run of Trackio, which knows runs by name: theirs ends with a part of the id.

    Data lie in TRACKIO_DIR, else in the cache of Hugging Face.
    """

    project: str
    _run: Any = field(default=None, init=False, repr=False)
    _last: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        need("trackio", pip="trackio")

    def start(self, run: TrackedRun) -> None:
        trackio: Any = import_module("trackio")

        name = f"{run.name} {run.id[:6]}"
        try:
            known = any(each.name == name for each in trackio.Api().runs(self.project))
        except ValueError:  # the project is new
            known = False
        with contextlib.redirect_stdout(io.StringIO()):  # it greets in eight lines
            self._run = trackio.init(
                project=self.project,
                name=name,
                group=run.group,
                config={"tags": run.tags} | run.config,
                resume="allow",
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        for step, values in run.earlier:
            self._last = step
            if not known:
                self.log(step, values)

    def log(self, step: int, values: Values) -> None:
        self._run.log(values, step=step)
        self._last = step

    def finish(self, summary: dict[str, Any], episodes: list[list[Any]], *, failed: bool = False) -> None:
        trackio: Any = import_module("trackio")

        table = trackio.Table(columns=list(COLUMNS), data=episodes)
        self.log(self._last + 1, {"episodes": table})
        self._run.log({f"summary/{key}": value for key, value in numbers(summary).items()}, step=self._last)
        with contextlib.redirect_stdout(io.StringIO()):
            trackio.finish()  # of the module, which at exit would finish it once more
