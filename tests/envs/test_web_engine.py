"""The engine of the web beyond one page: sites, tabs, logins, recorded traffic, several calls. Served here."""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from web_kit import needs_browser

from core.process import WorkerProcess
from envs.web.browser import environment, find_browser
from envs.web.engine import Visit, WebEngine, WebSettings
from envs.web.page import elements

pytestmark = needs_browser
ACTIONS = ("click", "fill", "goto", "new_tab", "tab_focus", "send_msg_to_user", "report_infeasible")


class Shop(BaseHTTPRequestHandler):
    """A page that greets by a cookie, a form, and a second page."""

    def do_GET(self):
        who = "someone" if "session=ann" not in self.headers.get("Cookie", "") else "Ann"
        body = {
            "/": f"<title>Shop</title><h1>Hello {who}</h1><form method=post action=/cart>"
            "<input name=what aria-label=What><button>Add</button></form>",
            "/about": "<title>About</title><p>We sell tea.</p>",
        }.get(self.path, "<title>None</title>")
        self.answer(body)

    def do_POST(self):
        sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.answer(f"<title>Cart</title><p>In the cart: {sent}</p>")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def engine():
    settings = WebSettings(browser=find_browser(None), tasks=None, actions=ACTIONS, most_calls=3, settle_s=0.1)
    worker = WorkerProcess(factory=partial(WebEngine, settings), environment=environment(), timeout_s=60)
    worker.start()
    yield worker
    worker.close()


def visit(url, **context):
    options = {"start_url": f"{url}/", "goal": "Put tea into the cart."}
    return Visit(task="openended", seed=0, options=options, viewport={"width": 1500, "height": 1280}, context=context)


def test_what_a_visit_sends_is_recorded_once_it_is_finished(engine, url, tmp_path):
    har = tmp_path / "visit.har"
    view = engine.call("open", visit(url, record_har_path=str(har)))
    assert view.goal == "Put tea into the cart." and "heading 'Hello someone'" in view.page and not view.done
    field, button = (each.bid for each in elements(view.page) if each.text in ("What", "Add") and each.bid)
    view = engine.call("act", f"fill('{field}', 'tea')\nclick('{button}')")
    assert view.error == "" and "In the cart: what=tea" in view.page and view.tabs == ("*Cart",)
    engine.call("finish")
    sent = [entry["request"] for entry in json.loads(har.read_text())["log"]["entries"]]
    assert [(one["method"], one["url"].removeprefix(url)) for one in sent if "favicon" not in one["url"]] == [
        ("GET", "/"),
        ("POST", "/cart"),
    ]


def test_a_visit_begins_logged_in_and_leaves_no_cookie_to_the_next(engine, url):
    cookie = {"name": "session", "value": "ann", "domain": "127.0.0.1", "path": "/", "expires": -1}
    cookie |= {"httpOnly": False, "secure": False, "sameSite": "Lax"}
    view = engine.call("open", visit(url, storage_state={"cookies": [cookie], "origins": []}))
    assert "heading 'Hello Ann'" in view.page
    assert "heading 'Hello someone'" in engine.call("open", visit(url)).page


def test_tabs_are_opened_and_changed(engine, url):
    engine.call("open", visit(url))
    view = engine.call("act", f"new_tab()\ngoto('{url}/about')")
    assert view.error == "" and view.tabs == ("Shop", "*About") and "We sell tea." in view.page
    view = engine.call("act", "tab_focus(0)")
    assert view.tabs == ("*Shop", "About") and "Hello someone" in view.page


def test_what_the_agent_says_is_kept_and_ends_nothing_unless_it_gives_up(engine, url):
    engine.call("open", visit(url))
    view = engine.call("act", "send_msg_to_user('It costs 3 EUR.')")
    assert view.said == ("It costs 3 EUR.",) and not view.done
    view = engine.call("act", "report_infeasible('There is no tea.')")
    assert view.said[-1] == "There is no tea." and view.done


def test_four_calls_are_more_than_three(engine, url):
    engine.call("open", visit(url))
    view = engine.call("act", "\n".join(["tab_focus(0)"] * 4))
    assert view.error == "ValueError: At most 3 actions can be taken at a time."
