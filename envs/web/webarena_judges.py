"""WebArena's original evaluation (Zhou et al. 2023, evaluation_harness/evaluators.py), at the end of an attempt.

    string_match    the answer is a text, or holds texts; or a model says that it means the same (fuzzy_match)
    url_match       the page that was left open is at an address
    program_html    pages hold texts: see envs/web/sites.py

Every part must hold. The original calls a model of 2023 for fuzzy_match; here it is whoever `ask` is, with the
original's words.
"""

from __future__ import annotations

import html
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from core.errors import InfraError, UserError
from core.process import WorkerProcess
from envs.web.sites import Ended, Look
from envs.web.webarena_tasks import WebTask, at, dataset_folder
from single_turn_bench.worker import alarm, limit_memory, shut_off

# From what a browser asked of the sites and what the agent answered to webarena-verified's verdict.
#
# Asked once, after the episode: stock BrowserGym evaluates at each step and ends on success, which tells the agent.

ROOT = Path(__file__).resolve().parents[2]
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


OR = " |OR| "
Ask = Callable[[str], str]  # a question -> a model's answer
_TOKEN = re.compile(r"\w+(?:[-.,:'/]\w+)*|[^\w\s]")  # about as NLTK's word_tokenize, which the original asks
SAME = """Help a teacher to grade the answer of a student given a question. Keep in mind that the student may use \
different phrasing or wording to answer the question. The goal is to evaluate whether the answer is semantically \
equivalent to the reference answer.
question: {question}
reference answer: {reference}
all the string 'N/A' that you see is a special sequence that means 'not achievable'
student answer: {answer}
Conclude the judgement by correct/incorrect/partially correct."""
REASON = """A task described in Task_1 cannot be completed for reason listed in Reason_1. A person tried to complete \
the task and failed, he reported his attempt in Report_1, check if Report_1 is refering to Reason_1, even implicitly. \
If match, return same, else, return different
Task_1 = {question}
Reason_1 = {reference}
Report_1 = {answer}
return [same] or [different]"""


def looks_of(task: WebTask, urls: dict[str, str]) -> list[Look]:
    """The pages that must be looked at before the browser is closed."""
    if "program_html" not in task.checks["eval_types"]:
        return []
    return [
        Look(url=at(urls, each["url"]), locator=each["locator"], before=tuple(each.get("prep_actions", ())))
        for each in task.checks["program_html"]
    ]


def verdict(task: WebTask, answer: str | None, ended: Ended, urls: dict[str, str], ask: Ask | None) -> WebVerdict:
    """Of an attempt that is over. Raises InfraError where a model must be asked and there is none."""
    failed = []
    for kind in task.checks["eval_types"]:
        if kind == "string_match":
            failed += [f"string_match: {each}" for each in _answer_lacks(task, clean(answer or ""), ask)]
        elif kind == "url_match" and not url_matches(at(urls, task.checks["reference_url"]), ended.url):
            failed.append("url_match")
        elif kind == "program_html":
            checks = zip(task.checks["program_html"], ended.found, strict=True)
            failed += [f"program_html {n}" for n, (each, text) in enumerate(checks) if not holds(each, text)]
    return WebVerdict(score=float(not failed), failed=tuple(failed))


def asks_model(task: WebTask) -> bool:
    """Whether a model may be asked about the answer."""
    return "fuzzy_match" in (task.checks["reference_answers"] or {})


def described(task: WebTask) -> str:
    """What a task expects, in a line, for the record."""
    checks = task.checks
    told = [checks.get("reference_answer_raw_annotation") or "", checks["reference_url"]]
    for each in checks["program_html"] or ():
        told += [each["url"], *_wanted(each)]
    return "; ".join(filter(None, told)) or str(checks["reference_answers"])


def clean(text: str) -> str:
    text = text.strip()
    for sign in "'\"":
        if text.startswith(sign) and text.endswith(sign):
            text = text[1:-1]
            break
    return text.lower()


def includes(wanted: str, text: str, *, alone: bool = False) -> bool:
    """alone: nothing else is wanted, so that a single letter or digit must be a word of its own."""
    wanted, text = clean(wanted), clean(text)
    return wanted in _TOKEN.findall(text) if alone and len(wanted) == 1 else wanted in text


def holds(check: dict[str, Any], text: str) -> bool:
    """Whether the text that was found on a page is as one of `program_html` wants it."""
    text = html.unescape(text)
    if "exact_match" in check["required_contents"]:
        return clean(text) == clean(check["required_contents"]["exact_match"])
    return all(any(includes(one, text) for one in wanted.split(OR)) for wanted in _wanted(check))


def url_matches(reference: str, url: str) -> bool:
    """GOLD in PRED: a reference's host and path stand in those of the page, and each of its query's keys has a value
    of the references'."""
    place, query = _parts(url)
    bases, values = [], defaultdict(set)
    for one in reference.split(OR):
        base, wanted = _parts(one)
        bases.append(base)
        for key, found in wanted.items():
            values[key].update(found)
    return any(base in place for base in bases) and all(values[key] & set(query.get(key, ())) for key in values)


def _answer_lacks(task: WebTask, answer: str, ask: Ask | None) -> list[str]:
    lacks = []
    for how, wanted in task.checks["reference_answers"].items():
        if how == "exact_match":
            lacks += [how] * (answer != clean(wanted))
        elif how == "must_include":
            lacks += [f"{how} {n}" for n, one in enumerate(wanted) if not includes(one, answer, alone=len(wanted) == 1)]
        elif wanted == "N/A":
            note = {"question": task.intent, "reference": task.checks["string_note"], "answer": answer}
            lacks += [how] * (answer != "n/a" and not _says(ask, REASON, note, "same", ("different",)))
        else:
            for reference in wanted:
                note = {"question": task.intent, "reference": reference, "answer": answer}
                right = answer and _says(ask, SAME, note, "correct", ("partially correct", "incorrect"))
                lacks += [how] * (not right)
    return lacks


def _says(ask: Ask | None, question: str, values: dict[str, str], yes: str, no: tuple[str, ...]) -> bool:
    """A reply that holds neither is a no, as in BrowserGym."""
    if ask is None:
        raise InfraError("this task's answer is judged by a model (fuzzy_match), and there is none to ask")
    reply = ask(question.format_map(values)).lower()
    return yes in reply and not any(word in reply for word in no)


def _parts(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(url.rstrip("/"))
    return (parts.netloc + parts.path).rstrip("/"), parse_qs(parts.query)


def _wanted(check: dict[str, Any]) -> list[str]:
    wanted = check["required_contents"]
    return [wanted["exact_match"]] if "exact_match" in wanted else wanted["must_include"]


# What judges WebArena's tasks in a process of its own: webarena-verified's evaluators, without a model or a live site.
#
# An answer is the model's text, and they parse it as numbers, dates, addresses and distances; a distance is evaluated
# by pint, for which "9**9**9**9 km" is a sum to be worked out. Hence the process, its time limit and its memory
# limit.

# It pins older releases of pydantic and beautifulsoup4 than the rest wants; every gold answer passes with ours too.
NEEDS = (
    "WebArena's evaluators need: pip install -c constraints.txt -e '.[webarena]', and then "
    "pip install --no-deps webarena-verified==1.2.3"
)


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
