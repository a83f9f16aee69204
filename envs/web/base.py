"""What the environments in a browser share: an engine in a worker process, which is kept from task to task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.errors import InfraError
from core.process import WorkerProcess
from envs.base import BaseEnv, EnvStateError
from envs.web.browser import browser_worker
from envs.web.engine import View
from envs.web.page import offers


@dataclass(kw_only=True)
class BrowserEnv(BaseEnv):
    """Its keys: config/env/miniwob.yaml and webarena.yaml."""

    browser: str | None = None
    slow_mo_ms: float = 100
    settle_s: float = 0.5
    timeout_s: float = 60.0
    _worker: WorkerProcess | None = field(default=None, init=False, repr=False)
    _view: View | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def engine(self) -> Callable[[], Any]:
        """What makes the engine, in the worker process. Raises UserError where there is no browser."""

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, whose child the browser is; None while there is none."""
        return self._worker.pid if self._worker else None

    def admissible(self) -> list[str]:
        """Clicks on what can be clicked, choices, and texts that the goal names; not every action that there is."""
        view = self.need_page()
        return offers(view.page, view.goal)

    def close(self) -> None:
        super().close()
        if self._worker:
            self._worker.close()

    def abort(self) -> None:
        super().abort()
        if self._worker:
            self._worker.abort()

    def call(self, method: str, *args: Any) -> Any:
        """Call the engine."""
        if self._aborted:
            raise InfraError("aborted")
        if self._worker is None:
            self._worker = browser_worker(self.engine(), self.timeout_s)
        self._worker.start()
        if self._aborted:  # before there was a process to kill
            self._worker.kill()
            raise InfraError("aborted")
        return self._worker.call(method, *args)

    def need_page(self) -> View:
        if self._view is None:
            raise EnvStateError("no page: call reset first")
        return self._view


def sendable(action: str) -> str:
    """Without halves of surrogate pairs, which no page can be sent."""
    return action.encode("utf-8", "replace").decode()
