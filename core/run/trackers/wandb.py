"""tracker=wandb: Weights & Biases."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from core.run.tracking import COLUMNS, TrackedRun, Tracker, Values, need

LONGEST_TAG = 64  # characters; wandb refuses a run with a longer one


@dataclass(kw_only=True)
class WandbTracker(Tracker):
    """A continued run goes on as the same run of wandb.

    Offline each start leaves a folder of its own with that run's id, which `wandb sync` joins in their order. A process
    that is killed leaves hardly anything in its folder: the next start then brings all episodes once more.

    mode   offline (files in the run directory, `wandb sync` sends them later), online or disabled
    """

    project: str
    mode: str = "offline"
    _run: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        need("wandb", pip="wandb")

    def start(self, run: TrackedRun) -> None:
        wandb: Any = import_module("wandb")  # its types are narrower than what it takes

        before = sorted((run.run_dir / "wandb").glob(f"offline-run-*-{run.id}"))
        whole = bool(before) and any(before[-1].glob("files/media/table/*"))  # which `finish` writes
        self._run = wandb.init(
            project=self.project,
            mode=self.mode,
            dir=run.run_dir,
            id=run.id,
            resume="allow",
            name=run.name,
            group=run.group,
            tags=[tag[:LONGEST_TAG] for tag in dict.fromkeys(run.tags.values())],
            config=run.config,
            reinit="finish_previous",  # of a sweep, whose runs share a process
            settings=wandb.Settings(silent=True),
        )
        for step, values in run.earlier:
            if not whole and step >= self._run.step:  # online that is where the service stands
                self.log(step, values)

    def log(self, step: int, values: Values) -> None:
        self._run.log(values, step=step)

    def finish(self, summary: dict[str, Any], episodes: list[list[Any]], *, failed: bool = False) -> None:
        wandb: Any = import_module("wandb")  # its types are narrower than what it takes

        table = wandb.Table(columns=list(COLUMNS), data=episodes, allow_mixed_types=True)
        self._run.log({"episodes": table})
        self._run.summary.update(summary)
        self._run.finish(exit_code=int(failed))
