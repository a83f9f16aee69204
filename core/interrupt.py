"""Ctrl-C and SIGTERM stop a run immediately, except that a write in progress is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOP_S = 5.0  # time for cleanup after a KeyboardInterrupt


class Interrupts:
    """A context manager that turns SIGINT and SIGTERM into KeyboardInterrupt, delayed while shielded.

    at_last   called in another thread if the block does not end within STOP_S seconds after the signal: a library may
              have caught the KeyboardInterrupt, or block Python for long
    """

    def __init__(self, at_last: Callable[[], object] | None = None) -> None:
        self._at_last = at_last
        self._timer: threading.Timer | None = None
        self.stopped = False  # whether KeyboardInterrupt was raised: the interrupted code may raise another error
        self._depth = 0
        self._pending = False
        self._previous: dict[int, Any] = {}  # what signal.signal returned

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exc) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._timer is not None:
            self._timer.cancel()

    def _raise(self) -> None:
        self.stopped = True
        if self._at_last is not None and self._timer is None:
            self._timer = threading.Timer(STOP_S, self._at_last)
            self._timer.daemon = True
            self._timer.start()
        raise KeyboardInterrupt

    def _on_signal(self, _number, _frame) -> None:
        if self._depth:
            self._pending = True
        else:
            self._raise()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A context that no signal interrupts: KeyboardInterrupt is raised on exit."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending and not self._depth:
                self._pending = False
                self._raise()
