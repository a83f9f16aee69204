"""env.version=verified|hard: webarena-verified's evaluation, at the end of an attempt.

It goes by what the browser asked of the sites and what the agent answered, and asks no model and no live site. Its
evaluators parse an answer, a model's text, as numbers, dates, addresses and distances; a distance is evaluated by pint,
for which "9**9**9**9 km" is a sum to be worked out. Hence a process of their own, with limits of time and memory.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import InfraError, UserError
from core.process import BARE, OURS, WorkerProcess
from envs.web.webarena_tasks import WebTask, WebVerdict, dataset_folder
from single_turn_bench.worker import alarm, limit_memory, shut_off

START_S = 120.0  # for the imports
# What no answer passes, by id. Task 429 is reported as another (the package's issue 42): it takes a trace, and its
# answer alone cannot show that.
UNSATISFIABLE = {319: "expects no retrieved_data, and its evaluator misses them in any answer"}
# The package pins older releases of pydantic and beautifulsoup4 than the rest wants; its evaluators take every gold
# answer with ours too.
NEEDS = (
    "WebArena's evaluators need: pip install -c constraints.txt -e '.[webarena]', and then "
    "pip install --no-deps webarena-verified==1.2.3"
)


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
        self._worker = WorkerProcess(factory=factory, timeout_s=START_S, path=OURS, environment=BARE)

    def verdict(self, task: WebTask, answer: str | None, trace: Path | list[dict[str, Any]]) -> WebVerdict:
        """Evaluate a finished episode of a verified task.

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


class VerifiedEvaluators:
    """Made in the child process alone: it changes the process that it is made in.

    alarm_s   seconds that one verdict may take
    urls      {site: its address}; none is visited
    """

    def __init__(self, alarm_s: float, urls: dict[str, str]) -> None:
        shut_off()
        logging.disable(logging.CRITICAL)
        try:
            from webarena_verified.api import WebArenaVerified  # seconds of imports
            from webarena_verified.types.config import EnvironmentConfig, WebArenaVerifiedConfig
            from webarena_verified.types.task import WebArenaSite
            from webarena_verified.types.tracing import NetworkTrace
        except ImportError as error:
            raise UserError(f"{NEEDS}. ({error})") from error
        sites = {site.value: site for site in WebArenaSite}
        if unknown := sorted(urls.keys() - sites.keys()):
            raise UserError(f"env.urls: no site {', '.join(unknown)}; there are {', '.join(sites)}")
        known = {sites[name]: EnvironmentConfig(urls=[address]) for name, address in urls.items()}
        self._evaluators = WebArenaVerified(config=WebArenaVerifiedConfig(environments=known))
        self._traces, self._alarm_s = NetworkTrace, alarm_s
        limit_memory()

    def verdict(self, task: int, answer: str | None, trace: Path | list[dict[str, Any]]) -> dict[str, Any]:
        """{status, score, checks: ["EVALUATOR: what failed"], error}. trace: a HAR file, or its entries."""
        with alarm(self._alarm_s):
            events = self._traces.from_content(trace) if trace else self._none()
            found = self._evaluators.evaluate_task(task_id=task, agent_response=answer, network_trace=events)
        return {
            "status": str(found.status),
            "score": float(found.score),
            "checks": [line for each in found.evaluators_results for line in _failed(each)],
            "error": found.error_msg,
        }

    def _none(self) -> Any:
        """A trace without a request, for a task of which only the answer counts."""
        return self._traces.model_construct(is_playwright=False, src_file=Path("none"), events=())


def _failed(result: Any) -> list[str]:
    if result.error_msg:
        return [f"{result.evaluator_name}: {result.error_msg}"]
    wrong = [each for each in result.assertions or () if each.status != "success"]
    return [f"{result.evaluator_name}: {each.assertion_name}" for each in wrong]
