"""ahead.jsonl: finished episodes whose place in episodes.jsonl has not come, of streams that run at once.

Each is durable before the bank of its stream learns from it. It is kept here until those before it are written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.jsonl import JsonLines


class Ahead:
    """`rows` by their index. Thread-safe. The file is there only while the run goes on, or after it was cut off.

    Raises what JsonLines raises.
    """

    def __init__(self, path: Path, *, redact: Callable[[str], str] = str) -> None:
        self._path, self._redact = path, redact
        self._lines: JsonLines | None = None
        self._lock = threading.Lock()
        self.rows: dict[int, dict[str, Any]] = {}
        if path.exists():
            self._lines = JsonLines(path, durable=True, redact=redact)
            self.rows = {row["index"]: row for row in self._lines.read()}

    def add(self, row: dict[str, Any]) -> None:
        """Keep a finished episode, durably."""
        with self._lock:
            if self._lines is None:
                self._lines = JsonLines(self._path, durable=True, redact=self._redact)
            self._lines.append(row)
            self.rows[row["index"]] = row

    def forget(self, index: int) -> None:
        """Drop the episode with this index, which is now in episodes.jsonl, and those before it."""
        with self._lock:
            self.rows = {other: row for other, row in self.rows.items() if other > index}
            if self._lines is not None and not self.rows:
                os.truncate(self._path, 0)

    def in_order(self) -> list[dict[str, Any]]:
        """The rows, by their index."""
        return [self.rows[index] for index in sorted(self.rows)]

    def close(self) -> None:
        with self._lock:
            if self._lines is None:
                return
            self._lines.close()
            self._lines = None
            if not self.rows:
                self._path.unlink()
