"""A pool of live envs: each is leased to one attempt at a time, reused across tasks and always closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar

from core.concurrency import in_background
from core.errors import InfraError, UserError
from envs.base import BaseEnv

Out = TypeVar("Out")


class EnvPool:
    """A pool of envs, which makes a new one only if none is free. Thread-safe.

    workers     max. live envs; a lease beyond them waits. None: no limit
    timeout_s   time limit of one attempt in seconds (`limited`). None: no limit
    handed      {field: what is set on every leased env that has the field}, such as what asks the grader's model
    """

    def __init__(
        self, factory: Callable[[], BaseEnv], workers: int | None = None, timeout_s: float | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"env.workers={workers}: give at least 1, or null.")
        self._factory, self._timeout_s = factory, timeout_s
        self._slots = nullcontext() if workers is None else threading.Semaphore(workers)
        self.handed: dict[str, Any] = {}
        self._free: list[BaseEnv] = []
        self._all: list[BaseEnv] = []
        self._lock = threading.Lock()

    @contextmanager
    def lease(self) -> Iterator[BaseEnv]:
        """Lease an env for the length of the with block; nothing else uses it meanwhile."""
        with self._slots:
            with self._lock:
                env = self._free.pop() if self._free else None
            if env is None:
                env = self._factory()
                with self._lock:
                    if self._all:
                        env.share(self._all[0])
                    self._all.append(env)
            for name in self.handed.keys() & env.__dataclass_fields__.keys():
                setattr(env, name, self.handed[name])
            try:
                yield env
            finally:
                with self._lock:
                    if not env.closed:
                        self._free.append(env)

    def limited(self, env: BaseEnv, work: Callable[[], Out]) -> Out:
        """Run work(), an attempt in a leased env, with a time limit, and return its result.

        An attempt begins no step after timeout_s (workflows/rollout.py). If its current call does not return within
        another timeout_s, it hangs: the env is aborted. Raises InfraError then.

        Work that waits for something else, such as a model's answer, cannot be stopped: its thread runs on, and its
        result is ignored.
        """
        if self._timeout_s is None:
            return work()
        outcome = in_background(work)
        wait([outcome], 2 * self._timeout_s)
        if not outcome.done():
            env.abort()
            raise InfraError(f"a call hung for longer than episode_timeout_s={self._timeout_s:g}", "timeout")
        return outcome.result()

    def close(self) -> None:
        """Close every env that was made. If closing one fails, the others are closed before the error is raised."""
        with self._lock:
            envs, self._all, self._free = self._all, [], []
        with ExitStack() as stack:
            for env in envs:
                stack.callback(env.close)
