"""What runs side by side: results in the order of the inputs, errors where they belong."""

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
    """Yield function(item) in order, with at most `workers` in flight; one worker takes no thread.

    An exception is raised at its item's turn, after the results before it; what has not started is then dropped, and
    what is in flight is waited for. Ctrl-C waits for nothing: a call to a server that hangs would hold the run.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
    wait = True
    try:
        waiting: deque = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 4 * workers:  # enough queued that no worker idles behind a slow one
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


@contextmanager
def side_by_side(several: bool) -> Iterator[Callable[..., Callable[[], Any]]]:
    """`begin(function, *arguments)` starts a call and returns a function that waits for its result.

    At the block's end all calls are over; the first error, in the order of their beginning, is raised there. Not
    `several`: each call is done as it begins, in this thread. Ctrl-C waits for nothing, as in `ordered_map`.
    """
    if not several:

        def now(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
            result = function(*arguments)
            return lambda: result

        yield now
        return
    pool, begun, wait = ThreadPoolExecutor(thread_name_prefix="worker"), [], True

    def begin(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        begun.append(pool.submit(function, *arguments))
        return begun[-1].result

    try:
        yield begin
        for future in begun:
            future.result()
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def once(function: Callable[[], Out]) -> Callable[[], Out]:
    """The function, run by who calls it first; whoever else calls it waits, and gets or raises the same."""
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
