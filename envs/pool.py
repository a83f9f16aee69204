"""Live envs, leased one at a time, reused across tasks and always closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from core.errors import InfraError, UserError
from envs.base import BaseEnv

Out = TypeVar("Out")


class EnvPool:
    """Makes an env when none is free, so that as many live as are used at once. Thread-safe.

    workers     live envs at most: who wants one more waits; None is no limit
    timeout_s   for one attempt (`limited`); None is no limit
    """

    def __init__(
        self, factory: Callable[[], BaseEnv], workers: int | None = None, timeout_s: float | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"env.workers={workers}: give at least 1, or null.")
        self._factory, self._timeout_s = factory, timeout_s
        self._slots = nullcontext() if workers is None else threading.Semaphore(workers)
        self._free: list[BaseEnv] = []
        self._all: list[BaseEnv] = []
        self._lock = threading.Lock()

    @contextmanager
    def lease(self) -> Iterator[BaseEnv]:
        """An env of one's own for the length of the block."""
        with self._slots:
            with self._lock:
                env = self._free.pop() if self._free else None
            if env is None:
                env = self._factory()
                with self._lock:
                    self._all.append(env)
            try:
                yield env
            finally:
                with self._lock:
                    if not env.closed:
                        self._free.append(env)

    def limited(self, env: BaseEnv, work: Callable[[], Out]) -> Out:
        """work(), an attempt in a leased env. Past timeout_s the env is killed with whatever it is doing: InfraError.

        What work itself waits for, a model's answer, cannot be killed: its thread is left behind, and nobody hears it.
        """
        if self._timeout_s is None:
            return work()
        outcome: Future = Future()

        def run() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised where the outcome is waited for
                outcome.set_exception(error)

        threading.Thread(target=run, name="worker-attempt", daemon=True).start()
        wait([outcome], self._timeout_s)
        if not outcome.done():
            env.abort()
            raise InfraError(f"the attempt took longer than episode_timeout_s={self._timeout_s:g}", "timeout")
        return outcome.result()

    def close(self) -> None:
        """Close every env that was made."""
        with self._lock:
            envs, self._all, self._free = self._all, [], []
        for env in envs:
            env.close()
