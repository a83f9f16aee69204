"""env=scenarios: six jobs of everyday software work against small simulated services, many variants of each.

    task        Log in to the site vasoje.example as dara.
    action      login(user="dara", password="sotugu-79", csrf="jefopenafo")
    feedback    403 Forbidden: CSRF token missing, used or invalid.

A service behaves like its kind: status codes, limits, things that are lost for good. A job that fails is told the rule
that it broke, in words; names, tokens, numbers and the order of the traps differ by variant, so the rule alone carries
over. Success is the service's own state, never what the agent says. Each job is a file of this folder (JOB.yaml), which
engine.py plays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError, check_numbers
from core.seeding import derive_seed
from core.types import Lesson, Task, content_id
from envs.base import BaseEnv
from envs.scenarios.engine import BadCall, SimulatedService, parse_call, read_job

JOBS = {name: read_job(name) for name in ("login", "shop", "payment", "migration", "batch", "deployment")}


@dataclass(kw_only=True)
class ScenariosEnv(BaseEnv):
    """`jobs` x `variants` tasks, interleaved: variant 1 of every job, then variant 2, ...

    Its keys: config/env/scenarios.yaml.
    """

    jobs: list[str]
    variants: int = 10
    _service: SimulatedService | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self, "env", "variants", least=1, whole=True)
        unknown = [job for job in self.jobs if job not in JOBS]
        if unknown or not self.jobs or len(set(self.jobs)) < len(self.jobs):
            raise UserError(f"env.jobs={self.jobs}: name some of {', '.join(JOBS)}, each once.")

    def close(self) -> None:
        if self._service is not None:
            self._service.close()
        super().close()

    def lessons(self) -> list[tuple[Task, Lesson]]:
        """One (first variant, ideal lesson) pair per job."""
        first = self.first_of_type()
        return [(first[job], JOBS[job].lesson()) for job in self.jobs]

    def service(self, task: Task) -> SimulatedService:
        """A task's service, not yet opened."""
        return self._of(task.type, task.id)

    def admissible(self) -> list[str]:
        return self._service.choices()

    def walkthrough(self) -> list[str]:
        return self._service.walkthrough()

    def describe(self) -> dict[str, Any]:
        tasks, rules = [[one.id, one.query] for one in self.tasks()], [JOBS[job].rules for job in self.jobs]
        return {"dataset": "scenarios", "sha256": content_id(self.seed, tasks, rules)}

    def get_ground_truth(self) -> str:
        return "\n".join(self.walkthrough())

    def evaluate(self, prediction: str | None) -> bool:
        return self._service.solved

    def _tasks(self, split: str | None) -> list[Task]:
        ids = [(job, f"scenarios/{job}/{variant}") for variant in range(1, self.variants + 1) for job in self.jobs]
        return [Task(id=name, query=self._of(job, name).query, type=job) for job, name in ids]

    def _of(self, job: str, task_id: str) -> SimulatedService:
        return SimulatedService(JOBS[job], derive_seed(self.seed, task_id))

    def _reset(self, task: Task) -> str:
        if self._service is not None:
            self._service.close()
        self._service = self.service(task)
        return f"{task.query} {self._service.open()}\nThe calls are:\n{self._service.job.manual()}"

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        try:
            text = self._service.call(*parse_call(action))
        except BadCall as error:
            return f"400 Bad Request: {error}", 0.0, False, {"valid": False, "won": False}
        solved = self._service.solved
        return text, float(solved), self._service.done, {"valid": True, "won": solved}
