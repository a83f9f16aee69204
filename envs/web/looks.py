"""What WebArena's original evaluation looks at on the sites once an attempt is over: `program_html` of a task.

After the original's evaluation_harness/helper_functions.py. Everything that is run here stands in the task's file.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from core.errors import InfraError
from envs.web.logins import LOGINS

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
