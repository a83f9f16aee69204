"""Trackers (`tracker=`): services that receive a run's metrics. A tracker's error never stops a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.errors import UserError
from core.run.arms import env_label
from core.run.metrics import VALID, steps
from core.run.records import evaluated, place_of, usage_of
from core.types import content_id

log = logging.getLogger(__name__)

COLUMNS = ("task", "type", "status", "verdict", "steps", "tokens", "cost_usd", "lessons")
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker receives when a run starts or is resumed."""

    id: str  # unique to this run directory, and the same at each of its starts
    name: str  # arm, env and seed
    group: str  # the sweep's folder, else arm and env
    tags: dict[str, str]  # env, arm, workflow, model, setting
    run_dir: Path
    config: dict[str, Any]  # resolved, without secrets
    earlier: list[tuple[int, Values]]  # (index, values) of the episodes of earlier starts


class Tracker(Protocol):
    """Inherit from it and override what you need: each method does nothing by default."""

    def start(self, run: TrackedRun) -> None:
        """The run starts, or is resumed."""

    def log(self, step: int, values: Values) -> None:
        """An episode was recorded, see `Tally`. step: its index."""

    def finish(self, summary: dict[str, Any], episodes: list[list[Any]], *, failed: bool = False) -> None:
        """The stream has ended. episodes: one row per task with the values of COLUMNS. failed: an error ended it."""


@dataclass(kw_only=True)
class Tally:
    """Turns episodes, in order, into the values that trackers plot; keeps the cumulative success rate."""

    _n: int = field(default=0, init=False)
    _n_success: int = field(default=0, init=False)

    def values(self, row: dict[str, Any]) -> Values:
        """The values of an episode. An infra error has no `success`; what is unknown is left out."""
        valid, usage = row["status"] in VALID and evaluated(row), usage_of(row)
        self._n += valid
        self._n_success += valid and row["status"] == "success"
        found: Values = {"success": int(row["status"] == "success")} if valid else {}
        found |= {"infra_error": int(row["status"] == "infra_error"), "steps": steps(row)}
        spent = {"tokens": usage.tokens, "cost_usd": usage.cost_usd}
        found |= {name: value for name, value in spent.items() if value is not None}
        found |= {"lessons": len(row["lessons"]), "retrieved": len(row["retrieved"])}
        so_far = {"cumulative_success": self._n_success / self._n} if self._n else {}
        return {f"episode/{name}": value for name, value in found.items()} | so_far


def tracked_run(
    *, run: str, run_dir: Path, config: dict[str, Any], hydra: dict[str, Any], arm: str, model: str, earlier: list
) -> TrackedRun:
    """run: the manifest's id; hydra: Hydra's own configuration; arm: its label; earlier: as in TrackedRun."""
    place = run_dir.resolve()
    chosen = hydra.get("runtime", {}).get("choices", {})
    env = env_label(chosen.get("env") or "env", config.get("env"))
    in_sweep = str(hydra.get("mode")).endswith("MULTIRUN")
    tags = {"env": env, "arm": arm, "workflow": chosen.get("workflow"), "model": model}
    return TrackedRun(
        id=content_id(run, str(place)),
        name=f"{arm} {env} seed{config['seed']}",
        group=place.parent.name if in_sweep else f"{arm} {env}",
        tags={key: value for key, value in (tags | {"setting": config["setting"]["name"]}).items() if value},
        run_dir=run_dir,
        config=config,
        earlier=earlier,
    )


def episode_table(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """A list of the values of COLUMNS for each episode; unknown ones are None."""
    return [
        [
            row["task_id"],
            row["task_type"],
            row["status"],
            row["verdict"]["label"],
            steps(row),
            usage_of(row).tokens,
            usage_of(row).cost_usd,
            len(row["lessons"]),
        ]
        for row in sorted(rows, key=place_of)
        if row["status"] != "stopped"  # its task runs again on resume
    ]


def numbers(summary: dict[str, Any]) -> dict[str, float]:
    """The plain numbers of a summary, for services that store nothing else."""
    return {key: float(value) for key, value in summary.items() if isinstance(value, (int, float))}


@dataclass(kw_only=True)
class NoTracker(Tracker):
    """tracker=none."""


@dataclass(kw_only=True)
class Guarded(Tracker):
    """Wraps a tracker: its first error is logged, and the run goes on without it."""

    tracker: Tracker
    option: str
    _on: bool = field(default=True, init=False, repr=False)

    def start(self, run: TrackedRun) -> None:
        self._safely(lambda: self.tracker.start(run))

    def log(self, step: int, values: Values) -> None:
        self._safely(lambda: self.tracker.log(step, values))

    def finish(self, summary: dict[str, Any], episodes: list[list[Any]], *, failed: bool = False) -> None:
        self._safely(lambda: self.tracker.finish(summary, episodes, failed=failed))

    def _safely(self, action: Callable[[], None]) -> None:
        if not self._on:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - no error of a tracker may end the run
            self._on = False
            kind = type(error).__name__
            log.warning("tracker=%s stopped, the run goes on without it: %s: %s", self.option, kind, error)


def need(package: str, *, pip: str) -> None:
    """Raise UserError if a tracker's package is not installed. pip: the requirement that installs it."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"tracker={package} needs a package that is not here: run .venv/bin/pip install {pip}.")
