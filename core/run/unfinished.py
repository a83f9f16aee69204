"""rollouts.jsonl: finished attempts of unfinished episodes, so that a killed run does not pay for them twice.

None of it is part of a run's result: an entry is dropped once its episode is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from core.jsonl import JsonLines, in_strings
from core.run.rows import RolloutLine, checked
from core.run.upgrade import with_derived_keys
from core.types import Trajectory


class RolloutLog:
    """The finished attempts of unfinished episodes, by the episode's index.

    Thread-safe. Raises the errors of JsonLines.
    """

    def __init__(self, path: Path, *, redact: Callable[[str], str] = str) -> None:
        # Attempts are not fsynced: a machine crash may lose one, but no result.
        self._redact = redact
        self._lines = JsonLines(path, as_read=partial(checked, kind=RolloutLine))
        self._lock = threading.Lock()
        self._open: dict[int, dict[int, Trajectory]] = {}
        self._stale = 0  # episodes written since the file was last rewritten
        for row in self._lines.read():
            self._open.setdefault(row["index"], {})[row["sample"]] = trajectory_of(row["trajectory"])

    def finished(self, index: int) -> dict[int, Trajectory]:
        """{sample: attempt} of the episode with this number."""
        with self._lock:
            return dict(self._open.get(index, {}))

    def add(self, index: int, trajectory: Trajectory) -> None:
        """Store an attempt until its episode is written."""
        with self._lock:  # before its line: a file that is rewritten meanwhile has it, once or twice
            self._open.setdefault(index, {})[trajectory.sample] = trajectory
        self._lines.append(self._row(index, trajectory))

    def forget(self, index: int) -> None:
        """Drop the entries of the episode with this number, which is now written."""
        with self._lock:
            self._open.pop(index, None)
            self._stale += 1
            n_open = len(self._open)
        if not n_open or self._stale >= max(64, 2 * n_open):  # so a line is written again once at most, on average
            self._stale = 0
            self._lines.rewrite(self._rows())

    def drop(self, written: Iterable[int]) -> None:
        """Drop written episodes whose entries are still there, because a crash came before `forget`."""
        for index in {*written} & self._open.keys():
            self.forget(index)

    def close(self) -> None:
        self._lines.close()

    def _rows(self) -> Iterator[dict[str, Any]]:
        with self._lock:
            kept = [(index, made) for index, attempts in self._open.items() for made in attempts.values()]
        for index, trajectory in kept:
            yield self._row(index, trajectory)

    def _row(self, index: int, trajectory: Trajectory) -> dict[str, Any]:
        found = with_derived_keys(in_strings(trajectory, self._redact))
        return {"index": index, "sample": trajectory.sample, "trajectory": found}


def trajectory_of(row: dict) -> Trajectory:
    """A Trajectory from its dictionary, which may have the keys that `with_derived_keys` adds."""
    return msgspec.convert(row, Trajectory)
