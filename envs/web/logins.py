"""How one is logged in to WebArena's sites: the form of each, and the accounts that its tasks are written for.

After the original's browser_env/auto_login.py and BrowserGym's instance.py. The accounts are published with the sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
