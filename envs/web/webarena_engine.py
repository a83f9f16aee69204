"""Websites in the worker's browser: start pages in tabs, logins, the traffic recorded.

A site that does not answer is an engine that broke, and raises InfraError; a page that cannot be shown though its site
answers is something that the agent sees.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import InfraError
from envs.web.engine import View, Visit, WebEngine, WebSettings
from envs.web.webarena_original import Ended, Look, found_by
from envs.web.webarena_sites import GONE, is_logged_in, log_in, must_answer

TASK = "sites"
NO_PAGE = "chrome-error:"  # how the address begins of what Chromium shows where there is no page
UNREACHABLE = "There is no such page, or it lies outside of the sites of the task."
VIEWPORT = {"width": 1500, "height": 1280}
GOTO_MS = 60_000  # for a start page, or one of the login
ACT_MS = 10_000  # BrowserGym's for WebArena


@dataclass(frozen=True, kw_only=True)
class SitesVisit:
    """An episode to begin.

    starts   the address of each tab's page; the last tab is the active one, as in BrowserGym
    sites    {site: address} of those that must answer
    logins   of these the ones where one is logged in
    har      the file for the traffic, whole after `end`
    """

    goal: str
    starts: tuple[str, ...]
    sites: dict[str, str]
    logins: tuple[str, ...] = ()
    har: str | None = None


class SitesEngine(WebEngine):
    """Episodes on websites. A login is made once for each site, kept, and made anew where it no longer holds."""

    def __init__(self, settings: WebSettings) -> None:
        super().__init__(settings)
        from browsergym.core.registration import register_task

        register_task(TASK, _task_class())
        self._states: dict[str, dict[str, Any]] = {}  # by site, as Playwright stores them
        self._visit: SitesVisit | None = None
        self._suspect = False  # a page came back with a status that a dead site has

    def begin(self, visit: SitesVisit) -> View:
        """Start an episode. Raises InfraError where a site does not answer, or no login can be made."""
        self.finish()
        self._kept.ready()
        self._visit = visit
        self._all_answer()
        states = [self._logged_in(site, visit.sites[site]) for site in visit.logins]
        context: dict[str, Any] = {} if visit.har is None else {"record_har_path": visit.har}
        if states:
            context["storage_state"] = {
                "cookies": [cookie for state in states for cookie in state["cookies"]],
                "origins": [origin for state in states for origin in state["origins"]],
            }
        options = {"goal": visit.goal, "starts": visit.starts}
        view = self.open(Visit(task=TASK, seed=0, options=options, context=context))
        self._suspect = False
        self._env.context.on("response", self._note)
        return view

    def act(self, action: str) -> View:
        view = super().act(action)
        nothing = self._env.page.url.startswith(NO_PAGE)
        if self._suspect or nothing:
            self._all_answer()
            self._suspect = False
        return replace(view, error=view.error or UNREACHABLE) if nothing else view

    def end(self, looks: Sequence[Look] = ()) -> Ended:
        """End the episode, after a look at pages, in this order; the traffic's file is whole then."""
        self._all_answer()
        page = self._env.page
        url, found = page.url, []
        for look in looks:
            found.append(found_by(page, look, self._visit.sites))
        self.finish()
        return Ended(url=url, found=tuple(found))

    def forget(self) -> None:
        """Log in anew before the next episode: the sites were reset."""
        self._states.clear()

    def _logged_in(self, site: str, address: str) -> dict[str, Any]:
        """The state of a browser that is logged in: the stored one where it still holds."""
        for state in (self._states.get(site), None):
            context = self._kept.new_context(storage_state=state, viewport=VIEWPORT, locale="en-US", timezone_id="UTC")
            context.set_default_timeout(GOTO_MS)
            try:
                page = context.new_page()
                if state is None:
                    log_in(page, site, address)
                if is_logged_in(page, site, address):
                    self._states[site] = context.storage_state()
                    return self._states[site]
            finally:
                context.close()
        raise InfraError(f"the site {site} at {address} did not take the login of WebArena's account")

    def _all_answer(self) -> None:
        for site, address in self._visit.sites.items():
            must_answer(site, address)

    def _note(self, response: Any) -> None:
        self._suspect |= response.status >= GONE and response.request.is_navigation_request()


def _task_class() -> type:
    """A task of BrowserGym that opens pages and evaluates nothing."""
    from browsergym.core.task import AbstractBrowserTask

    class SitesTask(AbstractBrowserTask):
        def __init__(self, seed: int, goal: str, starts: Sequence[str]) -> None:
            super().__init__(seed)
            self.goal, self.starts, self.timeout, self.viewport = goal, starts, ACT_MS, VIEWPORT

        @classmethod
        def get_task_id(cls) -> str:
            return TASK

        def setup(self, page: Any) -> tuple[str, dict[str, Any]]:
            for number, url in enumerate(self.starts):
                page = page.context.new_page() if number else page
                page.goto(url, wait_until="domcontentloaded", timeout=GOTO_MS)
                time.sleep(0.2)  # for the page's word that it is the active one
            return self.goal, {}

        def validate(self, page: Any, chat_messages: list[Any]) -> tuple[float, bool, str, dict[str, Any]]:
            return 0.0, False, "", {}

        def teardown(self) -> None:
            pass

    return SitesTask
