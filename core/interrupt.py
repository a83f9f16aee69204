"""Ctrl-C and SIGTERM stop a run at once, but a write that is under way is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupts:
    """A context manager that turns SIGINT and SIGTERM into KeyboardInterrupt, delayed while shielded."""

    def __init__(self) -> None:
        self.stopped = False  # whether KeyboardInterrupt was raised: what it cut short may have raised something else
        self._depth = 0
        self._pending = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exc) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, _number, _frame) -> None:
        if self._depth:
            self._pending = True
        else:
            self.stopped = True
            raise KeyboardInterrupt

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A block that no signal interrupts: KeyboardInterrupt is raised at its end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending and not self._depth:
                self._pending = False
                self.stopped = True
                raise KeyboardInterrupt
