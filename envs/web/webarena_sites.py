"""The sites of WebArena, which a server somewhere serves: whether they answer, logins, and setting them up anew.

The forms and accounts are those of the original's browser_env/auto_login.py and BrowserGym's instance.py; the tasks are
written for these accounts, which are published with the sites. A site is reset by its control port, which the images of
webarena-verified have beside the site's own.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from core.errors import InfraError

ANSWER_S = 60.0  # for a site to answer: one that was just started takes its time
GONE = 502  # from this status on a server says that what stands behind it is gone
READY_S = 600.0  # for the sites of a task to be set up, all together: GitLab takes minutes
LOOK_S = 0.5  # between two looks at whether the attempt was aborted


def open_directly(request: urllib.request.Request | str, timeout_s: float) -> HTTPResponse:
    """The response of a site, requested without a proxy. Raises OSError."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout_s)


def must_answer(site: str, address: str) -> None:
    """Raises InfraError where a site does not, or says that what stands behind it is gone."""
    try:
        open_directly(address, ANSWER_S).close()
    except HTTPError as error:
        error.close()
        if error.code >= GONE:
            raise InfraError(f"the site {site} at {address} answers with status {error.code}") from error
    except OSError as error:
        raise InfraError(f"the site {site} at {address} does not answer: {getattr(error, 'reason', error)}") from error


@dataclass(frozen=True, kw_only=True)
class Login:
    """The login form of a site.

    path     path of the form's page
    user     label of the field for the user name
    button   label of the button that sends the form
    account  (name, password)
    inside   a page for members alone, known by a `word` that others do not see there; without one, others are sent away
    """

    path: str
    user: str
    button: str
    account: tuple[str, str]
    inside: str
    word: str = ""
    exact: bool = False  # whether the labels are the whole text


# fmt: off
LOGINS = {
    "shopping": Login(path="/customer/account/login/", user="Email", button="Sign In", inside="/wishlist/", exact=True,
                      account=("emma.lopez@gmail.com", "Password.123")),
    "shopping_admin": Login(path="", user="Username", button="Sign in", inside="/dashboard", word="Dashboard",
                            account=("admin", "admin1234")),
    "gitlab": Login(path="/users/sign_in", user="Username or email", button="Sign in", inside="/-/profile",
                    account=("byteblaze", "hello1234")),
    "reddit": Login(path="/login", user="Username", button="Log in", inside="/user/MarvelsGrantMan136/account",
                    word="Delete", account=("MarvelsGrantMan136", "test1234")),
}
# fmt: on


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


def control_of(site: str, url: str) -> str:
    """The control port of a site at an address, as the images have it: its own + 1, of reddit - 1."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port + (-1 if site == 'reddit' else 1)}"


def reset_sites(
    controls: Mapping[str, str], within_s: float = READY_S, aborted: Callable[[], bool] = lambda: False
) -> None:
    """All of them at once. Raises InfraError as soon as one fails, or is not ready within_s seconds however it answers.

    controls   {site: the address of its control port}
    aborted    asked while waiting: whether the attempt is over, so that nothing is waited for any more
    """
    end, begun = time.monotonic() + within_s, {}
    for site, control in controls.items():
        begun[site] = outcome = Future()
        # Not of a pool: nobody waits for a server that hangs, and a socket's own limit is for each of its bytes.
        threading.Thread(target=_ask, args=(site, control, within_s, outcome), name="worker-reset", daemon=True).start()
    while True:
        done, waiting = wait(begun.values(), max(0.0, min(LOOK_S, end - time.monotonic())), FIRST_EXCEPTION)
        for outcome in done:
            outcome.result()
        if not waiting:
            return
        if aborted():
            raise InfraError("aborted")
        if time.monotonic() >= end:
            site = next(site for site, outcome in begun.items() if outcome in waiting)
            raise InfraError(f"{site} cannot be reset by {controls[site]}/init: it took longer than {within_s:g} s")


def _ask(site: str, control: str, timeout_s: float, outcome: Future) -> None:
    try:
        outcome.set_result(_reset(site, control, timeout_s))
    except BaseException as error:  # noqa: BLE001 - raised where the outcome is waited for
        outcome.set_exception(error)


def _reset(site: str, control: str, timeout_s: float) -> None:
    """POST /init, and wait for its answer {success, message}. Raises InfraError where that is no success."""
    request = urllib.request.Request(f"{control}/init", data=b"", method="POST")
    try:
        with open_directly(request, timeout_s) as answer:
            reply = json.loads(answer.read())
    except (OSError, ValueError, HTTPException) as error:
        raise InfraError(f"{site} cannot be reset by {control}/init: {error}") from error
    if not (isinstance(reply, dict) and reply.get("success")):
        raise InfraError(f"{site} cannot be reset by {control}/init: {str(reply)[:200]}")
