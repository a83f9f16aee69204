"""ahead.jsonl: with stream.split_by, finished episodes that cannot be written yet because earlier ones are missing.

An episode is stored here durably before its stream's bank learns from it, and stays until episodes.jsonl has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.jsonl import JsonLines, Note
from core.run.row_check import check_episode


class Ahead:
    """Holds {index: row} in `rows` and in the file. Thread-safe. The file exists only during a run, or after a crash.

    Raises the errors of JsonLines.
    """

    def __init__(self, path: Path, *, redact: Callable[[str], str] = str, note: Note | None = None) -> None:
        self._path, self._redact, self._note = path, redact, note
        self._lines: JsonLines | None = None
        self._lock = threading.Lock()
        self.rows: dict[int, dict[str, Any]] = {}
        if path.exists():
            self._lines = self._opened()
            self.rows = {row["index"]: row for row in self._lines.read()}

    def add(self, row: dict[str, Any]) -> None:
        """Store a finished episode, durably."""
        with self._lock:
            if self._lines is None:
                self._lines = self._opened()
            self._lines.append(row)
            self.rows[row["index"]] = row

    def forget(self, index: int) -> None:
        """Drop the episodes up to this index, which are now in episodes.jsonl."""
        with self._lock:
            self.rows = {other: row for other, row in self.rows.items() if other > index}
            if self._lines is not None and not self.rows:
                self._lines.clear()

    def in_order(self) -> list[dict[str, Any]]:
        """The rows, sorted by index."""
        return [self.rows[index] for index in sorted(self.rows)]

    def _opened(self) -> JsonLines:
        how: dict[str, Any] = {"redact": self._redact, "note": self._note, "check": check_episode}
        return JsonLines(self._path, durable=True, chained=True, **how)

    def close(self) -> None:
        with self._lock:
            if self._lines is None:
                return
            self._lines.close()
            self._lines = None
            if not self.rows:
                self._path.unlink()
