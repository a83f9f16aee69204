"""rollouts.jsonl: finished attempts of unfinished episodes, so that a killed run does not pay for them twice.

With stream.mode=async also the records that an unfinished episode retrieved, because on resume the bank would return
others. None of it is part of a run's result: an entry is dropped once its episode is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.jsonl import JsonLines, Note
from core.memory.records import record_from
from core.run.row_check import check_rollout
from core.run.upgrade import placed, unplaced
from core.types import Scored, Step, Trajectory, Usage


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What an unfinished episode retrieved. seen: how many episodes the bank had learned from by then."""

    seen: int
    memories: list[Scored]


class RolloutLog:
    """The finished attempts of unfinished episodes, by the episode's number (`begun_as` in records.py).

    Thread-safe. Raises the errors of JsonLines.
    """

    def __init__(self, path: Path, *, redact: Callable[[str], str] = str, note: Note | None = None) -> None:
        # Attempts are not fsynced: a machine crash may lose one, but no result.
        self._lines = JsonLines(path, redact=redact, chained=True, check=check_rollout, note=note)
        self._lock = threading.Lock()
        self._open: dict[int, dict[int, Trajectory]] = {}
        self._begun: dict[int, Begun] = {}
        self._stale = 0  # episodes written since the file was last cleared
        for row in self._lines.read():
            if "seen" in row:
                memories = [Scored(**each | {"record": record_from(each["record"])}) for each in row["memories"]]
                self._begun[row["index"]] = Begun(seen=row["seen"], memories=memories)
            else:
                self._open.setdefault(row["index"], {})[row["sample"]] = trajectory_of(row["trajectory"])

    def finished(self, index: int) -> dict[int, Trajectory]:
        """{sample: attempt} of the episode with this number."""
        with self._lock:
            return dict(self._open.get(index, {}))

    def begun(self, index: int) -> Begun | None:
        """What the episode with this number retrieved in an earlier start; None if it had not begun."""
        with self._lock:
            return self._begun.get(index)

    def begin(self, index: int, begun: Begun) -> None:
        """Store what an episode retrieved, durably: episodes written later rely on it at a resume."""
        with self._lock:
            self._lines.append(_begun_row(index, begun), durable=True)
            self._begun[index] = begun

    def add(self, index: int, trajectory: Trajectory) -> None:
        """Store an attempt until its episode is written."""
        with self._lock:
            self._lines.append(_row(index, trajectory))
            self._open.setdefault(index, {})[trajectory.sample] = trajectory

    def forget(self, index: int) -> None:
        """Drop the entries of the episode with this number, which is now written."""
        with self._lock:
            self._open.pop(index, None)
            self._begun.pop(index, None)
            self._stale += 1
            empty = not (self._open or self._begun)
            if empty or self._stale >= 64:  # while other episodes run, the file is rewritten only occasionally
                self._clear(empty)

    def drop(self, written: Iterable[int]) -> None:
        """Drop written episodes whose entries are still there, because a crash came before `forget`."""
        stale = {*written} & (self._open.keys() | self._begun.keys())
        for index in stale:
            self.forget(index)

    def close(self) -> None:
        self._lines.close()

    def _clear(self, empty: bool) -> None:
        self._stale = 0
        if empty:
            self._lines.clear()
        else:
            self._lines.rewrite(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for index, begun in self._begun.items():
            yield _begun_row(index, begun)
        for index, kept in self._open.items():
            for trajectory in kept.values():
                yield _row(index, trajectory)


def _row(index: int, trajectory: Trajectory) -> dict:
    return {"index": index, "sample": trajectory.sample, "trajectory": placed(asdict(trajectory))}


def _begun_row(index: int, begun: Begun) -> dict:
    bare = [replace(hit, record=replace(hit.record, query_embedding=())) for hit in begun.memories]
    return {"index": index, "seen": begun.seen, "memories": [asdict(hit) for hit in bare]}


def trajectory_of(row: dict) -> Trajectory:
    """A Trajectory from its dictionary."""
    row = unplaced(row)
    parts = {
        "opening": tuple(row["opening"]),
        "steps": tuple(Step(**step) for step in row["steps"]),
        "usage": Usage(**row["usage"]),
    }
    return Trajectory(**row | parts)
