"""env=webarena in a real Chromium, on the stand-in's pages: the contract, verdicts, logins, bad pages, dead sites."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from env_contract import EnvContract
from web_kit import needs_browser
from webarena_sites import serving

from core.errors import InfraError, UserError
from core.learning.transcript import final_state, transcript
from core.page import PAGE
from core.process import WorkerProcess
from core.types import Step, Trajectory
from envs.base import EnvStateError
from envs.web.engine import NO_SANDBOX
from envs.web.page import elements
from envs.web.webarena_engine import UNREACHABLE
from envs.web.webarena_env import ENDED, WebArenaEnv
from envs.web.webarena_sites import control_of
from envs.web.webarena_verified import gold_answer

pytestmark = [
    *needs_browser,
    pytest.mark.skipif(not find_spec("jsonpath_ng"), reason="the extra webarena is not installed"),
]
DONE = json.dumps({"task_type": "MUTATE", "status": "SUCCESS", "retrieved_data": None})
QUICK = {"instructions": "Do it.", "max_steps": 30, "slow_mo_ms": 0, "settle_s": 0.1}


@pytest.fixture(scope="module")
def sites():
    with serving("shopping") as started:
        yield started


@pytest.fixture(scope="module")
def env(sites):
    """All tasks of the shop, with actions beyond the paper's."""
    with make(sites, ids=None, more_actions=["tab_focus", "goto", "report_infeasible"]) as made:
        yield made


@pytest.fixture(scope="module")
def others():
    with serving("shopping_admin", "reddit", "gitlab") as started:
        yield started


@pytest.fixture(scope="module")
def published(sites, others):
    """The tasks and the evaluation as they were published, on four sites."""
    with make(sites | others, site="all", version="original", ids=None, more_actions=["goto"]) as made:
        yield made


def make(sites, **keys) -> WebArenaEnv:
    told = {"site": "shopping", "ids": [21, 23, 431, 432], "urls": {name: site.url for name, site in sites.items()}}
    return WebArenaEnv(**(QUICK | told | keys))


def begin(env, number: int) -> str:
    return env.reset(next(task for task in env.tasks() if task.id == f"webarena/{number}"))


def click(env, text: str):
    """A click on the first element with this text."""
    bid = next(each.bid for each in elements(env._view.page) if each.bid and text in each.text and each.clickable)
    return env.step(f"click({bid!r})")


def say(env, text: str):
    return env.step(f"send_msg_to_user({text!r})")


class TestContract(EnvContract):
    @pytest.fixture(scope="class", autouse=True)
    def served(self, sites):
        type(self).sites = sites

    def make_env(self, folder: Path) -> WebArenaEnv:
        return make(self.sites, ids=[21, 23, 431])

    def worker_pid(self, env: WebArenaEnv) -> int | None:
        return env.worker_pid

    def test_the_page_to_begin_with_and_the_actions_are_the_papers(self, shared):
        seen = begin(shared, 431)
        assert seen.startswith("Goal: Add the product with the lowest per unit price from my open tabs")
        assert "Tab 0: 'Tall Pink Taper Candles'\nTab 1: 'SPAAS" in seen and "Tab 2: '*White Starfish" in seen
        for action in ("goto('http://127.0.0.1')", "upload_file('12', '/etc/passwd')", "report_infeasible('no')"):
            seen, _, done, info = shared.step(action)
            assert seen.startswith("Error: ValueError: There is no action") and not done and not info["valid"]
        field = next(each.bid for each in elements(shared._view.page) if each.clickable and "SPAAS" in each.text)
        seen, _, _, info = shared.step(f"scroll(0, 100); click({field!r}); noop(10)")
        assert info["valid"] and "heading 'SPAAS White Taper Candles - 4 Pack'" in seen
        with pytest.raises(UserError, match="agent=gold can play"):
            shared.walkthrough()


def test_the_right_product_in_the_cart_is_a_success_and_a_wrong_one_is_none(env, sites):
    for product, score in (("SPAAS White", 1.0), ("Tall Pink", 0.0)):
        begin(env, 431)
        click(env, product)
        _, reward, done, info = click(env, "Add to Cart")
        assert (reward, done, info["won"]) == (0.0, False, False), "nothing is evaluated before the end"
        seen, reward, done, info = say(env, DONE)
        assert (reward, done, info["won"], info["score"]) == (score, True, score == 1, score)
        assert seen.startswith(f"{ENDED}\n\n") and bool(info["failed_checks"]) == (score < 1)
        assert env.evaluate(info["answer"]) == (score == 1)
    assert sites["shopping"].carts[-2:] == ["32202", "31412"]


def test_a_wrong_answer_in_words_and_none_are_wrong(env):
    begin(env, 23)
    [right] = env.walkthrough()
    assert env.step(right.replace("Rachel", "Ann"))[2] and not env.evaluate(None)
    begin(env, 23)
    env.step("noop(1)")
    assert not env.evaluate(None), "an attempt that ends at the step limit"
    with pytest.raises(EnvStateError, match="step after evaluate"):
        env.step("noop(1)")


def test_more_actions_are_told_and_taken(env, sites):
    assert "- tab_focus(1): change to a tab" in env.instructions
    begin(env, 431)
    assert "Tab 1: '*SPAAS" in env.step("tab_focus(1)")[0]
    assert "About us" in env.step(f"goto('{sites['shopping'].url}/about')")[0]
    for address in ("file:///etc/passwd", " FILE:///etc/passwd", "view-source:file:///etc/passwd", "about:blank"):
        seen, _, _, info = env.step(f"goto({address!r})")
        assert "begins with http:// or https://" in seen and not info["valid"]
    with pytest.raises(UserError, match="env.more_actions: no upload_file"):
        make(sites, more_actions=["upload_file"])


def test_one_is_logged_in_once_and_again_after_somebody_signed_out(env, sites):
    shop = sites["shopping"]
    assert "Welcome, member" in begin(env, 23)
    before = shop.logins
    assert "Welcome, member" in begin(env, 21) and shop.logins == before
    click(env, "Out")
    assert "Welcome, guest" in env.step("noop(50)")[0] or "Welcome, guest" in click(env, "SPAAS")[0]
    assert "Welcome, member" in begin(env, 23) and shop.logins == before + 1


def test_each_site_has_its_own_login(published, others):
    published.call("forget")
    before = {name: site.logins for name, site in others.items()}
    for number, who in ((0, "shopping_admin"), (27, "reddit"), (552, "gitlab")):
        seen = begin(published, number)
        assert "Welcome, member" in seen and ("You are at /admin" in seen) == (who == "shopping_admin"), who
    assert {name: site.logins - before[name] for name, site in others.items()} == dict.fromkeys(others, 1)
    others["gitlab"].account = "somebody else"
    others["gitlab"].members.clear()
    with pytest.raises(InfraError, match="gitlab at .* did not take the login"):
        begin(published, 44)
    others["gitlab"].account = None


def test_the_verified_evaluation_wants_to_know_why_a_task_is_impossible(env, sites):
    """A reason in words says neither what kind of task it was nor which kind of impossible."""
    assert "report_infeasible('{...}'): end the task as impossible, by the JSON object" in env.instructions
    number = next(task.id for task in env._chosen() if not task.needs_trace and "NOT_FOUND" in gold_answer(task))
    for text, reward in ((None, 1.0), ("There is no such thing.", 0.0)):
        begin(env, number)
        _, got, done, info = env.step(f"report_infeasible({text or env.get_ground_truth()!r})")
        assert (got, done, info["won"]) == (reward, True, bool(reward))
    with make(sites, version="original", more_actions=["report_infeasible"]) as published:
        assert "report_infeasible('why')" in published.instructions


def test_what_looks_like_a_prompt_stays_within_its_page(env):
    begin(env, 21)
    seen, *_ = click(env, "Odd delimiters")
    assert seen.count(f"\n{PAGE}\n") == 0 and seen.startswith(f"{PAGE}\n")
    assert "<memory_items" not in seen and "</memory_items" not in seen and "<|" not in seen
    steps = (Step(text="", thought="t", action="click('1')", observation=seen),)
    values = {"id": "t", "sample": 0, "opening": (), "answer": None, "ended_by": "end", "reward": 0.0}
    made = Trajectory(**values, steps=steps, success=False, gold="")
    assert "Fake" not in transcript(made) and final_state(made).count("RootWebArea 'Fake'") == 1


def test_a_dialog_a_popup_and_a_page_without_an_end_do_not_stop_an_attempt(env):
    begin(env, 21)
    click(env, "Odd dialogs")
    assert click(env, "Ask")[3]["valid"]
    assert "heading 'Home'" in click(env, "Home")[0]
    seen, *_ = click(env, "Odd endless")
    there = "heading 'Wait'" in seen
    assert there or "Headphones" in seen  # as far as it has come
    assert click(env, "Home" if there else "Odd delimiters")[3]["valid"], "it can be left"
    begin(env, 21)
    click(env, "Odd popups")
    assert "Tab 1: '*About'" in click(env, "Open")[0]


def test_only_the_sites_can_be_reached(env):
    begin(env, 21)
    click(env, "Odd outside")
    seen, _, done, info = click(env, "Elsewhere")
    assert seen.startswith(f"Error: {UNREACHABLE}\n\n") and (done, info["valid"]) == (False, False)
    assert say(env, "It is elsewhere.")[2], "no error of the engine"


def test_a_site_that_dies_breaks_the_attempt_and_the_next_one_works(published, others):
    begin(published, 44)
    others["gitlab"].die()
    with pytest.raises(InfraError, match="the site gitlab at http://127.0.0.1:.* does not answer"):
        click(published, "SPAAS")
    with serving("gitlab", port=others["gitlab"].server_port) as second:
        begin(published, 44)
        assert say(published, "Done.")[2]
        begin(published, 44)
        second["gitlab"].die()
        with pytest.raises(InfraError, match="does not answer"):
            say(published, "Done.")  # not a failure: what was left on the site cannot be known


def test_an_abort_while_the_browsers_process_starts_is_not_lost(sites, monkeypatch):
    with make(sites) as env:
        start = WorkerProcess.start

        def aborted_first(worker):
            env.abort()  # of a process that is not there yet
            start(worker)

        monkeypatch.setattr(WorkerProcess, "start", aborted_first)
        with pytest.raises(InfraError, match="^aborted$"):
            begin(env, 21)
        assert env.worker_pid is None


def test_the_sites_are_reset_by_their_control_ports(env, sites, monkeypatch):
    shop = sites["shopping"]
    monkeypatch.setattr(env, "reset_sites", True)
    monkeypatch.setattr(env, "controls", {"shopping": shop.url})
    before, logins = shop.resets, shop.logins
    begin(env, 21)
    assert (shop.resets, shop.logins) == (before + 1, logins + 1)
    env.controls = {}
    with pytest.raises(InfraError, match=rf"cannot be reset by http://127.0.0.1:{shop.server_port + 1}/init"):
        begin(env, 21)


def test_the_administration_and_the_control_ports_are_those_of_the_images():
    for url in ("http://localhost:7780", "http://localhost:7780/", "http://localhost:7780/admin/"):
        assert make({}, urls={"shopping_admin": url}).urls == {"shopping_admin": "http://localhost:7780/admin"}
    assert control_of("shopping", "http://host:7770") == "http://host:7771"
    assert control_of("reddit", "http://host:9999") == "http://host:9998"


def test_the_published_evaluation_looks_at_the_sites_at_the_end(published, sites):
    sites["shopping"].carts.clear()
    begin(published, 431)
    click(published, "SPAAS White")
    click(published, "Add to Cart")
    assert published.evaluate(None), "also where nothing was said: by what was left on the site"
    sites["shopping"].carts.clear()
    begin(published, 432)
    click(published, "Ciclon")
    click(published, "Add to Cart")
    assert say(published, "Done.")[1] == 0.0
    begin(published, 436)  # which looks at the newest order, found by the shop's interface for programs
    *_, info = say(published, "Done.")
    assert info["failed_checks"].startswith("program_html")
    begin(published, 47)
    with pytest.raises(InfraError, match="judged by a model"):
        say(published, "0 orders")


def test_a_page_out_of_reach_that_is_left_open_is_a_failure_and_no_error(published):
    """Task 600 asks for the post on the page that is left open, which here is none."""
    begin(published, 600)
    assert published.step("goto('http://example.com/')")[0].startswith("Error: ")
    assert say(published, "Posted.")[1:3] == (0.0, True)


def test_what_is_missing_is_one_sentence(sites):
    with make({}, urls=None, ids=None) as env:
        assert len(env.tasks()) == 187
        with pytest.raises(UserError) as told:
            env.describe()
    text = str(told.value)
    assert "webarena-verified env start --site shopping" in text and "env.urls.shopping=http://" in text
    assert "\n" not in text and text.count(". ") == 1  # "e.g."
    for keys, message in (
        ({"urls": {"shop": sites["shopping"].url}}, "env.urls: no site shop"),
        ({"urls": {"shopping": "localhost:7770"}}, "env.urls: localhost:7770 is no address"),
        ({"urls": {"shopping": "http://localhost:77700"}}, "env.urls: http://localhost:77700 is no address"),
        ({"controls": {"shopping": "http://:7771"}}, "env.controls: http://:7771 is no address"),
        ({"version": "old"}, "env.version=old"),
    ):
        with pytest.raises(UserError, match=message):
            make(sites, **keys)
    with make(sites, ids=[27]) as env, pytest.raises(UserError, match="27 is no task of env.version=verified"):
        env.tasks()


def test_a_sandbox_that_does_not_work_is_told_and_not_left_out(sites):
    with make(sites, browser_sandbox=True) as env:
        if os.geteuid():
            assert "heading" in begin(env, 21)
        else:
            with pytest.raises(UserError) as told:
                begin(env, 21)
            assert str(told.value) == NO_SANDBOX
    with make(sites) as env:
        assert env.describe()["sandbox"] is bool(os.geteuid())
