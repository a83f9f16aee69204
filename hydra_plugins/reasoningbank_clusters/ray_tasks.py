"""Each cell is a task of Ray, in a process of its own. What dies with its process or node is run again and goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn

from hydra_plugins.reasoningbank_clusters._cells import CellJob, ClusterLauncher, refuse


class RayLauncher(ClusterLauncher):
    """Waits until every cell has returned, or is lost. The keys are in config/hydra/launcher/ray.yaml."""

    def __init__(self, *, address: str | None, max_retries: int, task: dict[str, Any]) -> None:
        self.address, self.max_retries, self.task = address, max_retries, task

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        try:
            import ray
        except ImportError:
            raise refuse("ray", "Ray is missing: pip install ray.") from None
        self._connect(ray)
        options = {key: value for key, value in self.task.items() if value is not None}
        # One cell a process, as with the other launchers: no state of a library goes from one to the next.
        run = ray.remote(max_calls=1, max_retries=self.max_retries, **options)(CellJob.__call__)
        began = [run.remote(job) for job in self.jobs(job_overrides, initial_job_idx)]
        try:
            return [self._result(ray, task, initial_job_idx + place) for place, task in enumerate(began)]
        finally:
            ray.shutdown()

    def _connect(self, ray: Any) -> None:
        from core.run.sweep import search_path

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else a Ray that starts here reports to its makers
        os.environ.setdefault("RAY_task_oom_retries", str(self.max_retries))  # else without end
        handler = signal.getsignal(signal.SIGTERM)
        runtime = {"env_vars": {"PYTHONPATH": search_path()}}
        try:
            ray.init(address=self.address or "local", runtime_env=runtime, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise refuse("ray", f"no cluster at {self.address or 'this host'}: {error}") from None
        finally:
            signal.signal(signal.SIGTERM, handler)  # which Ray takes: it would end the sweep without its sentence

    def _result(self, ray: Any, task: Any, number: int) -> JobReturn:
        try:
            return ray.get(task)
        except ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return self.lost(number, f"lost: Ray's task ended without a result. {' '.join(lines[:2])}")
