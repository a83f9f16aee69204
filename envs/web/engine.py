"""The engine of environments in a browser, as it runs in a worker process: BrowserGym around one kept Chromium.

Three things of BrowserGym are replaced while it runs here. It starts a browser for each episode: one is kept, and an
episode has a context of its own (cookies, storage, tabs). It starts a second browser for its chat: a list of messages
does. It takes a picture at each step: nobody looks at it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from core.errors import UserError
from envs.web.page import calls, short_error, tree_text

MISSING = "An environment in a browser needs the extra web: pip install -c constraints.txt -e '.[web]'"
NO_SANDBOX = (
    "The browser's sandbox does not work here (it needs user namespaces, and a user other than root): "
    "env.browser_sandbox=false goes without."
)
WAIT_S = 0.5  # what BrowserGym itself waits after each action


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """The settings of a browser, constant while it runs.

    browser       path of its program
    tasks         the module that registers BrowserGym's tasks, such as browsergym.miniwob; None: openended alone
    actions       the names of BrowserGym's functions that an action may call
    most_calls    max. number of calls in one action
    slow_mo_ms    how long Playwright waits before each operation
    settle_s      how long a page may settle after an action
    sandbox       Chromium's own, which root cannot use; without it a page that breaks out of the browser is this user
    hosts         the only names and addresses that the browser reaches; None: all
    """

    browser: str
    tasks: str | None
    actions: tuple[str, ...]
    most_calls: int = 1
    slow_mo_ms: float = 0
    settle_s: float = WAIT_S
    sandbox: bool = False
    hosts: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Visit:
    """An episode to begin.

    task      by BrowserGym's name: "miniwob.click-test", "openended"
    options   of the task: {start_url, goal}, ...
    viewport  {width, height} in pixels; None: the task's
    context   Playwright's options of a new context: record_har_path, storage_state, offline, ...
    """

    task: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    viewport: dict[str, int] | None = None
    context: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class View:
    """The state after an action. error: of the action, "" for none; said: the agent's message to the user."""

    goal: str
    page: str
    error: str
    done: bool
    tabs: tuple[str, ...]  # titles, the active one marked by *
    said: tuple[str, ...]
    info: dict[str, Any]  # the task's own


class WebEngine:
    """One episode at a time; `open` ends the one before. Not thread-safe. Raises UserError without the packages.

    A browser that died is started anew by the next `open`. What breaks raises Playwright's errors.
    """

    def __init__(self, settings: WebSettings) -> None:
        try:
            import browsergym.core
            import browsergym.core.env as module
            from browsergym.core.action import functions
            from browsergym.core.action.highlevel import HighLevelActionSet
            from playwright.sync_api import sync_playwright

            if settings.tasks:
                import_module(settings.tasks)
        except ImportError as error:
            raise UserError(f"{MISSING} ({error})") from None
        self.settings = settings
        self._playwright = sync_playwright().start()
        self._kept = _Kept(self._playwright.chromium, settings)
        self._kept.ready()
        browsergym.core._set_global_playwright(
            SimpleNamespace(chromium=self._kept, selectors=self._playwright.selectors)
        )
        module.Chat = _Chat
        module.extract_screenshot = lambda page: None
        wait = settings.settle_s / WAIT_S
        module.time = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds * wait))
        chosen = [getattr(functions, name) for name in settings.actions if name != "noop"]  # which is always one
        self._functions = HighLevelActionSet(subsets=["custom"], custom_actions=chosen).python_includes
        self._env: Any = None

    def open(self, visit: Visit) -> View:
        """Begin an episode on a page of its own."""
        import gymnasium

        self.finish()
        self._kept.ready()
        self._env = gymnasium.spec(f"browsergym/{visit.task}").entry_point(
            task_kwargs=visit.options,
            viewport=visit.viewport,
            locale="en-US",
            timezone_id="UTC",
            pw_context_kwargs=visit.context,
            action_mapping=self._code,
        )
        seen, info = self._env.reset(seed=visit.seed)
        return self._view(seen, done=False, info=info)

    def act(self, action: str) -> View:
        """Take an action. One that cannot be taken is a View with its error."""
        seen, _, done, _, info = self._env.step(action)
        return self._view(seen, done=done, info=info)

    def finish(self) -> None:
        """End the episode: its context is closed, and what it recorded (a HAR file) is whole then. Idempotent."""
        env, self._env = self._env, None
        if env is not None and self._kept.alive:
            env.close()

    def close(self) -> None:
        self.finish()
        self._playwright.stop()  # which ends the browser

    def _code(self, action: str) -> str:
        return f"{self._functions}\n{calls(action, self.settings.actions, self.settings.most_calls)}"

    def _view(self, seen: dict[str, Any], *, done: bool, info: dict[str, Any]) -> View:
        active = int(seen["active_page_index"][0])
        said = (message for message in seen["chat_messages"][1:] if message["role"] in ("assistant", "infeasible"))
        return View(
            goal=" ".join(seen["goal"].split()),
            page=tree_text(seen["axtree_object"], seen["extra_element_properties"]),
            error=short_error(seen["last_action_error"]),
            done=bool(done),
            tabs=tuple(f"{'*' * (n == active)}{title}" for n, title in enumerate(seen["open_pages_titles"])),
            said=tuple(message["message"] for message in said),
            info=dict(info["task_info"]),
        )


class _Kept:
    """Replaces Playwright's chromium and its browser in BrowserGym, so that the same browser is reused each time."""

    def __init__(self, chromium: Any, settings: WebSettings) -> None:
        self._chromium, self._settings, self._browser = chromium, settings, None

    @property
    def alive(self) -> bool:
        return self._browser is not None and self._browser.is_connected()

    def ready(self) -> None:
        if self.alive:
            return
        it, words = self._settings, []
        if it.hosts is not None:
            words = [
                f"--host-resolver-rules={', '.join(['MAP * ~NOTFOUND', *(f'EXCLUDE {host}' for host in it.hosts)])}"
            ]
        options = {
            "executable_path": it.browser,
            "slow_mo": it.slow_mo_ms,
            "chromium_sandbox": it.sandbox,
            "args": words,
        }
        try:
            self._browser = self._chromium.launch(**options)
        except Exception as error:
            if it.sandbox and "sandbox" in str(error).lower():
                raise UserError(NO_SANDBOX) from error
            raise

    def launch(self, **_options: Any) -> _Kept:
        return self

    def new_context(self, **options: Any) -> Any:
        return self._browser.new_context(**options)

    def close(self) -> None:
        pass  # an episode is over, not the browser


class _Chat:
    """BrowserGym's chat without its window."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.messages: list[dict[str, Any]] = []

    def add_message(self, role: str, msg: str) -> None:
        self.messages.append({"role": role, "message": msg, "timestamp": 0.0})

    def close(self) -> None:
        pass
