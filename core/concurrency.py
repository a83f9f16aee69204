"""Run calls concurrently: results come in the order of the inputs; an error is raised at its call's turn."""

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
    those in flight are waited for. Ctrl-C does not wait: a call to a server that hangs would block the run.
    """
    for ready in ordered_groups(function, items, workers):
        yield from ready


def ordered_groups(function: Callable[[In], Out], items: Iterable[In], workers: int) -> Iterator[list[Out]]:
    """As `ordered_map`, with all results together that are there when the first of them is."""
    if workers <= 1:
        yield from ([function(item)] for item in items)
        return
    with worker_pool(workers) as pool:
        waiting: deque[Future[Out]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 4 * workers:  # enough that no worker is idle behind a slow one
                yield _ready(waiting)
        while waiting:
            yield _ready(waiting)


def _ready(calls: deque[Future[Out]]) -> list[Out]:
    """Wait for the first call; take its result, and those behind it that are there, up to one that failed."""
    results = [calls.popleft().result()]
    while calls and calls[0].done() and calls[0].exception() is None:
        results.append(calls.popleft().result())
    return results


@contextmanager
def side_by_side(several: bool) -> Iterator[Callable[..., Callable[[], Any]]]:
    """A context that yields `begin(function, *arguments)`: starts a call, returns a function that waits for its result.

    On exit all calls have ended; if some failed, the error of the first one started is raised. With several=False each
    call runs at once in this thread. Ctrl-C does not wait, as in `ordered_map`.
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
    """A context with a thread pool, which waits for all calls on exit, except on Ctrl-C."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
    wait = True
    try:
        yield pool
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def in_background(function: Callable[..., Out], *arguments: Any) -> Future[Out]:
    """The result to come of a call in a thread of its own, which nothing waits for at the end of the program."""
    outcome: Future[Out] = Future()

    def run() -> None:
        try:
            outcome.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is waited for
            outcome.set_exception(error)

    threading.Thread(target=run, name="worker-background", daemon=True).start()
    return outcome


def once(function: Callable[[], Out]) -> Callable[[], Out]:
    """A function that runs `function` once: later callers wait for the first, and get its result or its error."""
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
