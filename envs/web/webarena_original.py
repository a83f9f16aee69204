"""env.version=original: WebArena's evaluation as published (Zhou et al. 2023), at the end of an attempt.

    string_match    the answer is a text, or holds texts; or a model says that it means the same (fuzzy_match)
    url_match       the page that was left open is at an address
    program_html    pages of the sites hold texts

All of a task's checks must hold. The original calls a model of 2023 for fuzzy_match; here it is whoever `ask` is, with
the original's words. After its evaluation_harness/evaluators.py and helper_functions.py; `found_by` looks at the pages
of program_html in the worker's browser. The JavaScript that is run there stands in the task's file.
"""

from __future__ import annotations

import html
import json
import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from core.errors import InfraError
from envs.web.judgement import concludes
from envs.web.webarena_sites import LOGINS, open_directly
from envs.web.webarena_tasks import WebTask, WebVerdict, at

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
WAIT_S = 3.0  # for a page to be whole; the original's
HELPER = re.compile(r"func:(\w+)\((?:__page__)?(?:, *)?(?:'([^']*)')?\)")
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
    """A text to read from a page once the attempt is over.

    url       the page's address, "last" (the page that is open), or "func:...", a helper function that returns it
    locator   a JavaScript expression, "func:...", or "" for the whole page
    before    expressions that are run first
    """

    url: str
    locator: str
    before: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The state at an episode's end. url: the active page's; found: a text for each `Look`."""

    url: str
    found: tuple[str, ...] = field(default=())


def looks_of(task: WebTask, urls: dict[str, str]) -> list[Look]:
    """The pages that must be looked at before the browser is closed."""
    if "program_html" not in task.checks["eval_types"]:
        return []
    return [
        Look(url=at(urls, each["url"]), locator=each["locator"], before=tuple(each.get("prep_actions", ())))
        for each in task.checks["program_html"]
    ]


def verdict(task: WebTask, answer: str | None, ended: Ended, urls: dict[str, str], ask: Ask | None) -> WebVerdict:
    """Evaluate an attempt that is over. Raises InfraError if a model must be asked and there is none."""
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


def described(task: WebTask) -> str:
    """The expected result of a task in one line, for the record."""
    checks = task.checks
    wanted = [checks.get("reference_answer_raw_annotation") or "", checks["reference_url"]]
    for each in checks["program_html"] or ():
        wanted += [each["url"], *_wanted(each)]
    return "; ".join(filter(None, wanted)) or str(checks["reference_answers"])


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
    """Ask a model a question; whether it concludes `yes`. A reply that concludes nothing counts as no, as BrowserGym's
    does."""
    if ask is None:
        raise InfraError("this task's answer is judged by a model (fuzzy_match), and there is none to ask")
    return concludes(ask(question.format_map(values)), yes, no) is True


def _parts(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(url.rstrip("/"))
    return (parts.netloc + parts.path).rstrip("/"), parse_qs(parts.query)


def _wanted(check: dict[str, Any]) -> list[str]:
    wanted = check["required_contents"]
    return [wanted["exact_match"]] if "exact_match" in wanted else wanted["must_include"]


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
    """Call one of the original's helper functions ("func:...") and return its result."""
    read = HELPER.fullmatch(text)
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
    """The response of the shop's REST API to its administrator."""
    shop = sites["shopping"]
    user, password = LOGINS["shopping_admin"].account
    token = _asked(f"{shop}/rest/default/V1/integration/admin/token", {"username": user, "password": password}, {})
    return _asked(f"{shop}{path}", None, {"Authorization": f"Bearer {token}"})


def _asked(url: str, body: dict[str, str] | None, headers: dict[str, str]) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with open_directly(request, 20) as answer:
            return json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise InfraError(f"{url.partition('?')[0]} cannot be read: {error}") from error
