"""From what a browser asked of the sites and what the agent answered to webarena-verified's verdict.

Asked once, after the episode: stock BrowserGym evaluates at each step and ends on success, which tells the agent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.process import WorkerProcess
from envs.webarena_tasks import WebTask, dataset_folder
from envs.webarena_worker import VerifiedEvaluators

ROOT = Path(__file__).resolve().parent.parent
START_S = 120.0  # for the imports
# All that the worker is told of the environment: no key, no proxy, no home.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
# What no answer passes, by id. Task 429 is reported as another (the package's issue 42): it takes a trace, and its
# answer alone cannot show that.
UNSATISFIABLE = {319: "expects no retrieved_data, and its evaluator misses them in any answer"}


@dataclass(frozen=True, kw_only=True)
class WebVerdict:
    """score from 0 to 1, solved at 1; failed: the checks that did not hold, or how the evaluators broke."""

    score: float
    failed: tuple[str, ...] = ()

    @property
    def solved(self) -> bool:
        return self.score == 1.0


@dataclass(kw_only=True)
class WebVerifier:
    """The evaluators live in a worker process, started at the first use.

    urls        {site: its address}, as the trace has them
    timeout_s   for one verdict; an answer at which the evaluators take longer, or break, twice is wrong
    """

    urls: dict[str, str]
    timeout_s: float = 20.0
    _worker: WorkerProcess = field(init=False, repr=False)
    _aborted: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        factory = partial(VerifiedEvaluators, self.timeout_s + 1, dict(self.urls))
        self._worker = WorkerProcess(factory=factory, timeout_s=START_S, path=[str(ROOT)], environment=ENVIRONMENT)

    def verdict(self, task: WebTask, answer: str | None, trace: Path | list[dict[str, Any]]) -> WebVerdict:
        """Of an episode of a verified task that is over.

        answer   what the agent said at the end, JSON {task_type, status, retrieved_data}; None: nothing
        trace    a HAR file of the whole episode (complete only once the browser's context is closed), or its entries
        Raises InfraError where the trace has no request though the task needs one, and where the evaluators break at
        the recorded answer too: then it is not the answer's fault.
        """
        if missing := [site for site in task.sites if site not in self.urls]:
            raise UserError(f"env.urls: task {task.id} is on {', '.join(task.sites)}; give {', '.join(missing)}")
        if isinstance(trace, Path):
            trace = har_entries(trace)
        if task.needs_trace and not trace:
            raise InfraError(f"the browser recorded no request in task {task.id}")
        for _ in range(2):
            try:
                found = self._asked(task.id, answer, trace)
                if found["status"] != "error":
                    return WebVerdict(score=found["score"], failed=tuple(found["checks"]))
                broke = found["error"] or "; ".join(found["checks"])
            except InfraError as error:
                broke = str(error)
            if (known := self._asked(task.id, gold_answer(task), trace))["status"] == "error":
                raise InfraError(f"the evaluators of task {task.id} break at its recorded answer: {known['error']}")
        return WebVerdict(score=0.0, failed=(f"the evaluators broke: {broke.splitlines()[0][:300]}",))

    def close(self) -> None:
        self._worker.close()

    def abort(self) -> None:
        self._aborted = True
        self._worker.abort()

    def _asked(self, task: int, answer: str | None, trace: list[dict[str, Any]]) -> dict[str, Any]:
        dataset_folder()  # says what to install
        if self._aborted:  # else a verdict that was cut short would be asked for again, from a new process
            raise InfraError("aborted")
        self._worker.start()
        return self._worker.call("verdict", task, answer, trace, timeout_s=self.timeout_s)


def har_entries(path: Path) -> list[dict[str, Any]]:
    """The requests of a HAR file. Raises InfraError where the browser did not write a whole one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["log"]["entries"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InfraError(f"the network trace cannot be read: {error}") from error


def gold_answer(task: WebTask) -> str:
    """The answer that a verified task expects, as an agent would write it: of several that are right the first."""
    expected = task.checks[0]["expected"]
    data = expected.get("retrieved_data")
    if isinstance(data, list):
        data = [each[0] if isinstance(each, list) else each for each in data]
    return json.dumps({"task_type": expected["task_type"], "status": expected["status"], "retrieved_data": data})
