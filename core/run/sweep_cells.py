"""The cells of a sweep as they stand, read from what their processes leave: marks of their begin and end, episodes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGUN, DONE, FAILED = "running", "done", "failed"


def leave_mark(marks: Path, number: int, **said: Any) -> None:
    """Say how a cell stands: {folder, state, before, reason}. What was said of it before stays."""
    path = marks / f"{number}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(known | said), encoding="utf-8")
    temporary.replace(path)


def n_finished(path: Path) -> int:
    """The finished episodes of an episodes.jsonl; 0 where there is none."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return sum(line.endswith(b"\n") and _status(line) != "stopped" for line in lines)


@dataclass(kw_only=True)
class Cell:
    """One cell: how it stands, and what its episodes say. `update` reads what has come since.

    before   episodes that earlier starts had finished
    n_tasks  what it sets out to do; 0 while that is not known
    spent    USD of this start's episodes; None: unknown
    """

    number: int
    folder: Path
    state: str = BEGUN
    reason: str = ""
    before: int = 0
    n_tasks: int = 0
    n_done: int = 0
    n_new: int = 0
    spent: float | None = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    _read: int = 0
    _lines: int = 0

    @property
    def whole(self) -> bool:
        return self.state == DONE and bool(self.summary.get("complete"))

    @property
    def problem(self) -> str:
        """Why the cell is not whole; "" where it is."""
        if self.whole or self.state == FAILED:
            return self.reason
        n, of = self.summary.get("n", self.n_done), self.summary.get("n_tasks", self.n_tasks)
        if self.state == DONE:
            return f"partial, {n} of {of} tasks: its budget.run is used up"
        return f"stopped after {self.n_done} of {of} tasks"

    @property
    def share(self) -> tuple[float, float]:
        """(of its tasks those that are done, and those of earlier starts), from 0 to 1."""
        if self.state != BEGUN:
            return 1.0, 1.0 if self.n_new == 0 else min(1.0, self.before / max(1, self.n_done))
        n = max(self.n_tasks, self.n_done, 1)
        return self.n_done / n, min(self.before, self.n_done) / n

    def update(self, mark: dict[str, Any]) -> None:
        """Read the mark, the new lines of its episodes.jsonl, and at its end its summary."""
        if self.state != BEGUN:
            return
        if not self.n_new:  # until then it may be the manifest of a smaller run, which grows
            self.n_tasks = len(_json(self.folder / "manifest.json").get("task_ids", ()))
        self._read_episodes()
        self.state, self.reason = mark["state"], mark.get("reason", "")
        if self.state != BEGUN:
            self._read_episodes()
            self.summary = _json(self.folder / "summary.json")
            self.n_tasks = self.summary.get("n_tasks", self.n_tasks)

    def _read_episodes(self) -> None:
        path = self.folder / "episodes.jsonl"
        if not path.is_file() or path.stat().st_size <= self._read:
            return
        with path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        for line in new[: new.rfind(b"\n") + 1].splitlines(keepends=True):
            if _status(line) in ("stopped", None):  # the last one: its task will run again, and its line go
                return
            self._read += len(line)
            self._count(json.loads(line))

    def _count(self, row: dict[str, Any]) -> None:
        self._lines += 1
        self.n_done += "retries" not in row
        if self._lines > self.before:
            self.n_new += 1
            costs = [self.spent, *(usage["cost_usd"] for usage in row["usage"].values())]
            self.spent = None if None in costs else sum(costs)


def read_cells(marks: Path, cells: dict[int, Cell]) -> None:
    """Bring `cells`, by their numbers, up to date with the marks."""
    for path in marks.glob("*.json"):
        mark = _json(path)
        if "folder" in mark:
            number = int(path.stem)
            made = {"number": number, "folder": Path(mark["folder"]), "before": mark.get("before", 0)}
            cells.setdefault(number, Cell(**made)).update(mark)


def _status(line: bytes) -> str | None:
    """The status of an episode's line; None for a line that is being written over."""
    try:
        return json.loads(line).get("status")
    except ValueError:
        return None


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there yet
        return {}
