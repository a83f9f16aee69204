"""Ctrl-C and SIGTERM stop a run immediately, except that a write in progress is finished first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

STOP_S = 1.5  # time for cleanup after a signal
_WRITING_S = 0.05  # how often it is looked whether a write has ended


class Interrupts:
    """A context manager that turns SIGINT and SIGTERM into KeyboardInterrupt, delayed while shielded.

    at_last   called in another thread if the block does not end within STOP_S seconds after the signal itself: Python
              calls no handler while the main thread is in a library, such as llama.cpp, and a library may catch the
              KeyboardInterrupt. A write in progress is finished before.
    """

    def __init__(self, at_last: Callable[[], object] | None = None) -> None:
        self._at_last = at_last
        self.stopped = False  # whether KeyboardInterrupt was raised: the interrupted code may raise another error
        self._depth = 0
        self._pending = False
        self._previous: dict[int, Any] = {}  # what signal.signal returned
        self._ended = threading.Event()
        self._wakeup: tuple[int, int] | None = None  # what signal.set_wakeup_fd returned, and the pipe's writing end

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            if self._at_last is not None:
                self._watch(self._at_last)
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exc) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._ended.set()
        if self._wakeup is not None:
            before, pipe = self._wakeup
            signal.set_wakeup_fd(before)
            with suppress(BrokenPipeError):  # it has ended
                os.write(pipe, b"\0")  # ends the thread that waits for a signal
            os.close(pipe)

    def _watch(self, at_last: Callable[[], object]) -> None:
        """Have Python write each signal's number into a pipe as it comes, whatever the main thread is doing."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False), writing
        threading.Thread(target=self._wait, args=(reading, at_last), name="interrupts", daemon=True).start()

    def _wait(self, reading: int, at_last: Callable[[], object]) -> None:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while (number := pipe.read(1)) and number[0] not in self._previous:
                if self._ended.is_set():
                    return
        if self._ended.wait(STOP_S):
            return
        while self._depth:
            if self._ended.wait(_WRITING_S):
                return
        at_last()

    def _raise(self) -> None:
        self.stopped = True
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
