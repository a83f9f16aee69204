"""WebArena (Zhou et al. 2023): tasks on a shop, its administration, a forum and GitLab, in a real Chromium.

    Goal: What is the rating of Ugreen lightning to 3.5mm cable?

    Page (accessibility tree):
    RootWebArea 'One Stop Market', focused
            [156] link 'My Account', clickable
            ...
    > send_msg_to_user('{"task_type": "RETRIEVE", "status": "SUCCESS", "retrieved_data": [65]}')

The sites run elsewhere, from images that their authors publish. An attempt ends with the agent's first message to the
user, or where it may act no more. Only then is it evaluated, by that message, by what the browser asked of the sites
(env.version=verified, hard) or by what the sites then show (original). Stock BrowserGym evaluates after each action and
ends at a success, which tells the agent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version as release
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from core.control_tokens import escape
from core.errors import UserError, check_choice, check_numbers, check_positive
from core.page import PAGE
from core.types import Task, digest
from envs.base import EnvStateError
from envs.web import webarena_original
from envs.web.base import BrowserEnv, sendable
from envs.web.browser import find_browser, may_sandbox, version_of
from envs.web.engine import WebSettings
from envs.web.webarena_engine import SitesEngine, SitesVisit
from envs.web.webarena_sites import control_of, reset_sites
from envs.web.webarena_tasks import FILES, WebTask, WebVerdict, at, web_tasks
from envs.web.webarena_verified import WebVerifier, gold_answer

SITES = "shopping shopping_admin reddit gitlab map wikipedia homepage".split()
ACTIONS = "noop scroll fill select_option click dblclick hover press focus clear drag_and_drop send_msg_to_user".split()
MORE = {  # of BrowserGym's further actions those that may be added, and what the agent is told of them
    "goto": "goto('http://...'): go to an address",
    "go_back": "go_back(): as the browser's button",
    "go_forward": "go_forward()",
    "new_tab": "new_tab()",
    "tab_focus": "tab_focus(1): change to a tab, by its number from 0",
    "tab_close": "tab_close(): close this tab",
    "report_infeasible": "report_infeasible('why'): end the task as impossible",
}
MOST_CALLS = 20
ENDED = "Your message was sent to the user. The task is over."
INFEASIBLE = "N/A"  # what the original takes report_infeasible for
MORE_VERIFIED = {  # its evaluators want to be told what kind of task it was, and which kind of impossible
    "report_infeasible": "report_infeasible('{...}'): end the task as impossible, by the JSON object that is described "
    "below and its status",
}
ADMIN = "/admin"  # where the shop's administration is, at its address
MISSING = (
    "env=webarena needs the addresses of its sites, here {missing}: start them with Docker, e.g. `webarena-verified "
    "env start --site shopping` (ports: shopping 7770, shopping_admin 7780, reddit 9999, gitlab 8023), and give "
    "{example}."
)
FORMS = {  # of the message at the end
    "original": """\
End the task with send_msg_to_user('...'): your message is the answer, as short as the question allows, or says that the
task is done. If the task cannot be done, the message is N/A.""",
    "verified": """\
End the task with send_msg_to_user('...'), whose text is one JSON object, in a line:
{"task_type": ..., "status": ..., "retrieved_data": ..., "error_details": ...}
- task_type: "RETRIEVE" where the task asks for data, "MUTATE" where something is to be made, changed or deleted,
  "NAVIGATE" where a page is to be shown.
- status: "SUCCESS", or why not: "NOT_FOUND_ERROR", "PERMISSION_DENIED_ERROR", "ACTION_NOT_ALLOWED_ERROR",
  "DATA_VALIDATION_ERROR", "UNKNOWN_ERROR".
- retrieved_data: for RETRIEVE a list of what was asked for, numbers as numbers; otherwise null.
- error_details: null, or with another status than SUCCESS the reason in a sentence.""",
}


@dataclass(kw_only=True)
class WebArenaEnv(BrowserEnv):
    """The browser runs in a worker process and is kept from task to task. Its keys: config/env/webarena.yaml."""

    site: str | None = None
    version: str = "verified"
    ids: list[int] | None = None
    urls: dict[str, str | None] | None = None
    reset_sites: bool = False
    controls: dict[str, str | None] | None = None
    more_actions: list[str] = field(default_factory=list)
    browser_sandbox: bool | None = None
    slow_mo_ms: float = 30
    timeout_s: float = 180.0
    workers: int | None = 1  # attempts share the sites and one account each
    # Of a page, for dry_run. ReasoningBank's table 5 has 50,847 tokens for a task without memory (Gemini-2.5-flash),
    # its table 1 9.7 steps: 5,240 a step, of which instructions, history and reply are about 1,200.
    page_tokens: ClassVar[int | None] = 4000
    late: ClassVar[bool] = True
    grader: Callable[[str, str], str] | None = field(
        default=None, init=False, repr=False
    )  # (task id, question) -> reply
    _verifier: WebVerifier | None = field(default=None, init=False, repr=False)
    _folder: tempfile.TemporaryDirectory | None = field(default=None, init=False, repr=False)  # of the traffic's file
    _tasks_by_id: dict[str, WebTask] = field(default_factory=dict, init=False, repr=False)
    _playing: WebTask | None = field(default=None, init=False, repr=False)
    _acted: bool = field(default=False, init=False, repr=False)
    _verdict: WebVerdict | None = field(default=None, init=False, repr=False)  # None until the attempt is over

    def __post_init__(self) -> None:
        check_choice(self, "env", "version", tuple(FILES))
        check_numbers(self, "env", "slow_mo_ms", "settle_s", least=0)
        check_positive(self, "env", "timeout_s")
        if unknown := [name for name in self.more_actions if name not in MORE]:
            raise UserError(f"env.more_actions: no {', '.join(unknown)}; there are {', '.join(MORE)}.")
        for key in ("urls", "controls"):
            given = {site: url for site, url in (getattr(self, key) or {}).items() if url is not None}
            if unknown := [name for name in given if name not in SITES]:
                raise UserError(f"env.{key}: no site {', '.join(unknown)}; there are {', '.join(SITES)}.")
            wrong = [url for url in given.values() if not _is_address(str(url))]
            if wrong:
                raise UserError(f"env.{key}: {wrong[0]} is no address such as http://localhost:7770.")
            setattr(self, key, {site: url.rstrip("/") for site, url in given.items()})
        if "shopping_admin" in self.urls and not urlsplit(admin := self.urls["shopping_admin"]).path:
            self.urls["shopping_admin"] = admin + ADMIN
        verified = self.version != "original"
        more = MORE | MORE_VERIFIED if verified else MORE
        form = FORMS["verified" if verified else "original"]
        lines = [self.instructions.rstrip(), *(f"- {more[name]}" for name in self.more_actions), form]
        self.instructions = "\n".join(lines)

    def walkthrough(self) -> list[str]:
        """The recorded answer, of the tasks of which nothing else counts. Raises UserError for the others."""
        self.need_page()
        task = self._playing
        if self.version == "original" or task.needs_trace:
            raise UserError(
                "agent=gold can play of env=webarena only the verified tasks whose evaluation needs no more than the "
                f"answer; task {task.id} is none."
            )
        return [f"send_msg_to_user({gold_answer(task)!r})"]

    def get_ground_truth(self) -> str:
        self.need_page()
        return webarena_original.described(self._playing) if self.version == "original" else gold_answer(self._playing)

    def evaluate(self, prediction: str | None) -> bool:
        """Whether the attempt solved the task. Ends it: nothing can be done on the sites afterwards."""
        if self._playing is None or not self._acted:
            return False
        if self._verdict is None:
            self._finish(None)
        return self._verdict.solved

    def describe(self) -> dict[str, Any]:
        """Raises UserError where the address of a site is missing, or the browser."""
        tasks = self._chosen()
        if missing := sorted({site for task in tasks for site in task.sites} - self.urls.keys()):
            example = " ".join(f"env.urls.{site}=http://HOST:PORT" for site in missing)
            raise UserError(MISSING.format(missing=", ".join(missing), example=example))
        settings = self.settings()
        return {
            "dataset": f"webarena {self.version}",
            "version": release("webarena-verified"),
            "sha256": digest([(task.id, task.intent, task.start_urls, task.checks) for task in tasks]),
            "browsergym": release("browsergym-core"),
            "browser": version_of(settings.browser),
            "sandbox": settings.sandbox,
        }

    def close(self) -> None:
        with ExitStack() as stack:  # whatever one of them raises
            if self._folder:
                stack.callback(self._folder.cleanup)
            if self._verifier:
                stack.callback(self._verifier.close)
            super().close()

    def abort(self) -> None:
        super().abort()
        if self._verifier:
            self._verifier.abort()

    def engine(self) -> Callable[[], Any]:
        return partial(SitesEngine, self.settings())

    def settings(self) -> WebSettings:
        """The engine's, by these keys. Raises UserError where there is no browser."""
        return WebSettings(
            browser=find_browser(self.browser),
            tasks=None,
            actions=(*ACTIONS, *self.more_actions),
            most_calls=MOST_CALLS,
            slow_mo_ms=self.slow_mo_ms,
            settle_s=self.settle_s,
            sandbox=may_sandbox() if self.browser_sandbox is None else self.browser_sandbox,
            hosts=tuple(sorted({urlsplit(url).hostname for url in self.urls.values()})),
        )

    def _chosen(self) -> list[WebTask]:
        if not self._tasks_by_id:
            found = {task.id: task for task in web_tasks(self.version, self.site)}
            if unknown := [number for number in self.ids or () if number not in found]:
                raise UserError(f"env.ids: {unknown[0]} is no task of env.version={self.version} env.site={self.site}.")
            kept = found.values() if self.ids is None else [task for task in found.values() if task.id in self.ids]
            self._tasks_by_id = {f"webarena/{task.id}": task for task in kept}
        return list(self._tasks_by_id.values())

    def _tasks(self, split: str | None) -> list[Task]:
        if split is not None:
            raise UserError(f"WebArena has no splits, so none is called {split!r}; env.site chooses.")
        return [Task(id=f"webarena/{each.id}", query=each.intent, type=each.group) for each in self._chosen()]

    def _reset(self, task: Task) -> str:
        self._chosen()
        if task.id not in self._tasks_by_id:
            raise UserError(f"{task.id!r} is no task of env.version={self.version} env.site={self.site}")
        self._view, self._verdict, self._acted = None, None, False
        self._playing = it = self._tasks_by_id[task.id]
        sites = {site: self.urls[site] for site in it.sites if site in self.urls}
        if len(sites) < len(set(it.sites)):
            self.describe()  # says which address is missing
        if self.reset_sites:
            controls = {site: self.controls.get(site) or control_of(site, url) for site, url in sites.items()}
            reset_sites(controls, aborted=lambda: self.closed)
            self.call("forget")
        visit = SitesVisit(
            goal=it.intent,
            starts=tuple(at(self.urls, url) for url in it.start_urls),
            sites=sites,
            logins=tuple(site for site in it.logins if site in sites),
            har=None if self.version == "original" else str(self._trace()),
        )
        self._view = self.call("begin", visit)
        return f"Goal: {self._view.goal}\n\n{self._page()}"

    def _step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if self._verdict is not None:
            raise EnvStateError("step after evaluate, which closes the browser: call reset first")
        self._acted = True
        n_said = len(self._view.said)
        self._view = view = self.call("act", sendable(action))
        error = f"Error: {view.error}\n\n" if view.error else ""
        if len(view.said) == n_said:
            return f"{error}{self._page()}", 0.0, False, {"valid": not view.error, "won": False}
        answer = INFEASIBLE if view.done and self.version == "original" else view.said[-1]
        asked = self._finish(answer)
        solved = self._verdict.solved
        info = {"valid": not view.error, "won": solved, "answer": view.said[-1], "score": self._verdict.score}
        info |= {"failed_checks": "; ".join(self._verdict.failed)}
        info |= {"graded_by_model": True} if asked else {}
        return f"{error}{ENDED}\n\n{self._page()}", float(solved), True, info

    def _finish(self, answer: str | None) -> int:
        """Close the browser's context, then evaluate. Returns how often a model was asked about the answer."""
        task, asked = self._playing, []

        def ask(question: str) -> str:
            asked.append(question)
            return self.grader(f"webarena/{task.id}", question)

        if self.version == "original":
            ended = self.call("end", webarena_original.looks_of(task, self.urls))
            self._verdict = webarena_original.verdict(task, answer, ended, self.urls, ask if self.grader else None)
        else:
            self.call("end")
            self._verifier = self._verifier or WebVerifier(urls=self.urls)
            self._verdict = self._verifier.verdict(task, answer, self._trace())
            self._trace().unlink(missing_ok=True)
        return len(asked)

    def _trace(self) -> Path:
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="webarena-")
        return Path(self._folder.name, "network.har")

    def _page(self) -> str:
        """The page as the agent is shown it: it can neither end the turn nor look like retrieved lessons."""
        tabs = "".join(f"\nTab {n}: {title[:100]!r}" for n, title in enumerate(self._view.tabs))
        header = f"Open tabs, the one you see is marked by *:{tabs}\n\n" if len(self._view.tabs) > 1 else ""
        return escape(f"{header}{PAGE}\n{self._view.page}")


def _is_address(url: str) -> bool:
    """Whether it names a host in a way that can be asked, and a port that there is."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
