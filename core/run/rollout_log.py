"""rollouts.jsonl: finished attempts of unfinished episodes, so that a killed run does not pay for them twice.

It is not part of a run's result: an attempt is kept here only until its episode is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from core.jsonl import JsonLines
from core.run.upgrade import placed, unplaced, upgraded_trajectory
from core.types import Step, Trajectory, Usage


class RolloutLog:
    """The finished attempts of unfinished episodes. Thread-safe. Raises what JsonLines raises."""

    def __init__(self, path: Path, *, redact: Callable[[str], str] = str) -> None:
        # Not fsynced: when the machine dies an attempt may be lost, but no result.
        self._lines = JsonLines(path, redact=redact)
        self._lock = threading.Lock()
        self._open: dict[int, dict[int, Trajectory]] = {}
        self._stale = 0  # episodes written since the file was last cleared
        for row in self._lines.read():
            self._open.setdefault(row["index"], {})[row["sample"]] = trajectory_of(row["trajectory"])

    def finished(self, index: int) -> dict[int, Trajectory]:
        """{sample: attempt} of the episode with this index."""
        with self._lock:
            return dict(self._open.get(index, {}))

    def add(self, index: int, trajectory: Trajectory) -> None:
        """Keep an attempt until its episode is written."""
        with self._lock:
            self._lines.append(_row(index, trajectory))
            self._open.setdefault(index, {})[trajectory.sample] = trajectory

    def forget(self, index: int) -> None:
        """Drop the attempts of this episode, which is now written, and of those before it."""
        with self._lock:
            self._open = {other: kept for other, kept in self._open.items() if other > index}
            self._stale += 1
            if self._open and self._stale < 64:  # cleared only now and then while other episodes run
                return
            self._stale = 0
            os.truncate(self._lines.path, 0)
            for other, kept in self._open.items():
                for trajectory in kept.values():
                    self._lines.append(_row(other, trajectory))

    def close(self) -> None:
        self._lines.close()


def _row(index: int, trajectory: Trajectory) -> dict:
    return {"index": index, "sample": trajectory.sample, "trajectory": placed(asdict(trajectory))}


def trajectory_of(row: dict) -> Trajectory:
    """A Trajectory from its dictionary."""
    row = unplaced(upgraded_trajectory(row))
    parts = {
        "opening": tuple(row["opening"]),
        "steps": tuple(Step(**step) for step in row["steps"]),
        "usage": Usage(**row["usage"]),
    }
    return Trajectory(**row | parts)
