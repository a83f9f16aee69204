"""Run calls at once: results come in the order of the inputs, and an error is raised in the place of its result."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def ordered_map(function: Callable[[In], Out], items: Iterable[In], workers: int) -> Iterator[Out]:
    """Yield function(item) in order, with at most `workers` in flight; a single worker runs in this thread.

    An exception is raised at its item's turn, after the results before it; calls not yet started are then dropped, and
    those in flight are waited for. Ctrl-C waits for none: a call to a server that hangs would hold the run.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    with worker_pool(workers) as pool:
        waiting: deque = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 4 * workers:  # enough that no worker is idle behind a slow one
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def side_by_side(several: bool) -> Iterator[Callable[..., Callable[[], Any]]]:
    """A block in which `begin(function, *arguments)` starts a call and returns a function that waits for its result.

    At the block's end all calls are over; of those that failed, the earliest raises its error there. Unless `several`,
    each call runs in this thread as soon as it is started. Ctrl-C waits for none, as in `ordered_map`.
    """
    if not several:

        def now(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
            result = function(*arguments)
            return lambda: result

        yield now
        return
    with worker_pool() as pool:
        begun = []

        def begin(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
            begun.append(pool.submit(function, *arguments))
            return begun[-1].result

        yield begin
        for future in begun:
            future.result()


@contextmanager
def worker_pool(workers: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """A thread pool whose calls are over at the block's end; only Ctrl-C does not wait for those in flight."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
    wait = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def once(function: Callable[[], Out]) -> Callable[[], Out]:
    """The function, made to run once: later callers wait for the first, and get its result or raise its error."""
    lock, outcome = threading.Lock(), Future()

    def call() -> Out:
        with lock:
            if not outcome.done():
                try:
                    outcome.set_result(function())
                except BaseException as error:  # noqa: BLE001 - raised below, for every caller
                    outcome.set_exception(error)
        return outcome.result()

    return call
