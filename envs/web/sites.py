"""Websites that a server somewhere serves, in the worker: start pages in tabs, a login, the traffic recorded.

A site that does not answer is an engine that broke, and raises InfraError; a page that cannot be shown though its site
answers is something that the agent sees.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit

from core.errors import InfraError
from envs.web.engine import View, Visit, WebEngine, WebSettings

# What WebArena's original evaluation looks at on the sites once an attempt is over: `program_html` of a task.
#
# After the original's evaluation_harness/helper_functions.py. Everything that is run here stands in the task's file.

WAIT_S = 3.0  # for a page to be whole; the original's
_FUNCTION = re.compile(r"func:(\w+)\((?:__page__)?(?:, *)?(?:'([^']*)')?\)")
_ROLE = """name => {
  const accounts = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
  const place = accounts.findIndex(each => each.outerText === '@' + name);
  return document.querySelectorAll("td.col-max-role span")[place].outerText;
}"""
_NEWEST = {
    "searchCriteria[sortOrders][0][field]": "created_at",
    "searchCriteria[sortOrders][0][direction]": "DESC",
    "searchCriteria[pageSize]": "1",
}


@dataclass(frozen=True, kw_only=True)
class Look:
    """A page and what of it: its address, "last" (the page that is there), or "func:..."; a JavaScript expression,
    "func:...", or "" for the whole page; before: expressions that are run first.
    """

    url: str
    locator: str
    before: tuple[str, ...] = ()


def found_by(page: Any, look: Look, sites: dict[str, str]) -> str:
    """The text; "" where the page lacks what is looked for. Goes to the page. sites: {site: address}."""
    from playwright.sync_api import Error

    url = _function(look.url, page, sites) if look.url.startswith("func:") else look.url
    if look.url != url and not url.startswith(("http://", "https://")):
        return ""  # what the agent left open is no page of a site: Chromium's own, say, of one that it did not reach
    if url != "last":
        page.goto(url, wait_until="domcontentloaded", timeout=30_000)
        time.sleep(WAIT_S)
    if not look.locator.strip():
        return page.content()
    try:
        if look.locator.startswith("func:"):
            return _function(look.locator, page, sites)
        for script in look.before:
            page.evaluate(f"() => {script}")
    except Error:
        pass
    try:
        return str(page.evaluate(f"() => {look.locator}") or "")
    except Error:
        return ""


def post_of(url: str) -> str:
    """The address of the post that a page of Reddit belongs to: /f/FORUM/NUMBER/; of others their own."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/" if len(path) > 3 and path[1] == "f" else url


def _function(text: str, page: Any, sites: dict[str, str]) -> str:
    """What one of the original's helper functions returns."""
    read = _FUNCTION.fullmatch(text)
    name, given = read.groups() if read else (text, None)
    if name == "reddit_get_post_url":
        return post_of(page.url)
    if name == "gitlab_get_project_memeber_role":
        return str(page.evaluate(_ROLE, given))
    if name == "shopping_get_latest_order_url":
        newest = _shop(sites, f"/rest/V1/orders?{urlencode(_NEWEST)}")["items"][0]
        return f"{sites['shopping']}/sales/order/view/order_id/{int(newest['increment_id'])}/"
    if name in ("shopping_get_sku_latest_review_author", "shopping_get_sku_latest_review_rating"):
        reviews = _shop(sites, f"/rest/V1/products/{quote(given)}/reviews")
        if not reviews:
            return ""
        return reviews[-1]["nickname"] if name.endswith("author") else str(reviews[-1]["ratings"][0]["percent"])
    raise InfraError(f"a task's evaluation calls {text}, which is not known here")


def _shop(sites: dict[str, str], path: str) -> Any:
    """What the shop's interface for programs answers to its administrator."""
    shop = sites["shopping"]
    user, password = LOGINS["shopping_admin"].account
    token = _asked(f"{shop}/rest/default/V1/integration/admin/token", {"username": user, "password": password}, {})
    return _asked(f"{shop}{path}", None, {"Authorization": f"Bearer {token}"})


def _asked(url: str, body: dict[str, str] | None, headers: dict[str, str]) -> Any:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with direct.open(request, timeout=20) as answer:
            return json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise InfraError(f"{url.partition('?')[0]} cannot be read: {error}") from error


# How one is logged in to WebArena's sites: the form of each, and the accounts that its tasks are written for.
#
# After the original's browser_env/auto_login.py and BrowserGym's instance.py. The accounts are published with the
# sites.


@dataclass(frozen=True, kw_only=True)
class Login:
    """path: of the form; user, button: their labels; account: name and password; inside: a page for members alone,

    which is known by a word that others do not see there, or, without one, because others are sent elsewhere.
    """

    path: str
    user: str
    button: str
    account: tuple[str, str]
    inside: str
    word: str = ""
    exact: bool = False  # whether the labels are the whole text


LOGINS = {
    "shopping": Login(
        path="/customer/account/login/",
        user="Email",
        button="Sign In",
        account=("emma.lopez@gmail.com", "Password.123"),
        inside="/wishlist/",
        exact=True,
    ),
    "shopping_admin": Login(
        path="",
        user="Username",
        button="Sign in",
        account=("admin", "admin1234"),
        inside="/dashboard",
        word="Dashboard",
    ),
    "gitlab": Login(
        path="/users/sign_in",
        user="Username or email",
        button="Sign in",
        account=("byteblaze", "hello1234"),
        inside="/-/profile",
    ),
    "reddit": Login(
        path="/login",
        user="Username",
        button="Log in",
        account=("MarvelsGrantMan136", "test1234"),
        inside="/user/MarvelsGrantMan136/account",
        word="Delete",
    ),
}


def is_logged_in(page: Any, site: str, address: str) -> bool:
    """Whether a page (Playwright's) of this site is a member's; a stored state goes stale when somebody signs out."""
    form, wanted = LOGINS[site], f"{address.rstrip('/')}{LOGINS[site].inside}"
    page.goto(wanted, wait_until="domcontentloaded")
    if form.word:
        return form.word in page.content()
    return page.url.split("?")[0].rstrip("/") == wanted.rstrip("/")


def log_in(page: Any, site: str, address: str) -> None:
    """Fill in and send the site's form."""
    form = LOGINS[site]
    page.goto(f"{address.rstrip('/')}{form.path}", wait_until="domcontentloaded")
    for label, text in zip((form.user, "Password"), form.account, strict=True):
        page.get_by_label(label, exact=form.exact).fill(text)
    with page.expect_navigation(wait_until="domcontentloaded"):
        page.get_by_role("button", name=form.button).click()


TASK = "sites"
NO_PAGE = "chrome-error:"  # how the address begins of what Chromium shows where there is no page
UNREACHABLE = "There is no such page, or it lies outside of the sites of the task."
VIEWPORT = {"width": 1500, "height": 1280}
GOTO_MS = 60_000  # for a start page, or one of the login
ACT_MS = 10_000  # BrowserGym's for WebArena
ANSWER_S = 60.0  # for a site to answer: one that was just started takes its time
GONE = 502  # from this status on a server says that what stands behind it is gone


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


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What was there at an episode's end. url: the active page's; found: a text for each `Look`."""

    url: str
    found: tuple[str, ...] = field(default=())


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


def must_answer(site: str, address: str) -> None:
    """Raises InfraError where a site does not, or says that what stands behind it is gone."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(address, timeout=ANSWER_S).close()
    except HTTPError as error:
        error.close()
        if error.code >= GONE:
            raise InfraError(f"the site {site} at {address} answers with status {error.code}") from error
    except OSError as error:
        raise InfraError(f"the site {site} at {address} does not answer: {getattr(error, 'reason', error)}") from error


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
