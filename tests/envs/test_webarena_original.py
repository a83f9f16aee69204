"""WebArena's published evaluation, as pure functions: what its own program says of the same texts."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from core.errors import InfraError
from envs.web.webarena_original import (
    HELPER,
    Ended,
    clean,
    described,
    holds,
    includes,
    looks_of,
    post_of,
    url_matches,
    verdict,
)
from envs.web.webarena_sites import reset_sites
from envs.web.webarena_tasks import WebTask, web_tasks

SHOP = "http://127.0.0.1:7770"
URLS = {
    "shopping": SHOP,
    "shopping_admin": f"{SHOP}/admin",
    "reddit": "http://127.0.0.1:9999",
    "gitlab": "http://g:8023",
}
needs_tasks = pytest.mark.skipif(not find_spec("webarena_verified"), reason="webarena-verified is not installed")


def task(**checks) -> WebTask:
    given = {"reference_answers": None, "reference_url": "", "program_html": [], "string_note": ""} | checks
    return WebTask(
        id=1, sites=("shopping",), group="shopping", intent="Why?", start_urls=(), template=1, logins=(), checks=given
    )


def answered(answer, ask=None, **answers):
    checked = task(eval_types=["string_match"], reference_answers=answers)
    return verdict(checked, answer, Ended(url=""), URLS, ask).solved


@pytest.mark.parametrize(
    ("wanted", "answer", "right"),
    [
        ({"exact_match": "Yes"}, " 'yes' ", True),
        ({"exact_match": "Yes"}, "Yes.", False),
        ({"must_include": ["Ann", "T. Gannon"]}, "they are t. gannon and ANN", True),
        ({"must_include": ["Ann", "Bob"]}, "Ann", False),
        ({"must_include": ["0"]}, "There are 10.", False),
        ({"must_include": ["0"]}, "There are 0.", True),
        ({"must_include": ["0", "1"]}, "10", True),  # only what stands alone must be a word
        ({"must_include": ["Ann"]}, None, False),
        ({"exact_match": ""}, None, True),
    ],
)
def test_a_text_is_matched_as_published(wanted, answer, right):
    assert answered(answer, **wanted) == right


def test_a_model_is_asked_only_where_nothing_else_can_tell():
    questions = []

    def ask(question):
        questions.append(question)
        return "Partially correct" if "half" in question else "It is CORRECT." if "{right}" in question else "Hm."

    for answer, right in (("{right}", True), ("half", False), ("what", False), (None, False)):
        assert answered(answer, ask, fuzzy_match=["all of it"]) == right
    assert len(questions) == 3 and "reference answer: all of it" in questions[0] and "question: Why?" in questions[0]
    assert answered("N/A", ask, fuzzy_match="N/A") and len(questions) == 3
    reasons = lambda question: "same" if "Report_1 = gone" in question else "different"  # noqa: E731
    assert answered("gone", reasons, fuzzy_match="N/A")
    with pytest.raises(InfraError, match="judged by a model"):
        answered("gone", None, fuzzy_match="N/A")


@pytest.mark.parametrize(
    ("reference", "url", "right"),
    [
        (f"{SHOP}/a.html", f"{SHOP}/a.html/", True),
        (f"{SHOP}/a.html", f"{SHOP}/a.html?from=b#c", True),
        (f"{SHOP}/a", f"{SHOP}/a/b", True),  # GOLD in PRED
        (f"{SHOP}/a.html", f"{SHOP}/b.html", False),
        (f"{SHOP}/s?q=tea", f"{SHOP}/s?q=tea&p=2", True),
        (f"{SHOP}/s?q=tea", f"{SHOP}/s?p=2", False),
        (f"{SHOP}/a |OR| {SHOP}/b", f"{SHOP}/b", True),
    ],
)
def test_an_address_is_matched_as_published(reference, url, right):
    found = verdict(task(eval_types=["url_match"], reference_url=reference), None, Ended(url=url), URLS, None)
    assert url_matches(reference, url) == right == found.solved


def test_what_a_page_holds_and_that_every_part_must_hold():
    one = {"url": "last", "locator": "", "required_contents": {"must_include": ["Tea &amp; more |OR| Coffee", "2"]}}
    assert holds(one, "<p>coffee</p> 12") and not holds(one, "<p>coffee</p>")
    assert holds({"required_contents": {"exact_match": "40"}}, " 40 ") and clean("'A'") == "a"
    assert includes("a", "an apple") and not includes("a", "an apple", alone=True)
    both = task(eval_types=["program_html", "url_match"], program_html=[one], reference_url=SHOP)
    for text, url, failed in (
        ("coffee 2", SHOP, ()),
        ("", SHOP, ("program_html 0",)),
        ("coffee 2", "x", ("url_match",)),
    ):
        assert verdict(both, None, Ended(url=url, found=(text,)), URLS, None).failed == failed


def test_a_post_is_found_from_its_pages():
    assert post_of("http://r/f/books/12/a-title/-/comment/3") == "http://r/f/books/12/"
    assert post_of("http://r/user/ann") == "http://r/user/ann"


@needs_tasks
def test_every_published_task_can_be_evaluated():
    """Each kind of check, each way of finding a page and each helper function of the 812 is known here."""
    tasks = web_tasks("original", "all")
    kinds = {kind for each in tasks for kind in each.checks["eval_types"]}
    assert kinds <= {"string_match", "url_match", "program_html"}
    looks = [look for each in tasks for look in looks_of(each, URLS | {"map": "http://m", "wikipedia": "http://w"})]
    assert not [look for look in looks if "__SHOPPING" in look.url or "__REDDIT__" in look.url]
    functions = {text for look in looks for text in (look.url, look.locator) if text.startswith("func:")}
    assert {HELPER.fullmatch(text.replace("'__last_url__'", ""))[1] for text in functions} == {
        "gitlab_get_project_memeber_role",
        "reddit_get_post_url",
        "shopping_get_latest_order_url",
        "shopping_get_sku_latest_review_author",
        "shopping_get_sku_latest_review_rating",
    }
    others = [look.url for look in looks if not look.url.startswith(("func:", "http"))]
    assert set(others) == {"last"}
    assert all(look.locator.startswith(("document.", "[...document.", "func:")) or not look.locator for look in looks)
    assert sum("fuzzy_match" in (task.checks["reference_answers"] or {}) for task in web_tasks("original")) == 71
    assert all(described(each).strip() for each in tasks)


class SlowControl(BaseHTTPRequestHandler):
    """A control port that answers, byte by byte, but comes to no end."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while not self.server.over.wait(0.05):
                self.wfile.write(b" ")

    def log_message(self, *args):
        pass


@pytest.fixture
def slow():
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowControl)
    server.daemon_threads, server.over = True, threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.over.set()
    server.shutdown()
    server.server_close()


def test_the_resets_of_a_tasks_sites_are_limited_together_and_a_failure_or_an_abort_is_told_at_once(slow):
    began = time.monotonic()
    with pytest.raises(InfraError, match=r"shopping cannot be reset by http.*/init: it took longer than 1 s"):
        reset_sites(dict.fromkeys(("shopping", "reddit", "gitlab", "map", "wikipedia"), slow), within_s=1)
    assert time.monotonic() - began < 5  # one after another they would take 5
    with pytest.raises(InfraError, match=r"reddit cannot be reset by .*/init: .*refused"):
        reset_sites({"shopping": slow, "reddit": "http://127.0.0.1:9"}, within_s=60)
    with pytest.raises(InfraError, match="^aborted$"):
        reset_sites({"shopping": slow}, within_s=60, aborted=lambda: True)
    assert time.monotonic() - began < 60
