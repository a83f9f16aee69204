"""WebArena's tasks, and the verdict on a recorded trace and an answer, by the real package webarena-verified."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec

import pytest

from core.errors import InfraError, UserError
from envs.web import webarena_tasks
from envs.web.webarena_tasks import COUNTS, at, group_of, web_tasks
from envs.web.webarena_verified import UNSATISFIABLE, WebVerifier, gold_answer, har_entries

needs_tasks = pytest.mark.skipif(not find_spec("webarena_verified"), reason="webarena-verified is not installed")
needs_evaluators = pytest.mark.skipif(
    not (find_spec("webarena_verified") and find_spec("jsonpath_ng")), reason="its evaluators are not installed"
)
ADDRESS = "http://127.0.0.1"
SITES = ("gitlab", "map", "reddit", "shopping_admin", "shopping", "wikipedia")
URLS = {site: f"{ADDRESS}:{7770 + n}" for n, site in enumerate(SITES)}
SHOP = URLS["shopping"]
DONE = json.dumps({"task_type": "MUTATE", "status": "SUCCESS", "retrieved_data": None})


@pytest.fixture(scope="module")
def verifier():
    made = WebVerifier(urls=URLS)
    yield made
    made.close()


def entry(method, path, status=200, post=None, address=SHOP):
    """A request as a HAR file has it."""
    request = {"method": method, "url": address + path, "headers": [{"name": "accept", "value": "text/html"}]}
    if post:
        request["postData"] = {"mimeType": "application/x-www-form-urlencoded", "text": post}
    response = {"status": status, "headers": [], "cookies": [], "content": {}, "redirectURL": ""}
    return {"request": request, "response": response}


def cart(product, status=200):
    post = f"product={product}&item={product}&qty=1"
    return [entry("GET", "/"), entry("POST", f"/checkout/cart/add/uenc/abc/product/{product}", status, post)]


def task_of(number, tasks="verified"):
    return next(task for task in web_tasks(tasks, "all") if task.id == number)


@needs_tasks
def test_the_papers_684_tasks_by_site_and_all_812():
    for version in ("original", "verified"):
        assert len(web_tasks(version, "all")) == 812
        assert len(web_tasks(version)) == 684
        by_site = {site: [task.id for task in web_tasks(version, site)] for site in COUNTS}
        counts = {"shopping": 187, "admin": 182, "gitlab": 180, "reddit": 106, "multi": 29, "map": 128}
        assert {site: len(ids) for site, ids in by_site.items()} == counts
        assert all(ids == sorted(ids) for ids in by_site.values())
        assert sorted(number for ids in by_site.values() for number in ids) == list(range(812))
    assert len(web_tasks("hard", "all")) == 258
    assert {task.id for task in web_tasks("hard")} < {task.id for task in web_tasks("verified")}


@needs_tasks
def test_a_task_is_as_it_was_published_in_either_version():
    original, verified = task_of(431, "original"), task_of(431)
    assert original.intent == verified.intent
    assert original.sites == verified.sites == ("shopping",)
    assert len(original.start_urls) == 3 and original.start_urls == verified.start_urls
    assert at(URLS, original.start_urls[0]).startswith(f"{SHOP}/tall-pink-taper-candles")
    assert at({"shopping": f"{SHOP}/"}, "__SHOPPING__/a and __SHOPPING_ADMIN__") == f"{SHOP}/a and __SHOPPING_ADMIN__"
    fuzzy = [task for task in web_tasks() if "fuzzy_match" in (task.checks["reference_answers"] or {})]
    assert len(fuzzy) == 71  # which the original evaluation asks a model about
    assert Counter(task.needs_trace for task in web_tasks("verified", "all")) == {True: 488, False: 324}


def test_a_task_of_several_sites_is_multi_unless_the_map_is_one():
    groups = [group_of(sites) for sites in (["shopping_admin"], ["gitlab", "reddit"], ["map", "wikipedia"], ["map"])]
    assert groups == ["admin", "multi", "map", "map"]


@needs_tasks
def test_what_is_not_there_is_one_sentence(monkeypatch, tmp_path):
    for words, message in ((("hardest",), "env.version=hardest"), (("original", "shop"), "env.site=shop")):
        with pytest.raises(UserError, match=message):
            web_tasks(*words)
    (tmp_path / "subsets").mkdir()
    (tmp_path / "test.raw.json").write_text(json.dumps([]))
    monkeypatch.setattr(webarena_tasks, "dataset_folder", lambda: tmp_path)
    with pytest.raises(UserError, match="other tasks than WebArena"):
        web_tasks()
    monkeypatch.undo()
    monkeypatch.setattr(webarena_tasks, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps webarena-verified"):
        web_tasks()


@needs_evaluators
def test_every_gold_answer_passes_but_one_and_no_wrong_one_does(verifier):
    answered = [task for task in web_tasks("verified", "all") if not task.needs_trace]
    assert len(answered) == 324
    verdicts = {task.id: verifier.verdict(task, gold_answer(task), []) for task in answered}
    assert [number for number, verdict in verdicts.items() if not verdict.solved] == list(UNSATISFIABLE) == [319]
    for task in answered[::20]:
        wrong = json.loads(gold_answer(task)) | {"status": "UNKNOWN_ERROR"}
        for said in (json.dumps(wrong), "I do not know.", "", None):
            verdict = verifier.verdict(task, said, [])
            assert (verdict.score, bool(verdict.failed)) == (0.0, True)


@needs_evaluators
def test_what_no_answer_passes(verifier):
    said = {"task_type": "RETRIEVE", "status": "NOT_FOUND_ERROR"}
    others = [said | {"status": "SUCCESS", "retrieved_data": data} for data in (None, [], [0], "nothing")]
    for answer in (said, *others):
        assert not verifier.verdict(task_of(319), json.dumps(answer), []).solved


@needs_evaluators
def test_a_deed_is_judged_by_the_trace_and_the_answer(verifier, tmp_path):
    task = task_of(431)
    assert verifier.verdict(task, DONE, cart(32202)).solved
    for trace, answer in (
        (cart(31412), DONE),  # another product
        (cart(32202)[:1], DONE),  # nothing was done
        (cart(32202, status=302), DONE),
        (cart(32202), json.dumps(json.loads(DONE) | {"status": "NOT_FOUND_ERROR"})),
        (cart(32202), None),
    ):
        verdict = verifier.verdict(task, answer, trace)
        assert (verdict.solved, bool(verdict.failed)) == (False, True)
    assert verifier.verdict(task, DONE, [*cart(32202), *cart(31412)[1:]]).solved  # another beside it is not looked for
    har = tmp_path / "network.har"
    har.write_text(json.dumps({"log": {"entries": cart(32202)}}))
    assert verifier.verdict(task, f"Done.\n```json\n{DONE}\n```", har).solved
    har.write_text(har.read_text()[:-40])
    with pytest.raises(InfraError, match="cannot be read"):
        har_entries(har)
    with pytest.raises(InfraError, match="recorded no request"):
        verifier.verdict(task, DONE, [])
    with pytest.raises(UserError, match="give shopping"):
        WebVerifier(urls={"reddit": ADDRESS}).verdict(task, DONE, cart(32202))


@needs_evaluators
def test_an_answer_that_hangs_the_evaluators_is_wrong_and_the_next_one_is_judged():
    tasks = [task for task in web_tasks("verified", "all") if not task.needs_trace]
    kind = lambda task: task.checks[0]["results_schema"].get("items", {}).get("format")  # noqa: E731
    distance = next(task for task in tasks if kind(task) == "distance")
    made = WebVerifier(urls=URLS, timeout_s=2)
    try:
        said = json.loads(gold_answer(distance)) | {"retrieved_data": ["9**9**9**9 km"]}
        verdict = made.verdict(distance, json.dumps(said), [])
        assert verdict.score == 0.0 and "broke" in verdict.failed[0]
        assert made.verdict(distance, gold_answer(distance), []).solved
    finally:
        made.close()


@needs_evaluators
def test_a_verdict_that_is_aborted_is_not_asked_for_again():
    """Else a process would be left that belongs to nobody any more."""
    made = WebVerifier(urls=URLS)
    try:
        made._worker.start()
        first = made._worker._process
        made.abort()
        with pytest.raises(InfraError, match="^aborted$"):
            made.verdict(task_of(23), gold_answer(task_of(23)), [])
        assert first.wait(10) == -9 and made._worker._process in (None, first)
    finally:
        made.close()
