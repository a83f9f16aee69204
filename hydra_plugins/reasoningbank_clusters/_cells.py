"""A sweep's cells on other hosts: how one is sent there and run, and what is said of one that does not come back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission


@dataclass(kw_only=True)
class CellJob:
    """A cell as it is sent to another host, where calling it is the run. A second call goes on with the first's.

    config   of the sweep as a whole
    words    the cell's overrides
    folder   in which the sweep was started: `run_dir` may be relative to it
    """

    context: HydraContext
    task_function: TaskFunction
    config: DictConfig
    words: list[str]
    number: int
    folder: str
    singletons: dict[type, Any]

    def __call__(self) -> JobReturn:
        os.chdir(self.folder)
        Singleton.set_state(self.singletons)
        setup_globals()
        config = self.context.config_loader.load_sweep_config(self.config, self.words)
        with open_dict(config.hydra.job) as job:
            job.id, job.num = f"job_id_for_{self.number}", self.number
        keys = {"job_dir_key": "hydra.sweep.dir", "job_subdir_key": "hydra.sweep.subdir"}
        return run_job(hydra_context=self.context, task_function=self.task_function, config=config, **keys)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit puts back into the queue: the same cell, whose records are its checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class ClusterLauncher(Launcher):
    """What the launchers of this package share; `launch` is theirs."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task_function, self.config = hydra_context, task_function, config

    def jobs(self, overrides: Sequence[Sequence[str]], first: int) -> list[CellJob]:
        """The cells with these overrides, numbered from `first`."""
        shared = {"context": self.context, "task_function": self.task_function, "config": self.config}
        shared |= {"folder": str(Path.cwd()), "singletons": Singleton.get_state()}
        return [CellJob(words=list(words), number=first + place, **shared) for place, words in enumerate(overrides)]

    def lost(self, number: int, reason: str) -> JobReturn:
        """What stands for a cell that returned nothing. It stops no other, and the sweep's end says it.

        A sweeper that goes by what runs return is left to see the error.
        """
        from core.run.sweep import BASIC
        from core.run.sweep_watch import Watch

        if (watch := Watch.running()) is not None:
            watch.lost(number, reason)
        if self.config.hydra.sweeper["_target_"] == BASIC:
            return JobReturn(status=JobStatus.COMPLETED, _return_value=None)
        return JobReturn(status=JobStatus.FAILED, _return_value=CompactHydraException(reason))


def refuse(launcher: str, why: str) -> CompactHydraException:
    """The error for a launcher that cannot work here."""
    return CompactHydraException(f"error: hydra/launcher={launcher}: {why}")
